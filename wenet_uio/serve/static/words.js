/** Words with a shade for their confidence; time and confidence on hover and on keyboard focus. */

import { moment } from "./times.js";

const SHADES = [0.5, 0.7, 0.9]; // lowest confidence of the shades 1, 2 and 3; 3 has no shade
const MARGIN = 8; // CSS pixels between the tip and the word, or the edge of the window

/** Fill an element with the text of a segment; its words become elements. */
export function writeWords(element, { text, words = [] }) {
  let end = 0;
  for (const word of words) {
    const start = text.indexOf(word.word, end);
    if (start < 0) continue; // the word stays plain text
    element.append(text.slice(end, start), wordElement(word));
    end = start + word.word.length;
  }
  element.append(text.slice(end));
}

function wordElement({ word, start, end, confidence }) {
  const element = document.createElement("span");
  element.className = "word";
  element.tabIndex = -1;
  element.textContent = word;
  const times = `${moment(start)} – ${moment(end)}`;
  const known = typeof confidence === "number";
  element.dataset.confidence = known ? SHADES.filter((least) => confidence >= least).length : SHADES.length;
  element.dataset.tip = known ? `${times} · confidence ${Math.round(confidence * 100)} %` : times;
  return element;
}

/** Let Tab reach the words of `container` as one stop; arrow keys, Home and End go from word to word. */
export function letKeysWalk(container) {
  const words = () => [...container.querySelectorAll(".word")];
  container.addEventListener("focusin", ({ target }) => {
    if (!target.matches(".word")) return;
    container.querySelectorAll('.word[tabindex="0"]').forEach((word) => (word.tabIndex = -1));
    target.tabIndex = 0;
  });
  container.addEventListener("keydown", (event) => {
    if (!event.target.matches(".word") || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = words();
    const place = all.indexOf(event.target);
    const step = getComputedStyle(event.target).direction === "rtl" ? -1 : 1;
    const next = { ArrowRight: place + step, ArrowLeft: place - step, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    all[Math.max(0, Math.min(all.length - 1, next))].focus();
  });
}

/** Show the tip of the word under the pointer, or of the focused word. */
export function startTips(tip, container) {
  const show = (word) => {
    if (!word?.dataset.tip) return;
    tip.textContent = word.dataset.tip;
    tip.hidden = false;
    word.setAttribute("aria-describedby", tip.id);
    const { left, width, top, bottom } = word.getBoundingClientRect();
    const most = document.documentElement.clientWidth - tip.offsetWidth - MARGIN;
    const above = top - tip.offsetHeight - MARGIN;
    tip.style.left = `${Math.max(MARGIN, Math.min(most, left + width / 2 - tip.offsetWidth / 2))}px`;
    tip.style.top = `${above < MARGIN ? bottom + MARGIN : above}px`;
  };
  const hide = () => (tip.hidden = true);
  const focused = () => (container.contains(document.activeElement) ? document.activeElement : null);
  container.addEventListener("pointerover", ({ target }) => show(target.closest(".word")));
  container.addEventListener("pointerout", () => (hide(), show(focused())));
  container.addEventListener("focusin", ({ target }) => show(target.closest(".word")));
  container.addEventListener("focusout", hide);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  document.addEventListener("scroll", hide, { passive: true });
}
