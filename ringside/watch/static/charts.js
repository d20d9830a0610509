// Small line charts in SVG: x is steps, lines may be dashed, points may be dots, y may be logarithmic.

import { element, figure, figures, say } from "./words.js";

const EDGE = { left: 46, right: 10, top: 10, bottom: 22 };
const HEIGHT = 170;
const FEW = 12; // points, which are marked

function shape(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  return made;
}

// Round numbers from below a range to above it, a few steps apart.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
}

// The same on a logarithmic axis: powers of ten, and 2 and 5 times those where they are few.
function decades(low, high) {
  const factors = high > 100 * low ? [1] : [1, 2, 5];
  const first = Math.floor(Math.log10(low));
  const all = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) =>
    factors.map((factor) => +(factor * 10 ** (first + i)).toPrecision(12))).flat();
  return all.slice(all.findLastIndex((at) => at <= low), 1 + all.findIndex((at) => at >= high && at > low));
}

export class Chart {
  // series: {name, look: c1 ... c4, dash, dots, main}; data come with `show`; the newest value of the last stands above.
  constructor(box, title, series, { log = false, nothing = "nothing yet", floor = null, meaning = "" } = {}) {
    Object.assign(this, { series, log, floor, last: 0, data: series.map(() => []) });
    this.svg = shape("svg", { role: "img", "aria-label": title.textContent ?? title });
    this.empty = element("p", { class: "empty quiet" }, nothing);
    this.newest = element("span", { class: "newest" });
    const legend = element("div", { class: "legend quiet" }, log ? "logarithmic axis" : meaning);
    for (const each of series.length > 1 ? series : []) {
      const key = shape("svg", { width: 22, height: 8, class: `series ${each.look}` });
      key.append(each.dots ? shape("circle", { cx: 11, cy: 4, r: 2.5 }) : shape("path", { d: "M1 4H21", "stroke-dasharray": each.dash }));
      legend.append(element("span", {}, key, each.name));
    }
    this.card = element("article", { class: "panel chart" },
      element("div", { class: "head" }, element("h3", {}, title), this.newest), this.svg, this.empty, legend);
    box.append(this.card);
    this.svg.addEventListener("pointermove", (event) => this.tell(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.tell());
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // data: for each series points [x, y]; last: where the x axis ends.
  show(data, last) {
    const usable = ([x, y]) => x !== null && y !== null && (!this.log || y > 0);
    this.data = data.map((points) => points.filter(usable));
    this.last = last;
    this.draw();
  }

  // Ticks of the y axis, from its lower to its upper end.
  levels() {
    const all = this.data.flat().map(([, y]) => y);
    const low = all.reduce((a, b) => Math.min(a, b), this.floor ?? Infinity);
    const high = all.reduce((a, b) => Math.max(a, b), -Infinity);
    if (this.log) return decades(low, high);
    const room = high > low ? 0 : Math.abs(high) * 0.1 || 1;
    return ticks(low === this.floor ? low : low - room, high + room, 4);
  }

  draw() {
    const width = this.svg.clientWidth;
    const there = this.data.some((points) => points.length) && this.last > 0;
    this.card.classList.toggle("nothing", !there);
    if (!there || !width) return;
    const levels = this.levels();
    const scale = this.log ? Math.log : (value) => value;
    const [low, high] = [scale(levels[0]), scale(levels.at(-1))];
    const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
    this.x = (value) => EDGE.left + (inner.width * value) / this.last;
    const y = (value) => EDGE.top + inner.height * (1 - (scale(value) - low) / (high - low));
    const parts = figures(levels).flatMap((text, i) => [
      shape("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(levels[i]), y2: y(levels[i]) }),
      this.label(text, EDGE.left - 6, y(levels[i]) + 3.5, "end")]);
    // Round numbers, but for those too close to the last step.
    const steps = [...ticks(0, this.last, width > 300 ? 4 : 3).filter((at) => at <= 0.9 * this.last), this.last];
    figures(steps).forEach((text, i) => {
      const end = i === steps.length - 1;
      parts.push(this.label(text, end ? width - 2 : this.x(steps[i]), HEIGHT - 5, end ? "end" : "middle"));
    });
    this.data.forEach((points, i) => parts.push(this.drawn(points, this.series[i], y)));
    this.svg.replaceChildren(...parts);
    this.tell();
  }

  label(text, x, y, anchor) {
    const made = shape("text", { x, y, "text-anchor": anchor });
    made.textContent = text;
    return made;
  }

  drawn(points, { look, main, dots, dash }, y) {
    const group = shape("g", { class: `series ${look}${main ? " main" : ""}` });
    const places = points.map((point) => [this.x(point[0]).toFixed(1), y(point[1]).toFixed(1)]);
    if (!dots && points.length > 1) {
      group.append(shape("path", { d: `M${places.map((place) => place.join(" ")).join("L")}`, "stroke-dasharray": dash }));
    }
    if (dots || points.length < FEW) {
      for (const [cx, cy] of places) group.append(shape("circle", { cx, cy, r: points.length > 200 ? 1.4 : 2.2 }));
    }
    return group;
  }

  // Say the newest value, or the values left of the pointer.
  tell(pointer) {
    const before = (points) => points.findLast(([x]) => pointer === undefined || this.x(x) <= pointer);
    const found = this.data.map((points) => before(points)?.[1]);
    const named = this.series.map(({ name }, i) => `${name} ${figure(found[i])}`).filter((_, i) => found[i] !== undefined);
    say(this.newest, pointer === undefined ? figure(found.at(-1)) : named.join(", "));
  }
}
