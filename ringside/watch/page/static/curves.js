// The curves of a run: which charts there are, and what of its records they show.

import { Chart } from "./charts.js";
import { say } from "./words.js";

// In the order of ringside/watch/page/live_curves.py.
const [RETURN, LOSS, MEAN_Q, EPSILON, SPEED, LEARNER, INFERENCE, ACTORS] = [1, 2, 3, 4, 5, 6, 7, 8];

export class Curves {
  constructor(box) {
    this.returns = new Chart(box, "Return", [
      { name: "an episode", look: "c5", dots: true }, { name: "mean of 100", look: "c1", main: true }]);
    this.evaluation = new Chart(box, "Evaluation", [{ name: "mean return", look: "c3", main: true }],
      { nothing: "no evaluation yet" });
    this.steps = new Chart(box, "Steps a second", [
      { name: "inference alone", look: "c4", dash: "1.5 3.5" }, { name: "learner alone", look: "c3", dash: "9 3 2 3" },
      { name: "actors alone", look: "c2", dash: "5 3" }, { name: "the run", look: "c1", main: true }], { log: true });
    const learning = { nothing: "learning has not begun" };
    this.loss = new Chart(box, "Loss", [{ name: "loss", look: "c2", main: true }], learning);
    this.meanQ = new Chart(box, "Mean Q", [{ name: "mean Q", look: "c4", main: true }], learning);
    this.epsilon = new Chart(box, "Epsilon", [{ name: "epsilon", look: "c1", main: true }], { floor: 0 });
  }

  // rows: records by kind; the state of a living run adds the present moment.
  show({ status, living, evaluates }, rows) {
    const last = Math.max(status.steps ?? 0, rows.round.at(-1)?.[0] ?? 0, rows.evaluation.at(-1)?.[0] ?? 0);
    const upToNow = (place, now) => {
      const points = rows.round.map((row) => [row[0], row[place]]);
      return living && typeof now === "number" ? [...points, [status.steps, now]] : points;
    };
    // A role that is busy for the share b of the time would alone allow 1/b of the speed (ringside/watch/status.py); before
    // learning begins, the learner waits by design.
    const works = (row, place) => row[place] > 0.005 && (place !== LEARNER || row[LOSS] !== null);
    const alone = (place) => rows.round.map((row) => [row[0], works(row, place) ? row[SPEED] / row[place] : null]);
    this.returns.show([rows.episode, upToNow(RETURN, status.mean_return_100)], last);
    this.evaluation.show([rows.evaluation], last);
    this.steps.show([alone(INFERENCE), alone(LEARNER), alone(ACTORS), upToNow(SPEED, status.steps_per_second || null)], last);
    this.loss.show([upToNow(LOSS, status.loss)], last);
    this.meanQ.show([upToNow(MEAN_Q, status.mean_q)], last);
    this.epsilon.show([upToNow(EPSILON, status.epsilon)], last);
    if (!evaluates) say(this.evaluation.empty, "none beside training (--eval-every-steps)");
  }
}
