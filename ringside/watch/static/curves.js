// The charts of a run, and the values of its records that they show.

import { Chart } from "./charts.js";

// In the order of ringside/watch/source.py (SERIES).
const [RETURN, EPSILON, SPEED, LEARNER, INFERENCE, ACTORS, WORKERS, FIRST_METRIC] = [1, 2, 3, 4, 5, 6, 7, 8];
// Roles that may limit a run: without workers, and with them.
const OF_ACTORS = [{ name: "inference alone", place: INFERENCE, look: "c4", dash: "1.5 3.5" },
  { name: "learner alone", place: LEARNER, look: "c3", dash: "9 3 2 3" },
  { name: "actors alone", place: ACTORS, look: "c2", dash: "5 3" }];
const OF_WORKERS = [{ name: "workers alone", place: WORKERS, look: "c2", dash: "5 3" }];
// Colors of the charts of metrics, in turn.
const LOOKS = ["c2", "c4", "c3", "c1"];

export class Curves {
  constructor(box) {
    this.box = box;
    this.charts = new Map();
  }

  // Show data in the chart of a title, which is made when it is asked for first.
  show(title, series, data, options = {}) {
    const key = `${title} ${options.meaning}`; // a metric of the user's own may have the name of another
    if (!this.charts.has(key)) this.charts.set(key, new Chart(this.box, title, series, options));
    this.charts.get(key).show(data, this.last);
  }

  // rows: records by kind; the state adds the present moment, and of an ended run, whose records are thinned, the end.
  update({ status, living, curves }, rows) {
    this.last = Math.max(status.steps ?? 0, rows.round.at(-1)?.[0] ?? 0, rows.evaluation.at(-1)?.[0] ?? 0);
    const upToNow = (place, now) => {
      const points = rows.round.map((row) => [row[0], row[place]]);
      return (living || place === RETURN) && typeof now === "number" ? [...points, [status.steps, now]] : points;
    };
    const title = (name) => name[0].toUpperCase() + name.slice(1);
    this.show("Return", [{ name: "an episode", look: "c5", dots: true }, { name: "mean of up to 100", look: "c1", main: true }],
      [rows.episode, upToNow(RETURN, status.mean_return_100)]);
    this.show("Evaluation", [{ name: "mean return", look: "c3", main: true }], [rows.evaluation],
      { nothing: "no evaluation yet (--eval-every-steps)" });
    // A role with busy share b would alone allow 1/b of the speed (ringside/records/bottleneck.py); before
    // learning begins, the learner waits by design.
    const works = (row, place) => row[place] > 0.005 && (place !== LEARNER || row[FIRST_METRIC] != null);
    const alone = ({ place }) => rows.round.map((row) => [row[0], works(row, place) ? row[SPEED] / row[place] : null]);
    const roles = status.workers ? OF_WORKERS : OF_ACTORS;
    this.show("Steps a second", [...roles, { name: "the run", look: "c1", main: true }],
      [...roles.map(alone), upToNow(SPEED, status.steps_per_second || null)], { log: true });
    curves.metrics.forEach(({ name, label, unit, meaning }, i) => {
      this.show(title(label) + (unit ? ` (${unit})` : ""), [{ name: label, look: LOOKS[i % LOOKS.length], main: true }],
        [upToNow(FIRST_METRIC + i, status.metrics[name])], { nothing: "learning has not begun", meaning });
    });
    if (rows.round.some((row) => row[EPSILON] !== null) || status.epsilon !== null) {
      this.show("Epsilon", [{ name: "epsilon", look: "c1", main: true }], [upToNow(EPSILON, status.epsilon)], { floor: 0 });
    }
    curves.own_metrics.forEach((name, i) => {
      this.show(title(name), [{ name, look: LOOKS[i % LOOKS.length], main: true }],
        [rows.own.map((row) => [row[0], row[i + 1]])], { meaning: "A metric of your own, from a callback." });
    });
  }
}
