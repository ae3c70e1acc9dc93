/** A recording on the page: its text, and what can be done with it. */

import { say } from "./language.js";
import { srt, vtt } from "./subtitles.js";
import { shortClock } from "./times.js";
import { letKeysWalk, writeWords } from "./words.js";

const SHOWN_SECONDS = 2; // for which a button says that it has copied

export class Recording {
  /**
   * @param {string} title
   * @param {string} fileName of the downloads, without its ending
   * @param {() => void} onRemove called when the recording has left the page
   */
  constructor(title, fileName, onRemove) {
    this.onRemove = onRemove;
    this.segments = [];
    this.element = document.getElementById("recording").content.firstElementChild.cloneNode(true);
    this.text = this.element.querySelector(".text");
    this.partial = this.element.querySelector(".partial");
    this.element.querySelector("h2").textContent = title;
    this.element.setAttribute("aria-label", title);
    const actions = {
      copy: (button) => this.copy(button, title),
      srt: () => download(`${fileName}.srt`, "application/x-subrip", srt(this.cues)),
      vtt: () => download(`${fileName}.vtt`, "text/vtt", vtt(this.cues)),
      remove: () => this.remove(),
    };
    for (const button of this.element.querySelectorAll("[data-action]")) {
      name(button, button.dataset.action, title);
      button.addEventListener("click", () => actions[button.dataset.action](button));
    }
    this.walk = letKeysWalk(this.text);
    this.update();
  }

  get cues() {
    return this.segments.flatMap((segment) => segment.cues ?? []);
  }

  /** What happens to the recording now. */
  set progress(words) {
    this.element.querySelector(".progress").textContent = words;
  }

  /** The text of the open utterance, which may change. */
  setPartial(text) {
    this.keepInView(() => (this.partial.textContent = text));
  }

  /** @param {object[]} segments {start, end, text, words, cues, channel_name?}; times in seconds */
  addSegments(segments) {
    const spoken = segments.filter((segment) => segment.text);
    this.segments.push(...spoken);
    this.keepInView(() => {
      this.partial.textContent = "";
      this.text.append(...spoken.map(rowOf));
      this.walk.start();
      this.update();
    });
  }

  /** Keep a partial text whose final text will not come. */
  keepPartial() {
    const text = this.partial.textContent;
    this.addSegments([{ start: this.segments.at(-1)?.end ?? 0, text, words: [], cues: [] }]);
  }

  remove() {
    const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
    const hasFocus = this.element.contains(document.activeElement);
    this.element.remove();
    if (hasFocus) (next?.querySelector('[data-action="remove"]') ?? document.getElementById("speak")).focus();
    this.onRemove();
  }

  update() {
    const has = { copy: this.segments.length > 0, srt: this.cues.length > 0, vtt: this.cues.length > 0, remove: true };
    for (const button of this.element.querySelectorAll("[data-action]")) button.disabled = !has[button.dataset.action];
  }

  async copy(button, title) {
    const isCopied = await copyText(this.segments.map(textOf).join(" "));
    name(button, isCopied ? "copied" : "notCopied", title);
    setTimeout(() => name(button, "copy", title), SHOWN_SECONDS * 1000);
  }

  /** Change the text; a reader who sees its end sees the new end as well. */
  keepInView(change) {
    const before = this.element.getBoundingClientRect().bottom;
    change();
    const { bottom } = this.element.getBoundingClientRect();
    if (before <= innerHeight && bottom > innerHeight) this.element.scrollIntoView({ block: "end" });
  }
}

/** All recordings have the same buttons; their names for screen readers say which recording. `key` is one of texts.js. */
function name(button, key, title) {
  button.textContent = say(key);
  button.setAttribute("aria-label", say("actionOn", { action: say(key), title }));
}

/** The text of a segment, after the name of its channel where another one begins; as in addons/listen/results.py. */
function textOf(segment, number, segments) {
  const isTurn = segment.channel_name && segment.channel_name !== segments[number - 1]?.channel_name;
  return isTurn ? `[${segment.channel_name}] ${segment.text}` : segment.text;
}

/** The name of a channel, which the server gives as left, right or channel 3. */
function channelName(name = "") {
  if (name === "left" || name === "right") return say(name);
  const [, number] = name.match(/^channel (\d+)$/) ?? [];
  return number ? say("channelNumber", { number }) : name;
}

function rowOf(segment) {
  const row = document.createElement("div");
  row.className = "segment";
  const time = document.createElement("span");
  time.className = "time";
  time.textContent = [shortClock(segment.start), channelName(segment.channel_name)].filter(Boolean).join(" ");
  const text = document.createElement("p");
  text.dir = "auto";
  text.lang = segment.language ?? ""; // not that of the page
  writeWords(text, segment);
  row.append(time, text);
  return row;
}

/** Copy, also on plain http pages, where there is no navigator.clipboard. */
async function copyText(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = document.createElement("textarea");
  const focused = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return isCopied;
}

function download(name, type, content) {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
