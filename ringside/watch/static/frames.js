// Frames on canvases: the mosaic, and the chosen env. A shape is {size, stack, channels}.

import { element, figure, find, say, score, sign } from "./words.js";

const SIDE = 84; // of canvases before their first frame
const MOST_STACK = 8; // newest frames of a stack that are shown

const makeCanvas = () => element("canvas", { width: SIDE, height: SIDE });

// Bytes of one frame: a plane of grays, or one each of red, green and blue.
const frameBytes = (shape) => shape.channels * shape.size * shape.size;

// Draw one frame of a buffer.
function drawFrame(canvas, bytes, offset, { size, channels }) {
  const context = canvas.getContext("2d");
  if (canvas.image?.width !== size) {
    canvas.width = canvas.height = size;
    canvas.image = context.createImageData(size, size);
  }
  const [colors, plane] = [new Uint32Array(canvas.image.data.buffer), channels === 1 ? 0 : size * size];
  for (let i = 0, at = offset; i < size * size; i++, at++) {
    colors[i] = 0xff000000 | bytes[at] | (bytes[at + plane] << 8) | (bytes[at + 2 * plane] << 16);
  }
  context.putImageData(canvas.image, 0, 0);
}

export class Mosaic {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    this.cells = [];
    this.columns = 1;
    this.first = 0;
    new ResizeObserver(() => this.arrange()).observe(box);
  }

  // Create a cell for each env, from env `first`.
  prepare(first, count) {
    if (this.first === first && this.cells.length === count) return;
    this.first = first;
    this.cells = Array.from({ length: count }, (_, i) => {
      const [canvas, caption] = [makeCanvas(), element("span")];
      const button = element("button", { type: "button", class: "cell", tabindex: "-1" }, canvas, caption);
      button.addEventListener("click", () => this.choose(first + i));
      return { canvas, caption, button };
    });
    this.box.replaceChildren(...this.cells.map((cell) => cell.button));
    this.arrange();
  }

  // Cells of 44 to 252 pixels, so large that all envs fit on the screen where possible.
  arrange() {
    const width = this.box.clientWidth;
    const fitting = Math.ceil(Math.sqrt((this.cells.length * width) / (0.7 * window.innerHeight)));
    this.columns = Math.max(1, Math.ceil(width / 252), Math.min(fitting, Math.floor(width / 44)));
    this.box.style.setProperty("--columns", this.columns);
  }

  show(fields, bytes, chosen, shape) {
    this.prepare(fields.first, fields.envs);
    this.cells.forEach((cell, i) => {
      drawFrame(cell.canvas, bytes, i * frameBytes(shape), shape);
      say(cell.caption, score(fields.returns[i]));
      const env = fields.first + i;
      cell.button.setAttribute("aria-pressed", String(env === chosen));
      cell.button.setAttribute("aria-label", `env ${env}, return ${score(fields.returns[i])}`);
      cell.button.tabIndex = env === chosen ? 0 : -1;
      cell.button.classList.toggle("ended", fields.ended[i]);
    });
  }
}

// Show the chosen env; its stack begins behind `before` frames.
export function showEnv(fields, bytes, before, { actions: names, status }, shape) {
  const shown = Math.min(shape.stack, MOST_STACK);
  const stack = find("stack");
  if (stack.children.length !== shown) {
    stack.parentElement.style.setProperty("--stack", shown);
    stack.replaceChildren(...Array.from({ length: shown }, (_, i) =>
      element("figure", {}, makeCanvas(), element("figcaption", {}, i < shown - 1 ? `t − ${shown - 1 - i}` : "t"))));
  }
  const draw = (canvas, age) => drawFrame(canvas, bytes, (before + shape.stack - 1 - age) * frameBytes(shape), shape);
  stack.querySelectorAll("canvas").forEach((canvas, i) => draw(canvas, shown - 1 - i));
  draw(find("large"), 0);
  say(find("one-title"), `Env ${fields.env}`);
  const player = status.workers ? `worker ${fields.lane}, process ${fields.owner}`
    : `lane ${fields.lane}, actor ${fields.owner}`;
  say(find("one-facts"), `${player} · ${fields.steps === 1 ? "1 step" : `${score(fields.steps)} steps`} into its episode`);
  say(find("one-return"), score(fields.return));
  find("actions").replaceChildren(...fields.actions.map((action, i) => actionChip(fields, names[action] ?? `${action}`, i)));
  showValues(fields, names);
}

function actionChip(fields, name, i) {
  const reward = fields.rewards[i];
  const titles = [fields.valid[i] ? name : "begins a new episode"];
  const chip = element("span", { class: "chip" }, fields.valid[i] ? sign(name) : "⟲");
  if (reward) {
    chip.classList.add(reward > 0 ? "gain" : "loss");
    chip.append(element("b", {}, (reward > 0 ? "+" : "") + score(reward)));
    titles.push(`reward ${score(reward)}`);
  }
  if (fields.ended[i]) {
    chip.classList.add("end");
    titles.push("end of the episode");
  }
  chip.title = titles.join(", ");
  return chip;
}

// Q-values: bars from the lowest to the highest, since the differences decide the action. Probabilities: as they are.
function showValues({ values, taken, are_probabilities: probable }, names) {
  say(find("values-name"), probable ? "Probabilities" : "Q-values");
  say(find("values-note"), !values ? "none yet" : probable ? "the action is drawn from them" : "from lowest to highest");
  const [low, high] = values ? [Math.min(...values), Math.max(...values)] : [];
  find("values").replaceChildren(...(values ?? []).map((value, i) => {
    const best = i === values.indexOf(high);
    const share = probable ? value : high > low ? 0.03 + 0.97 * ((value - low) / (high - low)) : 1;
    const bar = element("div");
    bar.style.width = `${100 * share}%`;
    const marks = [best && (probable ? "likeliest" : "best"), i === taken && "taken"].filter(Boolean);
    return element("tr", { class: best ? "best" : "" }, element("th", { scope: "row" }, names[i] ?? `${i}`),
      element("td", { class: "bar" }, bar),
      element("td", { class: "number" }, probable ? `${(100 * value).toFixed(1)}%` : figure(value, 4)),
      element("td", { class: "mark" }, marks.join(", ")));
  }));
}
