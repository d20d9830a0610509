"""Data of the page: from the memory of a run while it lives, from its files before and after; and the runs to show.

Curves are read from the files of records as they grow, in a bounded number of points. Pictures are the current frames
of the envs, and the values of their actions, from the memory of a living run. Actors write while this reads, and
nothing delays them. When the newest `done` tick of a lane is read, the frame after it is complete, and its slot is
overwritten only after a full turn of the ring. Other values may be a tick newer. A stale or torn read spoils one
picture; nothing else depends on it.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from werkzeug.exceptions import NotFound

from ringside.records.bottleneck import Bottleneck, RoleStatus
from ringside.records.metric_names import displayed, metric_of, metrics_of
from ringside.records.metrics import MEAN_OVER, Follower, mean_name
from ringside.records.own_metrics import parse_own
from ringside.watch.attach import attach, living, read_config, runs_below
from ringside.watch.observer import Observer
from ringside.watch.status import Status, kind, left, planned
from shared.config.run_schedule import make_run_schedule
from shared.errors import ConfigError
from shared.files.run_file_names import METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.mailbox import Mailbox
from shared.memory.run_memory import Memory
from shared.process.live import Live
from shared.process.ownership import OWN_METRICS_FILE
from shared.text import headline

MOST_POINTS = 1_000
"""Most points of a series; beyond that, every second point is dropped."""
BUSY = tuple(f"{role}_busy" for role in ("learner", "inference", "actors", "workers"))
SERIES: dict[str, tuple[str, ...]] = {
    "round": ("mean_return_100", "epsilon", "steps_per_second", *BUSY),
    "episode": ("return",),
    "evaluation": ("mean_return",),
    "own": (),
}
"""Values of each kind of record, after its `steps`; the method's metrics follow those of a round. The user's own
metrics are a kind of their own."""


class Series:
    """Rows [steps, value, ...], thinned evenly: every `stride`-th row that was added.

    Attributes:
        rows: those that are drawn.
        metrics: names of the values after the fixed ones.
        last: the newest record, untrusted; empty: there is none.
        edition: changes when viewers must get all rows again: thinned, with another metric, or cleared.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        """Each row has `fields`, then the metrics that records name."""
        self._fields = fields
        self.edition = 0
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.rows: list[list[float | None]] = []
        self.metrics: list[str] = []
        self.last: Mapping[str, Any] = {}
        self._stride, self._added = 1, 0
        self.edition += 1

    def add(self, steps: Any, values: Mapping[str, Any], metrics: Iterable[str] = ()) -> None:
        """Add a row, unless its steps are no number. Former rows get None for metrics that no record has named yet."""
        if finite(steps) is None:
            return
        if new := [name for name in metrics if name not in self.metrics]:
            self.metrics += new
            for row in self.rows:
                row += [None] * len(new)
            self.edition += 1
        self.last = values
        if self._added % self._stride == 0:
            self.rows.append([steps, *(finite(values.get(name)) for name in (*self._fields, *self.metrics))])
        self._added += 1
        if len(self.rows) > MOST_POINTS:
            self.rows = self.rows[::2]
            self._stride *= 2
            self.edition += 1


class Curves:
    """The series of a run, by kind of record."""

    def __init__(self, run_dir: Path) -> None:
        self.series = {kind: Series(fields) for kind, fields in SERIES.items()}
        self._records = Follower(run_dir / METRICS_FILE)
        self._own = Follower(run_dir / OWN_METRICS_FILE, parse_own)

    def read(self) -> bool:
        """Read what was appended since the last call. Returns True if there may be more."""
        found, own = self._records.read(), self._own.read()
        for name, series in self.series.items():
            if own.is_new_file if name == "own" else found.is_new_file:
                series.clear()
        for record in found.records:
            metrics = displayed(metrics_of(record)) if record["kind"] == "round" else ()
            self.series[record["kind"]].add(record["steps"], record, metrics)
        for record in own.records:
            self.series["own"].add(record["steps"], record["values"], record["values"])
        return found.has_more or own.has_more

    def since(self, edition: int, known: Sequence[int]) -> dict[str, Any]:
        """Rows that a viewer lacks. Of `edition` it has `known` rows of each kind, in the order of `SERIES`."""
        newest = sum(series.edition for series in self.series.values())
        same = edition == newest and len(known) == len(SERIES)
        begin = known if same else [0] * len(SERIES)
        return {
            "edition": newest,
            "fresh": not same,
            "metrics": [{"name": name, **metric_of(name)._asdict()} for name in self.series["round"].metrics],
            "own_metrics": [name.replace("_", " ") for name in self.series["own"].metrics],
            **{kind: self.series[kind].rows[first:] for kind, first in zip(SERIES, begin, strict=True)},
        }


def finite(value: Any) -> float | None:
    """The value if it is a finite number; else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


MOST_ENVS = 96
"""Most envs in one mosaic; the page has buttons for the others."""
LAST_ACTIONS = 24
"""Number of recent actions shown for the selected env."""


def mosaic(memory: Memory, first: int, count: int) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Newest frames uint8[n, *frame] of at most `count` envs from `first`, and their returns so far."""
    run_schedule, flat = memory.run_schedule, memory.ring.flat
    envs = np.arange(first, min(first + count, run_schedule.envs))
    ticks = memory.board.lane_done.values[envs // run_schedule.lane_envs]
    frames = flat["frame"][memory.ring.rows(envs, ticks)]
    before = memory.ring.rows(envs, np.maximum(ticks - 1, 0))
    fields = {
        "first": int(first),
        "envs": len(envs),
        "returns": _finite(np.where(ticks > 0, flat["episode_return"][before], 0)),
        "ended": (_ended(memory, before) & (ticks > 0)).tolist(),
    }
    return fields, frames


def selected_env(memory: Memory, env: int) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """One env: its state, and the stack uint8[stack, *frame], oldest first, that decides its next action."""
    run_schedule, flat, board = memory.run_schedule, memory.ring.flat, memory.board
    lane, place = divmod(env, run_schedule.lane_envs)
    tick = int(board.lane_done.values[lane])
    rows, mask = memory.ring.stack_rows(np.array([env]), np.array([tick]))
    stack = flat["frame"][rows[0]]
    stack[~mask[0]] = 0
    history = np.arange(max(0, tick - LAST_ACTIONS), tick)
    past = memory.ring.rows(np.full(len(history), env), history)
    fields = {
        "env": env,
        "lane": lane,
        "owner": int(board.lane_owner[lane]),
        "return": _finite(flat["episode_return"][past])[-1] if len(past) else 0.0,
        "steps": int(flat["episode_steps"][past[-1]]) if len(past) else 0,
        "actions": flat["action"][past].tolist(),
        "rewards": _finite(flat["raw_reward"][past]),
        "valid": (flat["valid"][past] != 0).tolist(),
        "ended": _ended(memory, past).tolist(),
        "are_probabilities": memory.plan.method.samples_actions,
        **_values(memory, lane, place),
    }
    return fields, stack


def _finite(values: NDArray[np.float32]) -> list[float]:
    """Values as finite numbers, which JSON requires."""
    return np.nan_to_num(values).tolist()


def _ended(memory: Memory, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for rows whose tick ended an episode."""
    flat = memory.ring.flat
    return ((flat["terminated"][rows] | flat["truncated"][rows]) & flat["valid"][rows]) != 0


def _values(memory: Memory, lane: int, place: int) -> dict[str, Any]:
    """Action values of inference's last reply, and the action taken; reads the reply's number first.

    Inference writes the values before the reply's number: they belong to this tick or, for one picture, to the next.
    """
    reply = int(memory.mailbox.reply.values[lane])
    values = memory.mailbox.values[lane, place].copy()
    if reply == 0 or not np.isfinite(values).all():
        return {"values": None, "taken": None}
    tick = int(Mailbox.tick_of(np.array([reply]))[0])
    logged = int(memory.board.lane_logged.values[lane]) > tick
    action = memory.ring.field["action"][lane, tick % memory.run_schedule.capacity, place]
    return {"values": values.tolist(), "taken": int(action) if logged else None}


MOST_RUNS = 200
"""Runs that the list shows, the newest ones."""
_OF_ROLES = ("busy", "cores", "restarts")
OUTLINE_POINTS = 120
"""Points of the curve of a run in the list of runs, or up to twice as many."""
_RECORDED = ("steps", "updates", "episodes", "mean_return_100", "best_return", "steps_per_second")


class Source:
    """One run. It releases the memory when the run ends, and attaches again when the run is resumed."""

    def __init__(self, run_dir: Path) -> None:
        """Raises `ConfigError` if there is no run, or it cannot be watched."""
        self.run_dir = run_dir
        self._config = read_config(run_dir)
        self._curves = Curves(run_dir)
        self._attached: tuple[Memory, Live, Observer] | None = None

    def attach(self) -> None:
        """Attach to the run if it lives. Raises `ConfigError` if it cannot be watched."""
        self._config = read_config(self.run_dir)
        if (found := attach(self.run_dir, self._config)) is not None:
            self._attached = *found, Observer(found[0])

    def release_ended(self) -> None:
        """Release the memory of a run that has ended: the kernel keeps all of it while a process maps it."""
        if self._attached is not None and living(self.run_dir) != self._attached[1]:
            self._attached[0].arena.close()
            self._attached = None
            gc.collect()

    def state(self, edition: int = 0, known: Sequence[int] = ()) -> dict[str, Any]:
        """State as JSON values, with the rows of curves that a viewer lacks (`Curves.since`).

        It attaches to the run if it lives. `more` says that the files have rows that were not read yet.
        """
        more, refused = self._curves.read(), []
        self.release_ended()
        if self._attached is None:
            try:
                self.attach()
            except ConfigError as error:
                refused.append(str(error))
        if self._attached is not None:
            memory, live, observer = self._attached
            status, actions = observer.observe(), live.action_names
            finished, prepared = bool(memory.board.finished), bool(memory.board.prepared[0])
            if not prepared:  # a resumed run has its figures in files
                status = replace(self._recorded({}), roles=status.roles, bottleneck=status.bottleneck)
        else:
            summary = read_object(self.run_dir / SUMMARY_FILE)
            status, actions = replace(self._recorded(summary), warnings=tuple(refused)), ()
            finished, prepared = bool(summary.get("finished")), bool(summary)
        return {
            **_shown(status),
            "living": self._attached is not None,
            "finished": finished,
            "prepared": prepared,
            "name": self.run_dir.resolve().name,
            "kind": kind(status),
            "left": left(status),
            "envs": self._config.play.emulators,
            "actions": actions,
            "curves": self._curves.since(edition, known),
            "more": more,
        }

    def outline(self) -> dict[str, Any]:
        """Tile of the list of runs, as JSON values, from the files of the run."""
        self._config, more = read_config(self.run_dir), self._curves.read()
        summary = read_object(self.run_dir / SUMMARY_FILE)
        status = self._recorded({} if living(self.run_dir) else summary)
        rounds, evaluations = (self._curves.series[kind].rows for kind in ("round", "evaluation"))
        curve = {row[0]: row[1] for row in rounds[:: 1 + len(rounds) // OUTLINE_POINTS]}
        curve[status.steps] = status.mean_return_100
        return {
            **_shown(status),
            "finished": bool(summary.get("finished")),
            "method": self._config.algorithm.method,
            "seed": self._config.run.seed,
            "evaluation": evaluations[-1][1] if evaluations else None,
            "curve": list(curve.items()),
            "more": more,
        }

    def _recorded(self, summary: dict[str, Any]) -> Status:
        """Status from the summary, or from the newest record, since a killed run leaves nothing else.

        What neither knows is None.
        """
        rounds, limit, roles = self._curves.series["round"], summary.get("limit"), summary.get("roles")
        last = rounds.last
        found: dict[str, Any] = {name: finite(summary.get(name, last.get(name))) for name in _RECORDED}
        return replace(
            planned(self._config, make_run_schedule(self._config), self.run_dir),
            **found,
            elapsed=finite(summary.get("seconds")),
            metrics={name: finite(last.get(name)) for name in rounds.metrics if last},
            epsilon=finite(last.get("epsilon")),
            bottleneck=Bottleneck("none", str(limit.get("sentence", ""))) if isinstance(limit, dict) else None,
            roles=tuple(
                RoleStatus(name, "ended", *(finite(role.get(word)) for word in _OF_ROLES))  # type: ignore[arg-type]
                for name, role in (roles.items() if isinstance(roles, dict) else ())
                if isinstance(role, dict)
            ),
        )

    def pictures(self, first: int, count: int, env: int) -> tuple[dict[str, Any], list[NDArray[np.uint8]]] | None:
        """Fields and frames of a mosaic of at most `count` envs from `first`, and of one env with its stack.

        Numbers above the range are clipped. None: the run has ended.
        """
        if self._attached is None:
            return None
        memory = self._attached[0]
        last = memory.run_schedule.envs - 1
        mosaic_fields, frames = mosaic(memory, min(first, last), min(max(count, 1), MOST_ENVS))
        env_fields, stack = selected_env(memory, min(env, last))
        shape = memory.run_schedule.frames._asdict()
        return {"mosaic": mosaic_fields, "chosen": env_fields, "shape": shape}, [frames, stack]


def _shown(status: Status) -> dict[str, Any]:
    """A status as JSON values, with the game in a headline, as in "Space Invaders", and the name of the mean return."""
    return {
        "status": asdict(status),
        "title": headline(status.game).replace("_", " ").title(),
        "mean_name": f"mean of up to {MEAN_OVER}" if status.episodes is None else mean_name(status.episodes),
    }


class Runs:
    """Runs below a directory, with numbers that stay theirs."""

    def __init__(self, directory: Path, run: Path | None = None) -> None:
        """`run`: show this one only. Raises `ConfigError` if it cannot be watched."""
        self.directory = directory
        self._only = run
        self._paths = [] if run is None else [run]
        self._sources: dict[Path, Source] = {}
        if run is not None:
            self.source(0).attach()

    def listed(self) -> dict[str, Any]:
        """Runs, the newest first; `seen` changes when the outline of a run may have changed."""
        found = [self._only] if self._only else [path for _, path in sorted(runs_below(self.directory), reverse=True)]
        shown = found[:MOST_RUNS]
        self._paths += [path for path in shown if path not in self._paths]
        runs = [self._listed(path) for path in shown]
        return {"directory": str(self.directory), "all": len(found), "runs": runs}

    def _listed(self, path: Path) -> dict[str, Any]:
        lives, moment = living(path) is not None, 0
        with suppress(OSError):  # removed since it was listed
            moment = sum(each.stat(follow_symlinks=False).st_mtime_ns for each in os.scandir(path))
        told = {"name": str(path.relative_to(self.directory)), "living": lives, "seen": f"{lives} {moment}"}
        return told | {"id": self._paths.index(path)}

    def source(self, number: int) -> Source:
        """The source of a run that was listed. Raises `NotFound`, and `ConfigError` if the run cannot be watched."""
        if not 0 <= number < len(self._paths):
            raise NotFound
        path = self._paths[number]
        if path not in self._sources:
            self._sources[path] = Source(path)
        return self._sources[path]

    def release_ended(self) -> None:
        """Release the memory of runs that have ended."""
        for source in self._sources.values():
            source.release_ended()
