// The charts of a run, and the values of its records that they show.

import { Chart } from "./charts.js";
import { say } from "./words.js";

// In the order of ringside/watch/page/live_curves.py.
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
    this.returns = new Chart(box, "Return", [
      { name: "an episode", look: "c5", dots: true }, { name: "mean of up to 100", look: "c1", main: true }], { tells: false });
    this.evaluation = new Chart(box, "Evaluation", [{ name: "mean return", look: "c3", main: true }],
      { nothing: "no evaluation yet", tells: false });
    this.box = box;
    this.steps = null;
    this.metrics = [];
    this.own = [];
    this.epsilon = null;
  }

  // The chart of speed, then one for each metric of the method, before that of epsilon, which not every method has.
  prepare(metrics, hasWorkers, hasEpsilon) {
    if (!this.steps) {
      this.roles = hasWorkers ? OF_WORKERS : OF_ACTORS;
      this.steps = new Chart(this.box, "Steps a second", [...this.roles, { name: "the run", look: "c1", main: true }],
        { log: true, tells: false });
    }
    if (hasEpsilon && !this.epsilon) {
      this.epsilon = new Chart(this.box, "Epsilon", [{ name: "epsilon", look: "c1", main: true }], { floor: 0 });
    }
    for (const { label, unit, meaning } of metrics.slice(this.metrics.length)) {
      const title = label[0].toUpperCase() + label.slice(1) + (unit ? ` (${unit})` : "");
      const look = LOOKS[this.metrics.length % LOOKS.length];
      const chart = new Chart(this.box, title, [{ name: label, look, main: true }],
        { nothing: "learning has not begun", meaning });
      this.epsilon?.card.before(chart.card);
      this.metrics.push(chart);
    }
  }

  // A chart for each of the user's own metrics, at the end.
  prepareOwn(names) {
    for (const name of names.slice(this.own.length)) {
      const look = LOOKS[this.own.length % LOOKS.length];
      this.own.push(new Chart(this.box, name[0].toUpperCase() + name.slice(1), [{ name, look, main: true }],
        { meaning: "A metric of your own, from a callback." }));
    }
  }

  // rows: records by kind; the state of a living run adds the present moment.
  show({ status, living, evaluates, workers, has_epsilon: hasEpsilon, curves }, rows) {
    this.prepare(curves.metrics, workers > 0, hasEpsilon);
    this.prepareOwn(curves.own_metrics);
    const last = Math.max(status.steps ?? 0, rows.round.at(-1)?.[0] ?? 0, rows.evaluation.at(-1)?.[0] ?? 0);
    const upToNow = (place, now) => {
      const points = rows.round.map((row) => [row[0], row[place]]);
      return living && typeof now === "number" ? [...points, [status.steps, now]] : points;
    };
    // A role with busy share b would alone allow 1/b of the speed (ringside/load/bottleneck.py); before
    // learning begins, the learner waits by design.
    const works = (row, place) => row[place] > 0.005 && (place !== LEARNER || row[FIRST_METRIC] !== null);
    const alone = ({ place }) => rows.round.map((row) => [row[0], works(row, place) ? row[SPEED] / row[place] : null]);
    this.returns.show([rows.episode, upToNow(RETURN, status.mean_return_100)], last);
    this.evaluation.show([rows.evaluation], last);
    this.steps.show([...this.roles.map(alone), upToNow(SPEED, status.steps_per_second || null)], last);
    curves.metrics.forEach(({ name }, i) => {
      this.metrics[i].show([upToNow(FIRST_METRIC + i, status.metrics.find((each) => each.name === name)?.value)], last);
    });
    this.own.forEach((chart, i) => {
      chart.show([rows.own.filter((row) => row[i + 1] !== null).map((row) => [row[0], row[i + 1]])], last);
    });
    this.epsilon?.show([upToNow(EPSILON, status.epsilon)], last);
    if (!evaluates) say(this.evaluation.empty, "none beside training (--eval-every-steps)");
  }
}
