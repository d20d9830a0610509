// Small line charts in SVG: x is steps, lines may be dashed, points may be dots, y may be logarithmic.

import { element, figure, figures, say, short } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const EDGE = { left: 46, right: 10, top: 10, bottom: 22 };
const HEIGHT = 170;
const FEW = 12;

function shape(tag, attributes) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
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

// The same on a logarithmic axis: 1, 2 and 5 times powers of ten, with both ends.
function decades(low, high) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    all.push(...[1, 2, 5].map((factor) => +(factor * 10 ** power).toPrecision(12)));
  }
  const found = all.filter((at, i) => (all[i + 1] ?? Infinity) > low && (all[i - 1] ?? 0) <= high);
  const [every, last] = [Math.ceil(found.length / 5), found.length - 1];
  return found.filter((_, i) => i === last || (i % every === 0 && i <= last - every));
}

// Steps from 0 to the last, without round numbers that stand too close to the last.
function stepsTo(last, wanted) {
  return [...ticks(0, last, wanted).filter((at) => at <= last * (1 - 0.4 / wanted)), last];
}

export class Chart {
  // series: {name, look: c1 ... c4, dash, dots}; data come with `show`; tells: the newest value stands above.
  constructor(box, title, series, { log = false, nothing = "nothing yet", floor = null, meaning = "", tells = true } = {}) {
    this.series = series;
    this.log = log;
    this.floor = floor;
    this.tells = tells;
    this.svg = shape("svg", { role: "img", "aria-label": title });
    this.empty = element("p", { class: "empty quiet" }, nothing);
    this.newest = element("span", { class: "newest" });
    this.reading = element("div", { class: "reading", hidden: "" });
    const legend = element("div", { class: "legend quiet" }, log ? "logarithmic axis" : meaning);
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

  // Ticks of the y axis, from its lower to its upper end.
  levels() {
    let [low, high] = [this.floor ?? Infinity, -Infinity];
    for (const points of this.data) {
      for (const [, y] of points) {
        if (y < low) low = y;
        if (y > high) high = y;
      }
    }
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
    const [low, high] = [levels[0], levels.at(-1)];
    const scale = this.log ? Math.log : (value) => value;
    const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
    this.x = (value) => EDGE.left + (inner.width * value) / this.last;
    this.y = (value) => EDGE.top + inner.height * (1 - (scale(value) - scale(low)) / (scale(high) - scale(low)));
    const parts = [];
    figures(levels).forEach((text, i) => {
      const y = this.y(levels[i]);
      parts.push(shape("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y }));
      parts.push(this.label(text, EDGE.left - 6, y + 3.5, "end"));
    });
    const steps = stepsTo(this.last, width > 300 ? 4 : 3);
    figures(steps).forEach((text, i) => {
      const end = i === steps.length - 1;
      parts.push(this.label(text, end ? width - 2 : this.x(steps[i]), HEIGHT - 5, end ? "end" : "middle"));
    });
    this.data.forEach((points, i) => parts.push(this.drawn(points, this.series[i])));
    this.svg.replaceChildren(...parts);
    const main = this.data[this.data.length - 1];
    say(this.newest, this.tells && main.length ? figure(main[main.length - 1][1]) : "");
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
