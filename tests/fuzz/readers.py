"""The public readers of Ringside, each as a function from a run directory to parts of an answer; and the command.

A part is a text, most often a digest of weights or of arrays. What a reader answers about a damaged run must consist of
parts that it answers about a whole one, or an older checkpoint of it.
"""

import hashlib
import json
import math
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

import ringside
from ringside.agents import evaluating, stored_weights
from ringside.run import training
from ringside.zoo import catalogue
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.segments import load_boundary, load_segments
from shared.config.settings import Config
from shared.errors import CheckpointError, ConfigError, FatalError
from shared.files.run_file_names import CHECKPOINTS, CONFIG_FILE
from shared.files.strict_json import json_object
from shared.memory.boundary import most_captured_bytes, restore
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.process.live import Live, withdraw
from shared.root import ROOT
from tests.fuzz.workspace import Workspace, flaw_of

ENV = "tests.support.pixel_game:factory"
"""The env of the run `catch`, as its user names it."""
MORE_STEPS = 4_800
"""Total steps of a continued run: more than the finished runs have."""
MOST_MEMORY = 256 << 20
"""Bytes of a run's memory that a case makes; a forger may ask for more, which is refused elsewhere."""


@dataclass(frozen=True)
class Target:
    """A reader, and what may become of it."""

    name: str
    read: Callable[[Workspace, str], list[str]]
    """From the workspace and the name of the whole run that was mutated to the parts of an answer."""
    cases: int
    places: Mapping[str, int] = field(default_factory=lambda: CHECKPOINT_PLACES)
    """Patterns of files that are mutated, with weights."""
    errors: tuple[type[Exception], ...] = (ConfigError,)
    """Errors that it may raise, with a sentence."""
    runs: Mapping[str, int] = field(default_factory=lambda: {"breakout": 4, "catch": 1})
    """Whole runs that are mutated, with weights."""
    unchecked: tuple[str, ...] = ()
    """Patterns of files without a checksum: with what they hold an answer may change."""
    also: Callable[[Workspace, str], list[str]] | None = None
    """Another reader, of whose answers parts may come: what it reads may lie in the place of what this one reads."""
    writes: bool = False
    """True if it may write in the run directory."""
    refuses: bool = False
    """True if it refuses a whole run, too."""
    seconds: float = 10.0
    """The longest that a case may take of a processor."""


def _digest(data: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16]


CHECKPOINT_PLACES = {"checkpoints/checkpoint-*.json": 10, "checkpoints/weights-*.safetensors": 8, "checkpoints": 1}
CHECKPOINT_PLACES |= {"checkpoints/boundary-*.safetensors": 4, "checkpoints/segment-*.ring": 2, "*": 1}
RESUME_PLACES = CHECKPOINT_PLACES | {"checkpoints/boundary-*.safetensors": 8, "checkpoints/segment-*.ring": 8}
WATCH_PLACES = {"live.json": 6, "config.json": 5, "metrics.jsonl": 2, "summary.json": 2, "*": 1}
SUITE_PLACES = {"config.json": 4, "summary.json": 4, "checkpoints/best.safetensors": 3, **CHECKPOINT_PLACES}
ZOO_PLACES = {"config.json": 5, "summary.json": 5, **CHECKPOINT_PLACES}
RECORD_PLACES = {"config.json": 5, "metrics.jsonl": 6, "summary.json": 4, "evaluation-*.json": 3, "*": 1}


def _env(whole: str) -> str | None:
    """The env that a user of the run names, since no file may."""
    return ENV if whole == "catch" else None


# --- weights


def read_weights(workspace: Workspace, whole: str) -> list[str]:
    """Also the checks of `ringside.evaluate` before it plays."""
    weights = stored_weights.weights_at(workspace.run, _env(whole))
    stored_weights.require_actions(weights, stored_weights.play_of(weights))
    return [_digest(weights.flat)]


def read_one_file(name: str, workspace: Workspace, whole: str) -> list[str]:
    return [_digest(stored_weights.weights_at(workspace.run / CHECKPOINTS / name, _env(whole)).flat)]


def read_agent(workspace: Workspace, whole: str) -> list[str]:
    return [str(ringside.load_agent(workspace.run, device="cpu").actions)]


def read_to_begin(workspace: Workspace, whole: str) -> list[str]:
    """A new run that begins with the weights."""
    settings: dict[str, Any] = {"env": ENV} if whole == "catch" else {"game": "breakout"}
    settings |= {"network": "small", "replay_size": 10_000, "run_dir": workspace.work / "new"}
    ringside.plan(ringside.starting_point(None, None).with_settings(**settings, init_from=workspace.run))
    return ["begins"]


# --- runs that go on


def _plan(workspace: Workspace, whole: str) -> Plan:
    env = _env(whole)
    config = ringside.starting_point(None, workspace.run, env).with_settings(total_steps=MORE_STEPS)
    return ringside.plan(config.with_settings(env=env) if env else config)


def read_to_resume(workspace: Workspace, whole: str) -> list[str]:
    """All that a resumed run reads, put where its processes find it."""
    ready = _plan(workspace, whole)
    manifest = find_checkpoint(ready.config.run.resume)
    manifest.require(ready.config)
    if ready.layout.size > MOST_MEMORY:
        return []
    memory = Memory.create(ready)
    with closing(memory.arena):
        arrays = load_boundary(manifest, most_captured_bytes(memory, manifest.evaluations))
        restore(memory, manifest.boundary, arrays, manifest.evaluations)
        load_segments(manifest, memory.run_schedule, memory.ring.field)
        return _of_memory(memory, manifest.boundary)


def _of_memory(memory: Memory, boundary: int) -> list[str]:
    state = memory.learner_snapshots.read(boundary)
    lanes = [memory.lane_snapshots.read(lane, boundary) or b"" for lane in range(memory.run_schedule.lanes)]
    window = [_digest(memory.ring.field[name]) for name in sorted(memory.ring.field)]
    queue = memory.evaluations
    return [
        *(f"{name} {_digest(values)}" for name, values in state.items()),
        *(f"lane {_digest(np.frombuffer(lane, np.uint8))}" for lane in lanes),
        f"ring {' '.join(window)}",
        f"queue {queue.queued.read()} {queue.done.read()} {_digest(queue.step)}",
    ]


def resume_and_write(workspace: Workspace, whole: str) -> list[str]:
    """The launcher's and the scribe's part of a resumed run, which write in its directory."""
    from ringside.records.scribe import Scribe
    from shared.process import child

    ready = _plan(workspace, whole)
    if ready.layout.size > MOST_MEMORY:
        return []
    memory, run_dir = Memory.create(ready), ready.config.run.run_dir
    with closing(memory.arena), training._owned(ready) as checkpoint:
        Live.for_this_process(memory.arena.fd, ["NOOP"]).write(run_dir)
        scribe = Scribe(memory, run_dir, checkpoint=checkpoint)
        parts = _of_memory(memory, memory.board.committed)
        memory.board.saved[0] = -1
        scribe.save()
        scribe.close()
        scribe._files.metrics.close()
        with open(child._open_log(child.log_path(run_dir, "inference")), "ab") as log:
            log.write(b"\n")
        withdraw(run_dir)
    return parts


# --- records


def read_records(workspace: Workspace, whole: str) -> list[str]:
    from ringside.report.comparison import compare
    from ringside.report.records import load

    records = load(workspace.run)
    comparison = compare([records], [])
    for columns in (records.rounds, records.episodes, records.evaluations):
        assert all(column.dtype == np.float64 for column in columns.values())
    assert math.isfinite(records.steps)
    return [f"{records.game} {records.state} {len(comparison.games)}"]


def read_report(workspace: Workspace, whole: str) -> list[str]:
    from ringside.command.report import write_report

    page, left_out = write_report([workspace.run], workspace.work / "report")
    assert not left_out
    assert "<script>mine" not in page.read_text()
    assert json_object((page.parent / "report.json").read_bytes()) is not None, "figures are strict JSON"
    return []


def read_metrics_file(workspace: Workspace, whole: str) -> list[str]:
    """All that follow a file of metrics, and the writer that takes it up again."""
    from ringside.records.metrics import MetricsLog, cut_metrics, read_metrics
    from ringside.records.wandb_track import Unsent
    from ringside.watch.source import Curves

    path = workspace.run / "metrics.jsonl"
    if path.is_file() and path.stat().st_nlink > 1:
        cut_metrics(path, MORE_STEPS)  # as before any run that writes it: the file outside is left to its other name
    curves = Curves(workspace.run)
    curves.read()
    json.dumps(curves.since(0, []), allow_nan=False)
    list(Unsent(path, {}).records())
    errors = []
    try:
        list(read_metrics(path))
    except FatalError as error:
        errors.append(error)
    with closing(MetricsLog(path)) as log:
        json.dumps([log.totals.best_return, log.totals.mean_return_100], allow_nan=False)
    list(read_metrics(path))  # what was no record is gone
    cut_metrics(path, 2)
    list(read_metrics(path))
    if errors:
        raise errors[0]
    return []


# --- looking on


def watch(workspace: Workspace, whole: str) -> list[str]:
    """The page of a run that this process pretends to play."""
    from ringside.watch.attach import runs_below
    from ringside.watch.source import Source

    config, found = workspace.run / CONFIG_FILE, [run_dir for _, run_dir in runs_below(workspace.case)]
    assert found or config.is_symlink() or not config.exists()
    assert all(run_dir.is_relative_to(workspace.run) for run_dir in found)  # a link back is a run in there, too
    source = Source(workspace.run)
    source.attach()
    lives = source.state()["living"]
    for _ in range(2):
        json.dumps([source.state(), source.outline()], default=str, allow_nan=False)
        found = source.pictures(0, 96, 0)
        if found is not None:
            json.dumps(found[0], allow_nan=False)
    with patch("ringside.watch.source.living", return_value=None):
        source.release_ended()
    assert source._attached is None
    return ["lives" if lives else "has ended"]


# --- suites and the zoo


def read_suite(workspace: Workspace, whole: str) -> list[str]:
    """The checks of a suite before it continues."""
    from ringside.command.suite import make_jobs

    config = Config.from_json(json.loads((workspace.runs / "breakout" / "config.json").read_bytes()))
    (workspace.run.parent / "breakout-1").symlink_to(workspace.run)
    (job,) = make_jobs(config, ["breakout"], 1, workspace.run.parent)
    parts = [f"finished {job.finished}", f"begun {job.begun}"]
    for kind, (load, version) in job.weights().items():
        assert isinstance(version, int)
        parts.append(f"{kind} {load.name}")
    return parts


def add_to_zoo(workspace: Workspace, whole: str) -> list[str]:
    """An entry of the zoo, made of the run; the evaluation itself is left out."""
    from ringside.agents.zoo_entries import add_to_zoo

    def evaluate(load: Path, *, env: str | None, plugin: str | None, **_: Any) -> dict[str, Any]:
        weights = stored_weights.weights_at(load, env, plugin)
        plain = {"game": weights.game, "protocol": weights.protocol, "version": weights.version, "eval_epsilon": 0.0}
        return plain | {"mean": 1.0, "sd": 0.0, "episodes": 1, "seed": 1, "eval_actions": "greedy"}

    place = workspace.work / "zoo"
    place.mkdir()
    with patch.object(catalogue, "ZOO", place), patch.object(evaluating, "evaluate", evaluate):
        add_to_zoo(workspace.run, name="fuzzed", env=_env(whole), device="cpu")
        assert catalogue.names() == ("fuzzed",)
        return [_digest(stored_weights.weights_at("fuzzed", _env(whole)).flat)]


ANY, DISK = ("*",), (FatalError, OSError)
BEST_PLACES = {"checkpoints/best.safetensors": 9, "checkpoints": 1}
TARGETS = (
    Target("weights", read_weights, 2_200),
    Target("best weights", partial(read_one_file, "best.safetensors"), 900, BEST_PLACES, also=read_weights),
    Target("one manifest", partial(read_one_file, "checkpoint-00000005.json"), 400),
    Target("load_agent", read_agent, 300),
    Target("init_from", read_to_begin, 200),
    Target("resume", read_to_resume, 1_200, RESUME_PLACES, (ConfigError, CheckpointError)),
    Target(
        "resume and write",
        resume_and_write,
        400,
        RESUME_PLACES | {"logs": 1, "logs/*": 2, "tensorboard": 1, "tensorboard/*": 1, "metrics.jsonl": 4, "*": 4},
        DISK,
        unchecked=("metrics.jsonl", "checkpoints/best*", "."),
        writes=True,
    ),
    Target("records", read_records, 1_700, RECORD_PLACES, (ConfigError,), unchecked=ANY),
    Target("report", read_report, 50, RECORD_PLACES, unchecked=ANY, seconds=100.0),
    Target("metrics", read_metrics_file, 1_400, {"metrics.jsonl": 1}, DISK, unchecked=ANY, writes=True),
    Target("watch", watch, 900, WATCH_PLACES, runs={"living": 1}, unchecked=ANY),
    Target("suite", read_suite, 300, SUITE_PLACES, runs={"breakout": 1}, unchecked=ANY),
    Target("zoo", add_to_zoo, 300, ZOO_PLACES, unchecked=("config.json", "summary.json")),
)


# --- the command

_OWN_SESSION: dict[str, Any] = {
    **{"start_new_session": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
    **{"text": True, "errors": "backslashreplace"},
    "preexec_fn": partial(resource.setrlimit, resource.RLIMIT_AS, 2 * (resource.RLIM_INFINITY,)),
}
_SERVED = re.compile(r"http://127\.0\.0\.1:\d+/\S+/")


def run_command(words: str, workspace: Workspace, whole: str) -> list[str]:
    """Run a command, with names in braces; one that serves is asked for the list and a run, then interrupted.

    Raises:
        ConfigError: its refusal.
    """
    if words == "watch":  # the runs of the directory
        (workspace.work / "runs").symlink_to(workspace.case)
    command = [sys.executable, str(ROOT / "launch.py")]
    command += shlex.split(words.format(run=workspace.run, work=workspace.work))
    more = {"TMPDIR": str(workspace.temporary), "PYTHONPATH": str(workspace.code), "COLUMNS": "160"}
    process = subprocess.Popen(command, cwd=workspace.work, env=os.environ | more, **_OWN_SESSION)
    printed = ""
    try:
        for line in process.stdout if words.startswith("watch") else ():  # which ends with the process
            printed += line
            if served := _SERVED.search(line):
                for path in ("runs", "run/0/outline", "run/0/state"):
                    _ask(served[0].removesuffix("run/0/") + path)
                process.send_signal(signal.SIGINT)
        rest, said = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    flaws = [flaw for line in (printed + rest + said).splitlines() if line.strip() and (flaw := flaw_of(line))]
    assert not flaws, f"{flaws[0]}: {said[-400:]!a}"
    assert process.returncode in (0, 1, 2), f"exit code {process.returncode}"
    assert process.returncode != 2 or re.fullmatch(r"launch\.py: [^\n]+\n", said), f"not one sentence: {said!a}"
    if process.returncode:
        raise ConfigError(f"It ended with {process.returncode}.")
    return []


def _ask(address: str) -> None:
    """Ask a page, which answers the list, and a run if it knows it."""
    try:
        with urlopen(address, timeout=60.0) as answer:
            json.loads(answer.read())
    except HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND or address.endswith("/runs"):
            raise


def _target(name: str, words: str, cases: int, places: dict[str, int], *, refuses: bool = False) -> Target:
    more = {"unchecked": ANY, "writes": True, "seconds": 200.0, "refuses": refuses}
    return Target(f"launch.py, {name}", partial(run_command, words), cases, places, runs={"catch": 1}, **more)


_LOAD = f"--load {{run}} --env {ENV} --device cpu"
_RESUME = f"--resume {{run}} --env {ENV} --plain"
_ZOO_PLACES = {"config.json": 3, "summary.json": 3, **RESUME_PLACES}
_PLAYED_PLACES = RESUME_PLACES | {"logs": 1, "metrics.jsonl": 2, "*": 2}
COMMANDS = (
    _target("eval", f"eval {_LOAD} --episodes 1", 70, RESUME_PLACES),
    _target("record", f"play {_LOAD} --episodes 2 --video {{work}}/videos.mp4", 15, RESUME_PLACES),
    _target("play", f"play {_LOAD} --episodes 1 --video {{work}}/video.gif", 10, RESUME_PLACES),
    _target("report", "report {run} --out {work}/report", 60, RECORD_PLACES),
    _target("watch", "watch {run}", 50, RECORD_PLACES | {"live.json": 4}),
    _target("watch all", "watch", 10, RECORD_PLACES),
    # All that is read before a start; the run has played more than it is told to.
    _target("resume", f"{_RESUME} --total-steps 1_440", 60, RESUME_PLACES, refuses=True),
    _target("resume and play", f"{_RESUME} --total-steps {MORE_STEPS}", 10, _PLAYED_PLACES),
    # Up to the name, which the zoo does not take: nothing is added to it.
    _target("zoo", f"zoo --add {{run}} --env {ENV} --name 'No name'", 20, _ZOO_PLACES, refuses=True),
)
