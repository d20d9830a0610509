// The list of runs: a tile for each, read again when its files have changed. It requests only while it is visible.

import { Chart } from "./charts.js";
import { ask, count, element, figure, find, repeat, say, showMode } from "./words.js";

const SECONDS = 3;
const tiles = new Map();
let failures = 0;

class Tile {
  constructor() {
    this.name = element("a");
    this.pill = element("span", { class: "pill" });
    this.facts = element("p", { class: "quiet facts" });
    this.chart = new Chart(find("runs"), this.name, [{ name: "mean return", look: "c1", main: true }]);
    this.chart.card.append(element("p", {}, this.pill), this.facts);
  }

  // Show what the run's files tell. Returns true if there is more to read.
  async update({ id, name, living }) {
    const told = await (await ask(`run/${id}/outline`)).json();
    const [word, look] = told.refused ? ["not readable", "lost"] : living ? ["live", "live"]
      : [told.finished ? "finished" : "stopped", "ended"];
    say(this.pill, word);
    this.pill.className = `pill ${look}`;
    say(this.name, told.refused ? name : `${told.title}, ${name}`);
    if (told.refused) {
      say(this.facts, told.refused);
      return false;
    }
    this.name.href = `run/${id}/`;
    const { status } = told;
    const facts = [[told.evaluation, `evaluation: ${figure(told.evaluation)}`],
      [status.mean_return_100, `${told.mean_name}: ${figure(status.mean_return_100)}`],
      [told.method, `${told.method}, seed ${told.seed}`],
      [status.total_steps, `${count(status.steps)} of ${count(status.total_steps)} steps`],
      [living ? status.steps_per_second : null, `${count(status.steps_per_second)} steps/s`]];
    say(this.facts, facts.filter(([value]) => value !== null).map(([, text]) => text).join(" · "));
    this.chart.show([told.curve], status.steps ?? 0);
    return told.more;
  }
}

async function update() {
  const { directory, all, runs } = await (await ask("runs")).json();
  for (const { id } of runs) if (!tiles.has(id)) tiles.set(id, new Tile());
  const cards = runs.map(({ id }) => tiles.get(id).chart.card);
  const shown = find("runs").children;
  if (shown.length !== cards.length || cards.some((card, i) => shown[i] !== card)) find("runs").replaceChildren(...cards);
  const living = runs.filter((run) => run.living).length;
  say(find("count"), `${count(runs.length)}${all > runs.length ? ` of ${count(all)}` : ""} under ${directory}`);
  showMode(living ? `${living} live` : "none live", living ? "live" : "ended");
  for (const run of runs) {
    const tile = tiles.get(run.id);
    if (tile.seen !== run.seen) tile.seen = (await tile.update(run)) ? "" : run.seen;
  }
}

repeat(async () => {
  try {
    if (!document.hidden) await update();
    failures = 0;
  } catch {
    failures += 1;
    if (failures > 1) showMode("no answer", "lost");
  }
  return SECONDS;
});
