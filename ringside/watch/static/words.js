// Numbers, names and elements, and requests to the server.

const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
const format = (value, options) => (known(value) ? value.toLocaleString("en", options).replace("-", "−") : UNKNOWN);

export const count = (value) => format(value, { maximumFractionDigits: 0 });
export const score = (value) => format(value, { maximumFractionDigits: 2 });

// A number of unknown size in few characters: 0.0123, 950, 9.98k, 6.15M.
export const figure = (value, digits = 3) =>
  format(value, { notation: "compact", maximumSignificantDigits: digits }).replace("K", "k");

// The same of several numbers, with as many digits as tell all of them apart.
export function figures(values, digits = 3) {
  const found = values.map((value) => figure(value, digits));
  return new Set(found).size === new Set(values).size || digits > 14 ? found : figures(values, digits + 1);
}

export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const two = (part) => String(Math.floor(part)).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  if (hours >= 24) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return `${hours}:${two((seconds % 3600) / 60)}:${two(seconds % 60)}`;
}

const ARROWS = { UP: "↑", DOWN: "↓", LEFT: "←", RIGHT: "→", UPLEFT: "↖", UPRIGHT: "↗", DOWNLEFT: "↙", DOWNRIGHT: "↘" };

// An action as a sign: NOOP ·, FIRE ●, RIGHTFIRE →●; names of other environments as they are.
export function sign(name) {
  const way = ARROWS[name.replace(/FIRE$/, "")];
  return { NOOP: "·", FIRE: "●" }[name] ?? (way ? way + (name.endsWith("FIRE") ? "●" : "") : name.slice(0, 5));
}

// An element with attributes and children; texts stay texts.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Set a text only if it changes, which avoids needless layout.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const find = (id) => document.getElementById(id);

export function showMode(word, look) {
  say(find("mode"), word);
  find("mode").className = `pill ${look}`;
}

export async function ask(what) {
  const answer = await fetch(what, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
  if (!answer.ok) throw new Error(`${what}: ${answer.status}`);
  return answer;
}

// Call `act` for good, with pauses of the seconds that it returns. Returns a function that ends the present pause.
export function repeat(act) {
  let wake = () => {};
  (async () => {
    for (;;) {
      const seconds = await act();
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, seconds * 1000); });
    }
  })();
  return () => wake();
}
