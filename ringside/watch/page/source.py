"""Data of the page: from a run's memory while it lives, from its files when it has ended."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.recording.totals import MEAN_OVER, mean_name
from ringside.watch.attach import attach, read_config
from ringside.watch.observer import Observer
from ringside.watch.page.live_curves import SERIES, Curves, finite, metric_rows
from ringside.watch.page.pictures import mosaic, selected_env
from ringside.watch.status import suite_place
from shared.config.method_declaration import method_declaration
from shared.config.presets import nearest_preset
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError, FileError
from shared.files.plain_files import read_bytes
from shared.files.run_file_names import METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.run_memory import Memory
from shared.process.live import Live, LiveError
from shared.process.ownership import VIDEOS, evaluation_video

MOST_ENVS = 96
"""Most envs in one mosaic; the page has buttons for the others."""
MOST_VIDEO_BYTES = 64 << 20
_PLAIN = (
    "steps",
    "updates",
    "episodes",
    "mean_return_100",
    "best_return",
    "steps_per_second",
    "samples_per_step",
)
_OF_ROLES = ("busy", "cores", "restarts")


class Source:
    """One run. It releases the memory when the run ends, and attaches again when the run is resumed.

    Several threads may use it: the page of the run, that of all runs, and the server's maintenance.
    """

    def __init__(self, run_dir: Path) -> None:
        """Attach if the run lives. Raises `ConfigError` if there is no run, or it cannot be watched."""
        self.run_dir = run_dir
        self._config = read_config(run_dir)
        method = method_declaration(self._config.algorithm.method)
        self._has_epsilon = method.has_epsilon
        self._curves = Curves(run_dir / METRICS_FILE, method.metrics)
        self._live: Live | None = None
        self._memory: Memory | None = None
        self._observer: Observer | None = None
        self._refused: str | None = None
        self._lock = threading.RLock()
        self._attach()

    @property
    def config(self) -> Config:
        """Configuration of the run."""
        return self._config

    @property
    def lives(self) -> bool:
        """True while the run lives."""
        return self._memory is not None

    def _attach(self) -> None:
        found = attach(self.run_dir, self._config)
        if found is not None:
            self._memory, self._live = found
            self._observer = Observer(self._memory)

    def refresh(self) -> None:
        """Detach from a run that has ended; attach to one that lives again."""
        with self._lock:
            if self._is_attached_to_the_living():
                return
            self.detach()
            try:
                self._config = read_config(self.run_dir)
                self._attach()
                self._refused = None
            except ConfigError as error:
                self._refused = str(error)

    def release_ended(self) -> None:
        """Release the memory of a run that has ended, though no viewer asks. A source in use is left alone."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_attached_to_the_living():
                    self.detach()
            finally:
                self._lock.release()

    def _is_attached_to_the_living(self) -> bool:
        """True if the run of the memory that is mapped lives."""
        if self._live is None:
            return False
        try:
            return Live.read(self.run_dir) == self._live
        except (LiveError, OSError):
            return self._live.lives  # its directory may have moved; the memory is still there

    def detach(self) -> None:
        """Release the memory, if any is mapped: the kernel keeps all of it while a process maps it."""
        with self._lock:
            if self._memory is not None:
                self._memory.arena.close()
                self._memory = self._observer = self._live = None
                gc.collect()

    def state(self) -> dict[str, Any]:
        """State without curves and pictures, as JSON values."""
        with self._lock:
            return self._state()

    def _state(self) -> dict[str, Any]:
        config, live = self._config, self._live
        told = self._now() if self.lives else self._past()
        episodes = told["status"]["episodes"]
        told["status"]["mean_name"] = f"mean of up to {MEAN_OVER}" if episodes is None else mean_name(int(episodes))
        return {
            "living": self.lives,
            "name": self.run_dir.resolve().name,
            "game": config.play.played,
            "protocol": config.play.protocol,
            "schedule": config.learn.schedule,
            "envs": config.play.emulators,
            "workers": config.play.workers,
            "actions": list(live.action_names) if live is not None else [],
            "evaluates": bool(config.evaluate.eval_every_steps),
            "has_epsilon": self._has_epsilon,
            "videos": self._videos(),
            **told,
        }

    def _videos(self) -> list[list[float]]:
        """Number, steps and mean return of the evaluations that have a video, the newest first."""
        if not (self.run_dir / VIDEOS).is_dir():
            return []
        paths = [(evaluation_video(self.run_dir, each[0]), each) for each in reversed(self._curves.evaluations)]
        return [list(each) for path, each in paths if path.is_file() and not path.is_symlink()]

    def video(self, number: int) -> bytes | None:
        """The video of an evaluation; None: there is none that can be read."""
        try:
            return read_bytes(evaluation_video(self.run_dir, number), MOST_VIDEO_BYTES)
        except (OSError, FileError):
            return None

    def _now(self) -> dict[str, Any]:
        assert self._memory is not None, "the run lives"
        assert self._observer is not None, "the run lives"
        board = self._memory.board
        status = asdict(self._observer.observe())
        del status["run_dir"], status["checkpoint"]
        status["metrics"] = metric_rows(status["metrics"])
        return {"status": status, "finished": bool(board.finished), "prepared": bool(board.prepared[0])}

    def _past(self) -> dict[str, Any]:
        summary = read_object(self.run_dir / SUMMARY_FILE)
        newest = self._curves.series["round"].newest
        metrics = self._curves.metrics
        last = dict(zip(("steps", *SERIES["round"], *metrics), newest, strict=True)) if newest else {}
        status = _ended_status(self._config, summary, last, metrics if newest else ())
        status["warnings"] = [self._refused] if self._refused else []
        status["suite_place"] = suite_place(self.run_dir)
        return {"status": status, "finished": bool(summary.get("finished")), "prepared": bool(summary)}

    def curves(self, edition: int, known: list[int]) -> dict[str, Any]:
        """Rows that a viewer lacks (`Curves.since`), and `more` if the file has unread ones."""
        with self._lock:
            more = self._curves.read()
            return {**self._curves.since(edition, known), "more": more}

    def outline(self) -> tuple[list[list[float | None]], list[list[float | None]]]:
        """Rows [steps, value, ...] of the mean of returns, and of evaluations, as far as they were read."""
        with self._lock:
            series = self._curves.series
            newest, rounds = series["round"].newest, series["round"].rows
            return [*rounds, *([] if newest is None else [newest])], list(series["evaluation"].rows)

    def pictures(self, first: int, count: int, env: int) -> tuple[dict[str, Any], list[NDArray[np.uint8]]] | None:
        """Mosaic from env `first`, one env with its stack, and the shape of frames; None: the run has ended.

        Numbers out of range are clipped.
        """
        with self._lock:
            if self._memory is None:
                return None
            last = self._memory.run_schedule.envs - 1
            mosaic_fields, frames = mosaic(self._memory, min(max(first, 0), last), min(max(count, 1), MOST_ENVS))
            env_fields, stack = selected_env(self._memory, min(max(env, 0), last))
            shape = self._memory.run_schedule.frames._asdict()
            return {"mosaic": mosaic_fields, "chosen": env_fields, "shape": shape}, [frames, stack]


def _ended_status(
    config: Config, summary: dict[str, Any], last: dict[str, float | None], metrics: Sequence[str]
) -> dict[str, Any]:
    """Status of a run that has ended: fields of `ringside.watch.status.Status` that files provide, as JSON values.

    Args:
        config: of the run.
        summary: its `summary.json`; empty where there is none.
        last: values of the newest record of a round, by name; a killed run leaves nothing else.
        metrics: names of the method's metrics in that record.
    """
    run_schedule = make_run_schedule(config)
    preset, changes = nearest_preset(config)
    limit, roles = summary.get("limit"), summary.get("roles")
    return {name: finite(summary.get(name, last.get(name))) for name in _PLAIN} | {
        "preset": preset,
        "changes": changes,
        "stop_at": config.run.stop_at,
        "total_steps": run_schedule.rounds * run_schedule.round_steps,
        "elapsed": finite(summary.get("seconds")),
        "time_left": None,
        "metrics": metric_rows({name: last[name] for name in metrics}),
        "epsilon": last.get("epsilon"),
        "evaluation": None,
        "bottleneck": {"sentence": str(limit.get("sentence", ""))} if isinstance(limit, dict) else None,
        "roles": [
            {"name": name, "state": "ended", **{word: finite(role.get(word)) for word in _OF_ROLES}}
            for name, role in (roles.items() if isinstance(roles, dict) else ())
            if isinstance(role, dict)
        ],
        "warnings": [],
    }
