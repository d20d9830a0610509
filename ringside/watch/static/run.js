// The page of a run: requests state and pictures, and shows them. A hidden page requests the state alone, every 5 s.

import { Curves } from "./curves.js";
import { Mosaic, showEnv } from "./frames.js";
import { ask, count, duration, element, find, repeat, say, score, showMode } from "./words.js";

const PER_PAGE = 96;
const HIDDEN_SECONDS = 5;

const view = { env: 0, first: 0, paused: false };
const NO_ROWS = () => ({ round: [], episode: [], evaluation: [], own: [] });
let state = null;
let rows = NO_ROWS();
let failures = 0;
let shownAt = [];

const curves = new Curves(find("curves"));
const mosaic = new Mosaic(find("mosaic"), choose);

// --- state and curves

const wakeState = repeat(async () => {
  let pause = 1;
  try {
    const known = Object.values(rows).map((each) => each.length).join();
    update(await (await ask(`state?edition=${state?.curves.edition ?? 0}&known=${known}`)).json());
    failures = 0;
    if (state.more) pause = 0;
  } catch {
    failures += 1;
    pause = Math.min(10, 1 + failures);
  }
  showAlerts();
  return document.hidden ? HIDDEN_SECONDS : pause;
});

function update(fresh) {
  if (fresh.refused) throw new Error(fresh.refused);
  state = fresh;
  if (fresh.curves.fresh) rows = NO_ROWS();
  for (const kind of Object.keys(rows)) rows[kind].push(...fresh.curves[kind]);
  showState();
  if (!fresh.more) curves.update(state, rows);
}

function mode() {
  if (failures > 1) return ["no answer", "lost"];
  if (!state) return ["connecting", ""];
  if (!state.living) return [state.finished ? "finished" : state.prepared ? "stopped" : "not running", "ended"];
  if (!state.prepared || !state.status.steps) return ["starting", "starting"];
  if (view.paused) return ["held", "held"];
  return [state.finished ? "finishing" : state.status.updates ? "learning" : "playing", "live"];
}

function showState() {
  const { status, living } = state;
  say(find("game"), state.title);
  say(find("run"), `${state.name}, ${state.kind}, ${state.envs} envs`);
  say(find("changes"), status.changes.length ? `Changed: ${status.changes.join(", ")}` : "");
  const share = status.total_steps ? Math.min(1, (status.steps ?? 0) / status.total_steps) : 0;
  find("done").style.width = `${100 * share}%`;
  say(find("progress"), [`${count(status.steps)} of ${count(status.total_steps)} steps (${(100 * share).toFixed(1)} %)`,
    status.elapsed !== null && `${duration(status.elapsed)} so far`,
    status.time_left !== null && `${state.left} left`,
    status.stop_at !== null && `--stop-at ${status.stop_at}`,
    living && !status.updates && status.learning_begins && `learning from step ${count(status.learning_begins)} on`,
  ].filter(Boolean).join(" · "));
  showFigures(status);
  status.roles.forEach(showRole);
  [...find("roles").children].slice(status.roles.length).forEach((line) => line.remove());
  say(find("limit"), status.bottleneck?.sentence ?? "");
  const pictures = mosaic.cells.length > 0;
  document.body.classList.toggle("gone-by", !living);
  document.body.classList.toggle("no-pictures", !living && !pictures);
  find("gone").hidden = living;
  say(find("gone"), pictures
    ? "The run has ended: these are the last pictures. Curves and figures are from its files."
    : "No process plays this run now. Pictures need the memory of a living run; curves and figures are from "
      + "its files. The page shows the run again after --resume.");
  if (!living) say(find("rate"), "");
  find("pages").hidden = state.envs <= PER_PAGE;
  say(find("span"), `${view.first} to ${Math.min(view.first + PER_PAGE, state.envs) - 1} of ${state.envs}`);
}

function showFigures(status) {
  const evaluation = status.evaluation?.mean_return ?? rows.evaluation.at(-1)?.[1];
  const mean = [state.mean_name, score(status.mean_return_100)];
  const said = [
    status.running_return === null ? mean : ["return so far", score(status.running_return)],
    ["best return", score(status.best_return)],
    ...(evaluation === undefined ? [] : [["evaluation", score(evaluation)]]),
    ["episodes", count(status.episodes)],
    ["steps/s", count(status.steps_per_second)],
    ["updates", count(status.updates)],
  ];
  find("figures").replaceChildren(...said.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

// Lines are made once, so that bars move.
function showRole(role, i) {
  const box = find("roles");
  const line = box.children[i] ?? box.appendChild(element("div", {}, element("b"), element("span", { class: "quiet" }),
    element("div", { class: "track" }, element("div")), element("span", { class: "number" }), element("span", { class: "again" })));
  const [name, word, track, busy, again] = line.children;
  const node = role.node;
  line.className = `role ${role.name.split(" ")[0]}`;
  say(name, node ? `${role.name} ${node.name ? `on ${node.name}` : "without a node"}` : role.name);
  say(word, role.state);
  track.firstChild.style.width = `${100 * (role.busy ?? 0)}%`;
  const work = node ? `, ${node.lanes} ${node.lanes === 1 ? "lane" : "lanes"}, ${(node.sent / 1e6).toFixed(1)} MB/s to it, `
    + `${(node.received / 1e6).toFixed(1)} from it`
    : role.cores === null ? "" : `, ${role.cores.toFixed(2)} cores`;
  say(busy, role.busy === null ? "" : `busy ${Math.round(100 * role.busy)}%${work}`);
  const events = [[role.restarts, "restart", "restarts"], [node?.losses, "loss", "losses"]];
  say(again, events.filter(([n]) => n).map(([n, one, more]) => `${n} ${n === 1 ? one : more}`).join(", "));
}

function showAlerts() {
  const said = state ? [...state.status.warnings] : [];
  if (failures > 1) said.push("The page's server does not answer. No run needs it; start it again with: python launch.py watch");
  find("alerts").replaceChildren(...said.map((sentence) => element("p", { class: "alert" }, sentence)));
  const [word, look] = mode();
  showMode(word, look);
  document.title = `${state ? `${state.title} · ` : ""}${word} · Ringside`;
}

// --- pictures

const wakePictures = repeat(async () => {
  if (document.hidden || view.paused || !state?.living) return 0.5;
  try {
    const answer = await ask(`pictures?first=${view.first}&count=${PER_PAGE}&env=${view.env}`);
    if (answer.status === 204) {
      wakeState();
      return 1;
    }
    showPictures(await answer.arrayBuffer());
    return Math.max(Number(answer.headers.get("X-Pause")), 1 / Number(find("speed").value));
  } catch {
    return 2;
  }
});

function showPictures(content) {
  const length = new DataView(content).getUint32(0, true);
  const fields = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, length)));
  const frames = new Uint8Array(content, 4 + length);
  const { shape } = fields;
  mosaic.show(fields.mosaic, frames, view.env, shape);
  showEnv(fields.chosen, frames, fields.mosaic.envs, state, shape);
  say(find("shape"), `, ${shape.size} by ${shape.size}, ${shape.channels === 1 ? "gray" : "in color"}`);
  const now = performance.now();
  shownAt = [...shownAt.filter((at) => now - at < 15_000), now];
  const rate = (1000 * (shownAt.length - 1)) / (now - shownAt[0]);
  say(find("rate"), shownAt.length > 2 ? `${rate.toFixed(1)} pictures a second` : "");
}

function choose(env) {
  if (!state) return;
  view.env = Math.min(Math.max(env, 0), state.envs - 1);
  view.first = view.env - (view.env % PER_PAGE);
  mosaic.cells.forEach(({ button }, i) => button.setAttribute("aria-pressed", String(mosaic.first + i === view.env)));
  wakePictures();
}

function changePage(by) {
  if (state?.envs > PER_PAGE) choose(Math.max(view.first + by * PER_PAGE, 0));
}

function hold() {
  view.paused = !view.paused;
  shownAt = [];
  find("pause").setAttribute("aria-pressed", String(view.paused));
  say(find("pause"), view.paused ? "Go on" : "Pause");
  showAlerts();
  wakePictures();
}

const KEYS = {
  ArrowLeft: () => choose(view.env - 1),
  ArrowRight: () => choose(view.env + 1),
  ArrowUp: () => choose(view.env - mosaic.columns),
  ArrowDown: () => choose(view.env + mosaic.columns),
  Home: () => choose(0),
  End: () => choose(Infinity),
  "[": () => changePage(-1),
  "]": () => changePage(1),
  " ": hold,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
  if (!KEYS[event.key] || (event.key === " " && event.target.closest("button:not(.cell)"))) return;
  event.preventDefault();
  KEYS[event.key]();
});
find("pause").addEventListener("click", hold);
find("before").addEventListener("click", () => changePage(-1));
find("after").addEventListener("click", () => changePage(1));
document.addEventListener("visibilitychange", () => { wakeState(); wakePictures(); });
