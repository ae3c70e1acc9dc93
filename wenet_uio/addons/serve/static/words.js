/** Words with a shade for their confidence; time and confidence on hover and on keyboard focus. */

import { say } from "./language.js";
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
  const times = { start: moment(start), end: moment(end) };
  if (typeof confidence === "number") {
    element.dataset.confidence = SHADES.filter((least) => confidence >= least).length;
    element.dataset.tip = say("wordTimesAndConfidence", { ...times, percent: Math.round(confidence * 100) });
  } else {
    element.dataset.tip = say("wordTimes", times); // nothing is known, so there is no shade
  }
  return element;
}

/**
 * Let Tab reach the words of `container`, rows of the class "segment", as one stop; arrow keys, Home and End go from word
 * to word.
 * @returns {{start: () => void}} `start` makes the first word the stop if there is none
 */
export function letKeysWalk(container) {
  let stop = null;
  const setStop = (word) => {
    if (stop) stop.tabIndex = -1;
    stop = word;
    if (stop) stop.tabIndex = 0;
  };
  container.addEventListener("focusin", ({ target }) => target.matches(".word") && setStop(target));
  container.addEventListener("keydown", (event) => {
    if (!event.target.matches(".word") || event.altKey || event.ctrlKey || event.metaKey) return;
    const isLeftToRight = getComputedStyle(event.target).direction === "ltr";
    const targets = {
      ArrowRight: () => neighbour(event.target, isLeftToRight),
      ArrowLeft: () => neighbour(event.target, !isLeftToRight),
      Home: () => container.querySelector(".word"),
      End: () => [...container.querySelectorAll(".word")].at(-1),
    };
    if (!Object.hasOwn(targets, event.key)) return;
    event.preventDefault();
    targets[event.key]().focus();
  });
  return { start: () => stop ?? setStop(container.querySelector(".word")) };
}

/** The next or previous word, or the word itself at the end of the text. Long texts have many words: look near first. */
function neighbour(word, isForward) {
  const after = (element) => (isForward ? element.nextElementSibling : element.previousElementSibling);
  if (after(word)) return after(word);
  for (let row = after(word.closest(".segment")); row; row = after(row)) {
    const words = row.querySelectorAll(".word");
    if (words.length) return words[isForward ? 0 : words.length - 1];
  }
  return word;
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
  const back = () => (hide(), show(focused()));
  const focused = () => (container.contains(document.activeElement) ? document.activeElement : null);
  container.addEventListener("pointerover", ({ target }) => show(target.closest(".word")));
  container.addEventListener("pointerout", back);
  container.addEventListener("focusin", ({ target }) => show(target.closest(".word")));
  container.addEventListener("focusout", hide);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  document.addEventListener("scroll", back, { passive: true }); // the focus may have scrolled the page
}
