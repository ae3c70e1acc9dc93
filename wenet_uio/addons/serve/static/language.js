/** The language of the page: the first that the browser wants and texts.js has, or English. */

import { TEXTS } from "./texts.js";

const USUAL = "en";

/** Code of a language that texts.js has for a tag such as zh-CN or en-GB; undefined if there is none, or the tag is none. */
function known(tag) {
  const isTag = /^[a-z]+(-[a-z0-9]+)*$/i.test(tag); // some systems have tags such as en-US@posix
  return isTag ? Object.keys(TEXTS).find((code) => code === tag.toLowerCase().split("-")[0]) : undefined;
}

/** The tag by which times, lists and names of languages are written. */
export const locale = navigator.languages.find(known) ?? USUAL;

const texts = TEXTS[known(locale)];

/** The text of a key; each {name} in it is replaced by that of `values`. */
export function say(key, values = {}) {
  return texts[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/**
 * Why the server refused something.
 * @param {string?} code of its error
 * @param {string} reason in the words of the server
 */
export function sayRefusal(code, reason) {
  const key = `refused_${code}`;
  return say(Object.hasOwn(texts, key) ? key : "refused", { reason });
}

/** Write the texts of the elements that name one: `data-text` for their content, `data-label` for screen readers. */
export function writeTexts(root) {
  for (const element of root.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  for (const element of root.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
}

/** The name of a language such as `en`, or the code if the browser does not know it. */
export function nameOfLanguage(code) {
  try {
    return new Intl.DisplayNames([locale], { type: "language" }).of(code);
  } catch {
    return code; // a tag that is none, such as that of a tokenizer
  }
}

/** "English, German and French" */
export function listed(items) {
  return new Intl.ListFormat(locale, { type: "conjunction" }).format(items);
}

export function startLanguage() {
  document.documentElement.lang = texts.htmlLang;
  writeTexts(document);
  for (const template of document.querySelectorAll("template")) writeTexts(template.content);
}
