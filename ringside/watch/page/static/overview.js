// The page of all runs. It requests only while it is visible.

import { Chart } from "./charts.js";
import { drawFrame, frameBytes, SIDE } from "./frames.js";
import { prepareTheme } from "./theme.js";
import { count, duration, element, say, score, title } from "./words.js";

const HIDDEN_SECONDS = 10;
const LOOKS = ["c1", "c2", "c3", "c4"];
const DASHES = [undefined, "6 3", "1.5 3.5", "9 3 2 3"];
const MOST_SELECTED = LOOKS.length * DASHES.length;
const find = (id) => document.getElementById(id);
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

const runs = new Map();
const cards = new Map();
const selected = new Set();
let ids = [];
let version = 0;

async function ask(what) {
  const answer = await fetch(what, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
  if (!answer.ok) throw new Error(`${what}: ${answer.status}`);
  return answer;
}

async function watchRuns() {
  for (let failures = 0; ;) {
    let pause = HIDDEN_SECONDS;
    if (!document.hidden || !version) {
      try {
        const fresh = await (await ask(`runs?since=${version}`)).json();
        failures = 0;
        update(fresh);
        pause = fresh.pause;
      } catch {
        failures += 1;
        pause = Math.min(10, 1 + failures);
        if (failures > 1) showMode("no answer", "lost");
      }
    }
    await sleep(pause);
  }
}

function showMode(word, look) {
  say(find("mode"), word);
  find("mode").className = `pill ${look}`;
}

function update(fresh) {
  version = fresh.version;
  for (const run of fresh.runs) runs.set(run.id, run);
  for (const id of runs.keys()) if (!fresh.ids.includes(id)) { runs.delete(id); cards.delete(id); selected.delete(id); }
  const changed = fresh.ids.join() !== ids.join();
  ids = fresh.ids;
  const living = ids.filter((id) => runs.get(id).living).length;
  say(find("count"), `${count(ids.length)} under ${fresh.directory}`);
  showMode(living ? `${living} live` : "none live", living ? "live" : "ended");
  for (const run of fresh.runs) showCard(run);
  if (changed || fresh.runs.length) arrange();
  if (fresh.runs.some((run) => selected.has(run.id))) compare();
}

// --- groups: live runs, suites as grids of games, studies with the best trial first, the others

const isTrial = (run) => /^trial-\d+$/.test(run.name);
const byScore = (a, b) => (bestScore(b) ?? -Infinity) - (bestScore(a) ?? -Infinity);

function matches(run) {
  const words = find("filter").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const text = `${run.name} ${run.game} ${run.method} seed ${run.seed} ${run.suite ?? ""} ${run.protocol}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function arrange() {
  const shown = ids.map((id) => runs.get(id)).filter(matches);
  const suites = new Map();
  for (const run of shown) if (run.suite) suites.set(run.suite, [...(suites.get(run.suite) ?? []), run]);
  const groups = [
    ["Live", shown.filter((run) => run.living), false],
    ...[...suites].map(([name, members]) => members.every(isTrial)
      ? [`Study ${name}`, [...members].sort(byScore), false] : [`Suite ${name}`, members, true]),
    ["Ended", shown.filter((run) => !run.living && !run.suite), false],
  ].filter(([, members]) => members.length);
  find("nothing").hidden = groups.length > 0 || !ids.length;
  find("groups").replaceChildren(...groups.map(([name, members, isSuite]) => element("section", {},
    element("h2", { class: "apart" }, name, " ", element("span", { class: "quiet" }, number(members, isSuite, name))),
    element("div", { class: "cards" }, ...(isSuite ? tiles(members) : members.map((run) => cards.get(run.id).card))))));
  drawSparks();
  check();
}

function number(members, isSuite, name) {
  if (name.startsWith("Study ")) return `${members.length} ${members.length === 1 ? "trial" : "trials"}`;
  if (!isSuite) return `${members.length}`;
  const games = new Set(planned(members).map((run) => run.replace(/-\d+$/, ""))).size;
  return `${games} ${games === 1 ? "game" : "games"}, ${planned(members).length} runs`;
}

// Names of the runs of a suite, GAME-SEED, also of those that have not begun.
const planned = (members) => [...new Set([...members[0].planned, ...members.map((run) => run.name)])];

// A tile of a suite: one game, the curves of all seeds, the mean of their scores.
function tiles(members) {
  const games = new Map();
  for (const run of members) games.set(run.game ?? run.name, [...(games.get(run.game ?? run.name) ?? []), run]);
  return [...games].sort(([a], [b]) => a.localeCompare(b)).map(([game, seeds]) => {
    const scores = seeds.map(bestScore).filter((value) => value !== null);
    const mean = scores.length ? scores.reduce((sum, value) => sum + value, 0) / scores.length : null;
    const done = seeds.filter((run) => run.finished).length;
    const spark = element("div", { class: "spark" });
    spark.curves = seeds.map((run) => run.curve ?? []);
    const box = element("input", { type: "checkbox", title: "Compare its seeds" });
    box.seeds = seeds.filter((run) => run.curve).map((run) => run.id);
    box.disabled = !box.seeds.length;
    box.addEventListener("change", () => choose(box.seeds, box.checked));
    const links = seeds.map((run) => element("a", { href: `run/${run.id}/`, class: run.living ? "live" : "" }, `${run.seed ?? run.name}`));
    return element("article", { class: "panel card" },
      element("div", { class: "head" }, element("label", { class: "choose" }, box), element("h3", {}, title(game)), element("span", { class: "newest" }, score(mean))),
      spark, element("p", { class: "quiet" }, `${done} of ${planned(seeds).filter((run) => run.startsWith(`${game}-`)).length} finished · seeds `, ...links.flatMap((link) => [link, " "])));
  });
}

const bestScore = (run) => run.judged ?? run.evaluation ?? run.mean_return_100 ?? null;

// --- cards

function makeCard(id) {
  const box = element("input", { type: "checkbox", title: "Compare" });
  box.addEventListener("change", () => choose([id], box.checked));
  const parts = {
    box, name: element("a", { href: `run/${id}/` }), mode: element("span", { class: "pill" }),
    canvas: element("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": "The newest frame" }),
    spark: element("div", { class: "spark" }), done: element("div", {}), facts: element("p", { class: "quiet" }),
    value: element("span", { class: "newest" }), meaning: element("span", { class: "quiet" }),
  };
  parts.canvas.hidden = true;
  const card = element("article", { class: "panel card" },
    element("div", { class: "head" }, element("label", { class: "choose" }, box, element("span", { class: "key" })), element("h3", {}, parts.name), parts.mode),
    element("div", { class: "body" }, parts.canvas, parts.spark),
    element("div", { class: "track" }, parts.done),
    element("p", { class: "value" }, parts.value, " ", parts.meaning), parts.facts);
  return { card, ...parts };
}

function showCard(run) {
  if (!cards.has(run.id)) cards.set(run.id, makeCard(run.id));
  const card = cards.get(run.id);
  say(card.name, run.refused || isTrial(run) ? run.name : title(run.game));
  card.name.title = run.name;
  if (run.refused) {
    card.box.disabled = true;
    card.name.removeAttribute("href");
    say(card.mode, "not readable");
    say(card.facts, run.refused);
    return;
  }
  const [word, look] = run.living ? ["live", "live"] : run.finished ? ["finished", "ended"] : ["stopped", "ended"];
  say(card.mode, word);
  card.mode.className = `pill ${look}`;
  const meaning = run.judged !== null ? "evaluation of the suite" : run.evaluation !== null ? "evaluation" : "mean of 100";
  say(card.value, score(bestScore(run)));
  say(card.meaning, meaning);
  const share = run.total_steps ? Math.min(1, (run.steps ?? 0) / run.total_steps) : 0;
  card.done.style.width = `${100 * share}%`;
  say(card.facts, [`${run.method}, seed ${run.seed}`, `${count(run.steps)} of ${count(run.total_steps)} steps`,
    ...(run.living && run.steps_per_second ? [`${count(run.steps_per_second)} steps/s`] : []),
    ...(run.living && run.time_left ? [`${duration(run.time_left)} left`] : []), run.name].join(" · "));
  card.spark.curves = [run.curve];
  if (!run.living) card.canvas.hidden = true;
}

// --- small curves, all lines of one box on the same axes

function drawSparks() {
  for (const box of document.querySelectorAll(".spark")) {
    const curves = (box.curves ?? []).filter((points) => points?.length > 1);
    if (!curves.length) {
      box.replaceChildren(element("span", { class: "quiet" }, "no curve yet"));
      continue;
    }
    const all = curves.flat();
    const [last, low, high] = [Math.max(...all.map(([x]) => x)), Math.min(...all.map(([, y]) => y)), Math.max(...all.map(([, y]) => y))];
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 200 84");
    svg.setAttribute("preserveAspectRatio", "none");
    curves.forEach((points, i) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const at = ([x, y]) => `${((200 * x) / last).toFixed(1)} ${(80 - (76 * (y - low)) / (high - low || 1)).toFixed(1)}`;
      path.setAttribute("d", `M${points.map(at).join("L")}`);
      path.setAttribute("class", `series ${LOOKS[i % LOOKS.length]}`);
      path.setAttribute("fill", "none");
      path.setAttribute("vector-effect", "non-scaling-stroke");
      svg.append(path);
    });
    box.replaceChildren(svg, element("span", { class: "quiet low" }, score(+low.toPrecision(3))), element("span", { class: "quiet high" }, score(+high.toPrecision(3))));
  }
}

// --- comparison

let chart = null;

function choose(chosen, on) {
  for (const id of chosen) {
    if (!on) selected.delete(id);
    else if (selected.size < MOST_SELECTED) selected.add(id);
  }
  compare();
}

// A run may have a card, and its game a tile.
function check() {
  for (const [id, card] of cards) card.box.checked = selected.has(id);
  for (const box of document.querySelectorAll("#groups input")) {
    if (box.seeds?.length) box.checked = box.seeds.every((id) => selected.has(id));
  }
}

function compare() {
  check();
  const chosen = [...selected].map((id) => runs.get(id));
  const box = find("compare");
  box.hidden = find("clear").hidden = chosen.length === 0;
  const wanted = chosen.map((run) => run.id).join();
  if (box.dataset.runs !== wanted) {
    box.dataset.runs = wanted;
    box.replaceChildren();
    const look = (i) => ({ look: LOOKS[i % LOOKS.length], dash: DASHES[Math.floor(i / LOOKS.length)] });
    chart = new Chart(box, "Mean return of 100 episodes", chosen.map((run, i) => ({ name: label(run), ...look(i) })), { tells: false });
  }
  if (chosen.length) {
    const last = Math.max(...chosen.flatMap((run) => run.curve.map(([x]) => x)), 0);
    chart.show(chosen.map((run) => run.curve), last);
  }
}

const label = (run) => `${title(run.game)}, ${run.method}, seed ${run.seed} (${run.name})`;

// --- pictures of living runs

async function watchPictures() {
  for (;;) {
    let pause = 2;
    if (!document.hidden && ids.some((id) => runs.get(id).living)) {
      try {
        const answer = await ask("thumbnails");
        pause = Math.max(Number(answer.headers.get("X-Pause")), 0.2);
        const content = await answer.arrayBuffer();
        const length = new DataView(content).getUint32(0, true);
        const { ids: shown, shapes } = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, length)));
        const frames = new Uint8Array(content, 4 + length);
        let offset = 0;
        shown.forEach((id, i) => {
          const [card, begin] = [cards.get(id), offset];
          offset += frameBytes(shapes[i]);
          if (!card) return;
          card.canvas.hidden = false;
          drawFrame(card.canvas, frames, begin, shapes[i]);
        });
      } catch {
        pause = 3;
      }
    }
    await sleep(pause);
  }
}

find("filter").addEventListener("input", arrange);
find("clear").addEventListener("click", () => {
  selected.clear();
  compare();
});
prepareTheme(find("theme"));
watchRuns();
watchPictures();
