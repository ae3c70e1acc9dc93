/** The switch between dark and light. Until it is used, the page follows the system. */

const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * @param {HTMLButtonElement} button names the theme that it switches to
 * @param {object} words dark, light: their names; toDark, toLight: what the button does
 */
export function startTheme(button, words, onChange) {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? words.light : words.dark;
    button.setAttribute("aria-label", isDark() ? words.toLight : words.toDark);
    onChange();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();
}
