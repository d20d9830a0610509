// Numbers and names in words.

const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : UNKNOWN;
}

// A large number in few characters: 950, 9.98k, 6.15M.
export function short(value, digits = 3) {
  if (!known(value)) return UNKNOWN;
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= limit) return `${+(value / limit).toPrecision(digits)}${unit}`;
  }
  return `${+value.toPrecision(digits)}`;
}

// A number of unknown size with three significant digits.
export function figure(value, digits = 3) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1000) return short(value, digits);
  const text = size !== 0 && size < 0.001 ? value.toExponential(digits - 2) : String(+value.toPrecision(digits));
  return text.replace("-", "−");
}

// The same of several numbers, with as many digits as tell all of them apart.
export function figures(values, digits = 3) {
  const found = values.map((value) => figure(value, digits));
  return new Set(found).size === new Set(values).size || digits > 14 ? found : figures(values, digits + 1);
}

// A number in a column: four digits or three decimals.
export function quantity(value) {
  return (Math.abs(value) < 10 ? value.toFixed(3) : value.toPrecision(4)).replace("-", "−");
}

export function score(value) {
  return known(value) ? value.toLocaleString("en", { maximumFractionDigits: 2 }).replace("-", "−") : UNKNOWN;
}

export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const two = (part) => String(Math.floor(part)).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  if (hours >= 24) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return `${hours}:${two((seconds % 3600) / 60)}:${two(seconds % 60)}`;
}

export function percent(share) {
  return known(share) ? `${Math.round(100 * share)}%` : UNKNOWN;
}

// A game or an env as a headline: "Space Invaders"; of a factory, the last part of its module that tells something.
export function title(game) {
  const [module, made] = game.split(":");
  const name = made === undefined ? game : /^(factory|make|make_env|env)$/.test(made) ? module.split(".").pop() : made;
  return name.replaceAll("_", " ").replace(/(^|\s)\w/g, (letter) => letter.toUpperCase());
}

const ARROWS = { UP: "↑", DOWN: "↓", LEFT: "←", RIGHT: "→", UPLEFT: "↖", UPRIGHT: "↗", DOWNLEFT: "↙", DOWNRIGHT: "↘" };

// An action as a sign: NOOP ·, FIRE ●, RIGHTFIRE →●; names of other environments as they are.
export function sign(name) {
  if (name === "NOOP") return "·";
  if (name === "FIRE") return "●";
  if (name in ARROWS) return ARROWS[name];
  const way = name.endsWith("FIRE") ? ARROWS[name.slice(0, -4)] : undefined;
  return way ? `${way}●` : name.slice(0, 5);
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
