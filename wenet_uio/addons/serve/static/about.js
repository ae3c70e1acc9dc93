/** What the model knows, for people who do not know what to say: sentences to try, its words, its languages. */

import { listed, nameOfLanguage, say } from "./language.js";

const FEW = 6; // languages that are named in one sentence

/**
 * @param {HTMLElement} section see index.html
 * @param {{examples: string[], words: string[], languages: string[]}} model texts are data: they never become markup
 */
export function showAbout(section, { examples = [], words = [], languages = [] }) {
  const part = (name) => section.querySelector(`[data-part="${name}"]`);
  const speech = languages.length === 1 ? languages[0] : ""; // the language of the sentences, if it is known

  part("examples").replaceChildren(...examples.map((text) => spoken("li", text, speech)));
  part("words").replaceChildren(...words.flatMap((text) => [spoken("span", text, speech), " "]));
  const names = languages.map(nameOfLanguage);
  part("languages").textContent = say("knownLanguages", { languages: listed(names) });
  part("many-languages").textContent = say("manyLanguages", { count: languages.length });
  part("language-names").textContent = listed(names.sort((one, other) => one.localeCompare(other)));

  const shown = {
    try: examples.length > 0,
    known: words.length > 0,
    languages: languages.length > 0 && languages.length <= FEW,
    "all-languages": languages.length > FEW,
  };
  for (const [name, isShown] of Object.entries(shown)) part(name).hidden = !isShown;
  section.hidden = !Object.values(shown).some(Boolean);
}

/** An element with a text that can be spoken. */
function spoken(tag, text, language) {
  const element = document.createElement(tag);
  element.className = "spoken";
  element.dir = "auto";
  element.lang = language;
  element.textContent = text;
  return element;
}
