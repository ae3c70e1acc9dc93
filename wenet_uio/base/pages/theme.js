/** The switch between dark and light. Until it is used, the page follows the system. */

const dark = matchMedia("(prefers-color-scheme: dark)");

/** @param {HTMLButtonElement} button names the theme that it switches to */
export function startTheme(button, onChange) {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
    onChange();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();
}
