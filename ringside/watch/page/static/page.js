// The page: requests state and pictures, and shows them. It requests only while it is visible.

import { Curves } from "./curves.js";
import { Films } from "./films.js";
import { frameBytes, Mosaic, One } from "./frames.js";
import { prepareTheme, repaint } from "./theme.js";
import { count, duration, element, percent, say, score, title } from "./words.js";

const PER_PAGE = 96;
const HIDDEN_SECONDS = 5;
const find = (id) => document.getElementById(id);

const view = { env: 0, first: 0, paused: false };
let state = null;
const NO_ROWS = () => ({ round: [], episode: [], evaluation: [], own: [] });
let rows = NO_ROWS();
let edition = 0;
let failures = 0;

// --- waiting

function sleeper() {
  let wake = () => {};
  const sleep = (seconds) => new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    wake = () => { clearTimeout(timer); resolve(); };
  });
  return { sleep, wake: () => wake() };
}
const states = sleeper();
const pictures = sleeper();

async function ask(what) {
  const answer = await fetch(what, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
  if (!answer.ok) throw new Error(`${what}: ${answer.status}`);
  return answer;
}

// --- state and curves

async function watchState() {
  for (;;) {
    let pause = 1;
    try {
      const known = Object.values(rows).map((each) => each.length).join();
      const fresh = await (await ask(`state?edition=${edition}&known=${known}`)).json();
      failures = 0;
      update(fresh);
      pause = fresh.pause;
    } catch {
      failures += 1;
      pause = Math.min(10, 1 + failures);
    }
    alerts();
    await states.sleep(document.hidden ? HIDDEN_SECONDS : pause);
  }
}

function update(fresh) {
  const lived = state?.living;
  state = fresh;
  if (fresh.curves.fresh) rows = NO_ROWS();
  edition = fresh.curves.edition;
  for (const kind of Object.keys(rows)) rows[kind].push(...fresh.curves[kind]);
  showState();
  films.show(state.videos);
  if (!fresh.curves.more) curves.show(state, rows);
  if (fresh.living && lived === false) pictures.wake();
}

function mode() {
  if (failures > 1) return ["no answer", "lost"];
  if (!state) return ["connecting", ""];
  if (state.living) {
    if (!state.prepared || !state.status.steps) return ["starting", "starting"];
    if (view.paused) return ["held", "held"];
    return [state.finished ? "finishing" : state.status.learning ? "learning" : "playing", "live"];
  }
  return state.finished ? ["finished", "ended"] : state.prepared ? ["stopped", "ended"] : ["not running", "ended"];
}

function showMode() {
  const [word, look] = mode();
  say(find("mode"), word);
  find("mode").className = `pill ${look}`;
  const name = `${state ? `${title(state.game)} · ` : ""}${word} · Ringside`;
  if (document.title !== name) document.title = name;
}

// The time left and the bound that it is: a run with --stop-at may end before, and one that has not learned may slow down.
function timeLeft(status) {
  const [early, late] = status.stop_at === null ? ["at least ", ""] : ["about ", "at the latest "];
  return `${status.time_left_at_least ? early : late}${duration(status.time_left)} left`;
}

function showState() {
  const status = state.status;
  say(find("game"), title(state.game));
  const schedule = state.schedule === "alternate" ? "turns" : state.schedule;
  const workers = state.workers ? `${state.workers} workers` : "";
  say(find("run"), [state.name, status.suite_place, status.preset, `protocol ${state.protocol}`, schedule, workers,
    `${state.envs} envs`].filter(Boolean).join(", "));
  say(find("changes"), status.changes.length ? `Changed: ${status.changes.join(", ")}` : "");
  const share = status.total_steps ? Math.min(1, (status.steps ?? 0) / status.total_steps) : 0;
  find("done").style.width = `${100 * share}%`;
  say(find("progress"), `${count(status.steps)} of ${count(status.total_steps)} steps (${(100 * share).toFixed(1)} %)`
    + (status.elapsed === null ? "" : ` · ${duration(status.elapsed)} so far`)
    + (status.time_left ? ` · ${timeLeft(status)}` : "")
    + (status.stop_at === null ? "" : ` · --stop-at ${status.stop_at}`)
    + (status.learning === false && status.learning_begins ? ` · learning from step ${count(status.learning_begins)} on` : ""));
  showFigures(status);
  showRoles(status);
  document.body.classList.toggle("gone-by", !state.living);
  document.body.classList.toggle("no-pictures", !state.living && !mosaic.cells.length);
  const gone = find("gone");
  gone.hidden = state.living;
  if (!state.living) {
    say(gone, mosaic.cells.length
      ? "The run has ended: these are the last pictures. Curves and figures are from its files."
      : "No process plays this run now. Pictures need the memory of a living run; curves and figures are from "
        + "its files. The page shows the run again after --resume.");
    say(find("rate"), "");
  }
  const paged = state.envs > PER_PAGE;
  find("pages").hidden = !paged;
  say(find("span"), `${view.first} to ${Math.min(view.first + PER_PAGE, state.envs) - 1} of ${state.envs}`);
}

function showFigures(status) {
  const evaluation = status.evaluation?.mean_return ?? rows.evaluation.at(-1)?.[1];
  const said = [
    typeof status.running_return === "number" ? ["return so far", score(status.running_return)] : [status.mean_name, score(status.mean_return_100)],
    ["best return", score(status.best_return)],
    ["episodes", count(status.episodes)],
    ["steps/s", count(status.steps_per_second)],
    ["updates", count(status.updates)],
  ];
  if (evaluation !== undefined) said.splice(2, 0, ["evaluation", score(evaluation)]);
  const box = find("figures");
  if (box.childElementCount !== said.length) {
    box.replaceChildren(...said.map(() => element("div", {}, element("dt"), element("dd"))));
  }
  said.forEach(([name, value], i) => {
    const [dt, dd] = box.children[i].children;
    say(dt, name);
    say(dd, value);
  });
}

function nodeWork({ lanes, sent, received, audits }) {
  const rates = `${(sent / 1e6).toFixed(1)} MB/s to it, ${(received / 1e6).toFixed(1)} from it`;
  return `, ${lanes} ${lanes === 1 ? "lane" : "lanes"}, ${rates}, ${count(audits)} answers audited`;
}

function showRoles(status) {
  const box = find("roles");
  if (box.childElementCount !== status.roles.length) {
    box.replaceChildren(...status.roles.map(() => element("div", { class: "role" },
      element("b"), element("span", { class: "quiet" }), element("div", { class: "track" }, element("div")),
      element("span", { class: "number" }), element("span", { class: "again" }))));
  }
  status.roles.forEach((role, i) => {
    const [name, word, track, busy, again] = box.children[i].children;
    const node = role.node;
    say(name, node ? `${role.name} ${node.name ? `on ${node.name}` : "without a node"}` : role.name);
    say(word, role.state);
    track.firstChild.style.width = `${100 * (role.busy ?? 0)}%`;
    box.children[i].className = `role ${role.name.split(" ")[0]}`;
    const cores = typeof role.cores === "number" ? `, ${role.cores.toFixed(2)} cores` : "";
    const work = node ? nodeWork(node) : cores;
    say(busy, typeof role.busy === "number" ? `busy ${percent(role.busy)}${work}` : "");
    const events = [[role.restarts, "restart", "restarts"], [node?.losses, "loss", "losses"]];
    say(again, events.filter(([n]) => n).map(([n, one, more]) => `${n} ${n === 1 ? one : more}`).join(", "));
  });
  say(find("limit"), status.bottleneck?.sentence ?? "");
}

function alerts() {
  const said = state ? [...state.status.warnings] : [];
  if (failures > 1) said.push("The page's server does not answer. The run continues; start the server again with: python launch.py watch");
  showMode();
  const box = find("alerts");
  if (box.dataset.said === said.join("\n")) return;
  box.dataset.said = said.join("\n");
  box.replaceChildren(...said.map((sentence) => element("p", { class: "alert" }, sentence)));
}

// --- pictures

const curves = new Curves(find("curves"));
const mosaic = new Mosaic(find("mosaic"), choose);
const one = new One();
const films = new Films(find("evaluations"));
let shownAt = [];

async function watchPictures() {
  for (;;) {
    let pause = HIDDEN_SECONDS;
    if (!document.hidden && !view.paused && state?.living) {
      try {
        const answer = await ask(`pictures?first=${view.first}&count=${PER_PAGE}&env=${view.env}`);
        if (answer.status === 204) {
          states.wake();
          pause = 1;
        } else {
          pause = Math.max(Number(answer.headers.get("X-Pause")), 1 / Number(find("speed").value));
          showPictures(await answer.arrayBuffer());
        }
      } catch {
        pause = 2;
      }
    } else if (!state || !document.hidden) {
      pause = 0.5;
    }
    await pictures.sleep(pause);
  }
}

function showPictures(content) {
  const length = new DataView(content).getUint32(0, true);
  const fields = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, length)));
  const frames = new Uint8Array(content, 4 + length);
  const { shape } = fields;
  mosaic.show(fields.mosaic, frames, view.env, shape);
  one.show(fields.chosen, frames, fields.mosaic.envs * frameBytes(shape), state.actions, shape);
  say(find("shape"), `, ${shape.size} by ${shape.size}, ${shape.channels === 1 ? "gray" : "in color"}`);
  const now = performance.now();
  shownAt = [...shownAt.filter((at) => now - at < 15_000), now];
  const rate = shownAt.length > 2 ? (1000 * (shownAt.length - 1)) / (now - shownAt[0]) : null;
  say(find("rate"), rate === null ? "" : `${rate.toFixed(1)} pictures a second`);
}

function choose(env) {
  if (!state) return;
  view.env = Math.min(Math.max(env, 0), state.envs - 1);
  view.first = view.env - (view.env % PER_PAGE);
  mosaic.cells.forEach((cell, i) => cell.button.setAttribute("aria-pressed", String(mosaic.first + i === view.env)));
  pictures.wake();
}

function changePage(by) {
  if (state && state.envs > PER_PAGE) choose(Math.min(Math.max(view.first + by * PER_PAGE, 0), state.envs - 1));
}

// --- controls

function hold() {
  view.paused = !view.paused;
  shownAt = [];
  find("pause").setAttribute("aria-pressed", String(view.paused));
  say(find("pause"), view.paused ? "Go on" : "Pause");
  alerts();
  pictures.wake();
}

function faster(by) {
  const choice = find("speed");
  choice.selectedIndex = Math.min(Math.max(choice.selectedIndex - by, 0), choice.length - 1);
  shownAt = [];
  pictures.wake();
}

function help() {
  const keys = find("keys");
  if (keys.open) keys.close();
  else keys.showModal();
}

const KEYS = {
  ArrowLeft: () => choose(view.env - 1),
  ArrowRight: () => choose(view.env + 1),
  ArrowUp: () => choose(view.env - mosaic.columns),
  ArrowDown: () => choose(view.env + mosaic.columns),
  Home: () => choose(0),
  End: () => choose((state?.envs ?? 1) - 1),
  "[": () => changePage(-1),
  "]": () => changePage(1),
  " ": hold,
  "+": () => faster(1),
  "-": () => faster(-1),
  t: () => repaint(find("theme")),
  T: () => repaint(find("theme")),
  "?": help,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, video")) return;
  if (find("keys").open && event.key !== "?") return;
  if (event.key === " " && event.target.closest("button:not(.cell)")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
find("pause").addEventListener("click", hold);
find("help").addEventListener("click", help);
find("before").addEventListener("click", () => changePage(-1));
find("after").addEventListener("click", () => changePage(1));
find("speed").addEventListener("change", () => faster(0));
document.addEventListener("visibilitychange", () => { states.wake(); pictures.wake(); });

prepareTheme(find("theme"));
watchState();
watchPictures();
