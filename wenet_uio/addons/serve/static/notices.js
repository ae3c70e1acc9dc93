/** Sentences for the person at the page; each has a key and stays until it is cleared. */

import { say } from "./language.js";

export class Notices {
  constructor(container) {
    this.container = container;
    this.shown = new Map();
  }

  /** Something does not work. Empty words clear the notice. */
  error(key, words) {
    this.show(key, words, "alert");
  }

  /** Good to know. Empty words clear the notice. */
  info(key, words) {
    this.show(key, words, "status");
  }

  clear(...keys) {
    for (const key of keys) this.show(key, "");
  }

  show(key, words, role) {
    const notice = this.shown.get(key);
    if (!words) {
      notice?.remove();
      this.shown.delete(key);
    } else if (notice) {
      if (notice.textContent !== words) notice.textContent = words; // unchanged words are not read out again
    } else {
      const added = document.createElement("p");
      added.className = "notice";
      added.setAttribute("role", role);
      added.textContent = words;
      this.container.append(added);
      this.shown.set(key, added);
    }
  }
}

export function noAnswer() {
  return say("noAnswer", { host: location.host });
}
