// Frames on canvases: the mosaic, and the chosen env. A shape is {size, stack, channels}.

import { element, quantity, say, score, sign } from "./words.js";

export const SIDE = 84; // of canvases before their first frame
const MOST_STACK = 8; // newest frames of a stack that are shown
const GAP = 4;
const CAPTION = 17;
const LARGEST = 252;

// Bytes of one frame: a plane of grays, or one each of red, green and blue.
export const frameBytes = (shape) => shape.channels * shape.size * shape.size;

// Draw one frame of a buffer.
export function drawFrame(canvas, bytes, offset, shape) {
  const context = canvas.getContext("2d");
  if (canvas.image?.width !== shape.size) {
    canvas.width = canvas.height = shape.size;
    canvas.image = context.createImageData(shape.size, shape.size);
    canvas.words = new Uint32Array(canvas.image.data.buffer);
  }
  const [colors, pixels] = [canvas.words, shape.size * shape.size];
  if (shape.channels === 1) {
    for (let i = 0; i < pixels; i++) colors[i] = 0xff000000 | (bytes[offset + i] * 0x010101);
  } else {
    for (let i = 0, at = offset; i < pixels; i++, at++) {
      colors[i] = 0xff000000 | bytes[at] | (bytes[at + pixels] << 8) | (bytes[at + 2 * pixels] << 16);
    }
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
    this.size = SIDE;
    new ResizeObserver(() => this.arrange()).observe(box);
  }

  // Create a cell for each env, from env `first`.
  prepare(first, count) {
    if (this.first === first && this.cells.length === count) return;
    this.first = first;
    this.cells = Array.from({ length: count }, (_, i) => {
      const canvas = element("canvas", { width: SIDE, height: SIDE });
      const caption = element("span", {});
      const button = element("button", { type: "button", class: "cell", tabindex: "-1" }, canvas, caption);
      button.addEventListener("click", () => this.choose(first + i));
      return { canvas, caption, button };
    });
    this.box.replaceChildren(...this.cells.map((cell) => cell.button));
    this.arrange();
  }

  // Choose the largest cells with which all envs fit on the screen.
  arrange() {
    const count = this.cells.length;
    if (!count) return;
    const width = this.box.clientWidth;
    const height = Math.max(420, Math.min(760, window.innerHeight * 0.8));
    let columns = 1;
    const side = () => Math.min(LARGEST, (width + GAP) / columns - GAP);
    while (columns < count && Math.ceil(count / columns) * (side() + CAPTION + GAP) > height) columns++;
    if (side() < 40) columns = Math.max(1, Math.floor((width + GAP) / (40 + GAP)));
    this.columns = columns;
    this.box.style.gridTemplateColumns = `repeat(${columns}, minmax(0, ${LARGEST}px))`;
    this.box.classList.toggle("coarse", side() > 1.5 * this.size);
  }

  show(fields, bytes, chosen, shape) {
    if (this.size !== shape.size) {
      this.size = shape.size;
      this.arrange();
    }
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

export class One {
  constructor() {
    const find = (id) => document.getElementById(id);
    this.title = find("one-title");
    this.facts = find("one-facts");
    this.large = find("large");
    this.total = find("one-return");
    this.actions = find("actions");
    this.values = find("values");
    this.name = find("values-name");
    this.note = find("values-note");
    this.column = find("stack");
    this.stack = [];
    this.rows = [];
  }

  prepareStack(count) {
    if (this.stack.length === count) return;
    this.stack = Array.from({ length: count }, () => element("canvas", { width: SIDE, height: SIDE }));
    this.column.parentElement.style.setProperty("--stack", count);
    this.column.setAttribute("aria-label", `The newest frames of the stack, ${count}, oldest first`);
    this.column.replaceChildren(...this.stack.map((canvas, i) => {
      const age = count - 1 - i;
      return element("figure", {}, canvas, element("figcaption", {}, age ? `t − ${age}` : "t"));
    }));
  }

  show(fields, bytes, offset, names, shape) {
    const frame = frameBytes(shape);
    this.prepareStack(Math.min(shape.stack, MOST_STACK));
    const older = shape.stack - this.stack.length;
    this.stack.forEach((canvas, i) => drawFrame(canvas, bytes, offset + (older + i) * frame, shape));
    drawFrame(this.large, bytes, offset + (shape.stack - 1) * frame, shape);
    say(this.title, `Env ${fields.env}`);
    const steps = fields.steps === 1 ? "1 step" : `${fields.steps.toLocaleString("en")} steps`;
    const player = fields.is_worker ? `worker ${fields.lane}, process ${fields.owner}`
      : `lane ${fields.lane}, actor ${fields.owner}`;
    say(this.facts, `${player} · ${steps} into its episode`);
    say(this.total, score(fields.return));
    this.showActions(fields, names);
    this.showValues(fields, names);
  }

  showActions(fields, names) {
    this.actions.replaceChildren(...fields.actions.map((action, i) => {
      const name = names[action] ?? String(action);
      const reward = fields.rewards[i];
      const chip = element("span", { class: "chip", title: fields.valid[i] ? name : "begins a new episode" });
      chip.append(fields.valid[i] ? sign(name) : "⟲");
      if (reward) {
        chip.classList.add(reward > 0 ? "gain" : "loss");
        chip.append(element("b", {}, (reward > 0 ? "+" : "") + score(reward)));
        chip.title += `, reward ${score(reward)}`;
      }
      if (fields.ended[i]) {
        chip.classList.add("end");
        chip.title += ", end of the episode";
      }
      return chip;
    }));
  }

  // Q-values: bars from the lowest to the highest, since the differences decide the action. Probabilities: as they are.
  showValues(fields, names) {
    const probable = fields.are_probabilities;
    say(this.name, probable ? "Probabilities" : "Q-values");
    if (!fields.values) {
      this.rows = [];
      this.values.replaceChildren();
      return say(this.note, "none yet");
    }
    if (this.rows.length !== fields.values.length) this.prepareValues(names, fields.values.length);
    const low = Math.min(...fields.values);
    const high = Math.max(...fields.values);
    const best = fields.values.indexOf(high);
    fields.values.forEach((value, i) => {
      const row = this.rows[i];
      const share = probable ? value : high > low ? 0.03 + 0.97 * ((value - low) / (high - low)) : 1;
      row.bar.style.width = `${100 * share}%`;
      say(row.value, probable ? `${(100 * value).toFixed(1)}%` : quantity(value));
      row.line.classList.toggle("best", i === best);
      const taken = i === fields.taken ? "taken" : "";
      const mark = i === best ? (probable ? "likeliest" : "best") : "";
      say(row.mark, [mark, taken].filter(Boolean).join(", "));
    });
    say(this.note, probable ? "the action is drawn from them" : "from lowest to highest");
  }

  prepareValues(names, length) {
    this.rows = Array.from({ length }, (_, i) => {
      const bar = element("div", {});
      const [value, mark] = [element("td", { class: "number" }), element("td", { class: "mark" })];
      const name = names[i] ?? String(i);
      const line = element("tr", {}, element("th", { scope: "row" }, name),
        element("td", { class: "bar" }, bar), value, mark);
      return { line, bar, value, mark };
    });
    this.values.replaceChildren(...this.rows.map((row) => row.line));
  }
}
