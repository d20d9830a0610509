// Small line charts in SVG: x is steps, lines may be dashed, points may be dots, y may be logarithmic.

import { element, figure, say, short } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const EDGE = { left: 46, right: 10, top: 10, bottom: 22 };
const HEIGHT = 170;
const FEW = 12;

function shape(tag, attributes) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Round numbers that divide a range into a few parts.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(+at.toPrecision(12));
  return found;
}

function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of [1, 2, 5]) {
      const at = factor * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) found.push(at);
    }
  }
  const every = Math.ceil(found.length / 4);
  return found.filter((_, i) => i % every === 0);
}

export class Chart {
  // series: {name, look: c1 ... c4, dash, dots}; data come with `show`.
  constructor(box, title, series, { log = false, nothing = "nothing yet", floor = null, meaning = "" } = {}) {
    this.series = series;
    this.log = log;
    this.floor = floor;
    this.nothing = nothing;
    this.svg = shape("svg", { role: "img", "aria-label": title });
    this.empty = element("p", { class: "empty quiet" }, nothing);
    this.newest = element("span", { class: "newest" });
    this.reading = element("div", { class: "reading", hidden: "" });
    const legend = element("div", { class: "legend quiet" }, meaning);
    if (series.length > 1) {
      for (const each of series) {
        const key = shape("svg", { width: 22, height: 8, class: `series ${each.look}` });
        key.append(each.dots ? shape("circle", { cx: 11, cy: 4, r: 2.5 }) : this.line("M1 4H21", each));
        legend.append(element("span", {}, key, each.name));
      }
    }
    this.card = element("article", { class: "panel chart" },
      element("div", { class: "head" }, element("h3", {}, title), this.newest), this.svg, this.empty, this.reading, legend);
    box.append(this.card);
    this.data = series.map(() => []);
    this.last = 0;
    this.svg.addEventListener("pointermove", (event) => this.read(event));
    this.svg.addEventListener("pointerleave", () => this.unread());
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  line(path, { dash }) {
    return shape("path", { d: path, fill: "none", ...(dash ? { "stroke-dasharray": dash } : {}) });
  }

  // data: for each series points [x, y]; last: where the x axis ends.
  show(data, last) {
    const usable = ([x, y]) => x !== null && y !== null && Number.isFinite(y) && (!this.log || y > 0);
    this.data = data.map((points) => points.filter(usable));
    this.last = last;
    this.draw();
  }

  bounds() {
    let [low, high] = [Infinity, -Infinity];
    for (const points of this.data) {
      for (const [, y] of points) {
        if (y < low) low = y;
        if (y > high) high = y;
      }
    }
    if (this.floor !== null) low = Math.min(low, this.floor);
    if (this.log) return high > low * 1.2 ? [low / 1.15, high * 1.15] : [low / 1.5, high * 1.5];
    const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
    return [low === this.floor ? low : low - room, high + room];
  }

  draw() {
    const width = this.svg.clientWidth;
    const there = this.data.some((points) => points.length) && this.last > 0;
    this.card.classList.toggle("nothing", !there);
    if (!there || !width) return;
    const [low, high] = this.bounds();
    const scale = this.log ? Math.log : (value) => value;
    const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
    this.x = (value) => EDGE.left + (inner.width * value) / this.last;
    this.y = (value) => EDGE.top + inner.height * (1 - (scale(value) - scale(low)) / (scale(high) - scale(low)));
    const parts = [];
    for (const value of this.log ? decades(low, high) : ticks(low, high, 3)) {
      const y = this.y(value);
      parts.push(shape("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y }));
      parts.push(this.label(figure(value), EDGE.left - 6, y + 3.5, "end"));
    }
    for (const value of ticks(0, this.last, width > 300 ? 4 : 3)) {
      if (value === 0) continue;
      parts.push(this.label(short(value), Math.min(this.x(value), width - 16), HEIGHT - 5, "middle"));
    }
    this.data.forEach((points, i) => parts.push(this.drawn(points, this.series[i])));
    this.svg.replaceChildren(...parts);
    const main = this.data[this.data.length - 1];
    say(this.newest, main.length ? figure(main[main.length - 1][1]) : "");
  }

  label(text, x, y, anchor) {
    const made = shape("text", { x, y, "text-anchor": anchor });
    made.textContent = text;
    return made;
  }

  drawn(points, series) {
    const group = shape("g", { class: `series ${series.look}${series.main ? " main" : ""}` });
    const at = ([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
    if (!series.dots && points.length > 1) group.append(this.line(`M${points.map(at).join("L")}`, series));
    if (series.dots || points.length < FEW) {
      const r = points.length > 200 ? 1.4 : 2.2;
      for (const [x, y] of points) group.append(shape("circle", { cx: this.x(x).toFixed(1), cy: this.y(y).toFixed(1), r }));
    }
    return group;
  }

  // Show the values below the pointer.
  read(event) {
    if (!this.x || this.card.classList.contains("nothing")) return;
    const pointer = event.clientX - this.svg.getBoundingClientRect().left;
    const nearest = (points) => points.reduce((best, point) =>
      best === null || Math.abs(this.x(point[0]) - pointer) < Math.abs(this.x(best[0]) - pointer) ? point : best, null);
    const found = this.data.map(nearest);
    const place = found[found.length - 1] ?? found.find((point) => point !== null);
    if (!place) return;
    const said = found.map((point, i) => point && `${this.series[i].name} ${figure(point[1])}`).filter(Boolean);
    this.reading.hidden = false;
    say(this.reading, `${short(place[0])} steps: ${said.join(", ")}`);
    this.rule?.remove();
    this.rule = shape("line", { class: "rule", x1: this.x(place[0]), x2: this.x(place[0]), y1: EDGE.top, y2: HEIGHT - EDGE.bottom });
    this.svg.append(this.rule);
  }

  unread() {
    this.rule?.remove();
    this.reading.hidden = true;
  }
}
