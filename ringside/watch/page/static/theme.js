// Dark or light: as chosen before, else as the system has it.

import { say } from "./words.js";

// A browser may refuse local storage; then the page follows the system.
function remember(theme) {
  try {
    if (theme) localStorage.setItem("theme", theme);
    return localStorage.getItem("theme");
  } catch {
    return theme;
  }
}

function paint(button, theme) {
  document.documentElement.dataset.theme = theme;
  say(button, theme === "dark" ? "Light" : "Dark");
}

export function repaint(button) {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  paint(button, remember(other) ?? other);
}

export function prepareTheme(button) {
  button.addEventListener("click", () => repaint(button));
  paint(button, remember() ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark"));
}
