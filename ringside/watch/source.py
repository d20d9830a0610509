"""Data of the page: from the memory of a run while it lives, from its files before and after; and the runs to show."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from werkzeug.exceptions import NotFound

from ringside.records.bottleneck import Bottleneck
from ringside.records.role_status import RoleStatus
from ringside.records.totals import MEAN_OVER, mean_name
from ringside.watch.attach import attach, is_living, read_config, runs_below
from ringside.watch.line import kind, left
from ringside.watch.live_curves import Curves, finite
from ringside.watch.observer import Observer
from ringside.watch.pictures import pictures
from ringside.watch.status import Status, planned
from shared.config.run_schedule import make_run_schedule
from shared.errors import ConfigError
from shared.files.plain_files import read_bytes
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.run_memory import Memory
from shared.process.live import Live, LiveError
from shared.process.ownership import VIDEOS, evaluation_video
from shared.text import headline

MOST_RUNS = 200
"""Runs that the list shows, the newest ones."""
MOST_VIDEOS = 100
_OF_ROLES = ("busy", "cores", "restarts")
MOST_VIDEO_BYTES = 64 << 20
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
        if self._attached is not None and not self._still_lives(self._attached[1]):
            self._attached[0].arena.close()
            self._attached = None
            gc.collect()

    def _still_lives(self, live: Live) -> bool:
        """True if the run that was attached lives."""
        try:
            return Live.read(self.run_dir) == live
        except (LiveError, OSError):
            return live.lives  # its directory may have moved; the memory is still there

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
            "videos": self._videos(),
            "curves": self._curves.since(edition, known),
            "more": more,
        }

    def outline(self) -> dict[str, Any]:
        """Tile of the list of runs, as JSON values, from the files of the run."""
        self._config, more = read_config(self.run_dir), self._curves.read()
        summary = read_object(self.run_dir / SUMMARY_FILE)
        status = self._recorded({} if is_living(self.run_dir) else summary)
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

    def _videos(self) -> list[list[float | None]]:
        """Steps, mean return and number of the newest evaluations that have a video, the newest first."""
        rows = self._curves.series["evaluation"].rows if (self.run_dir / VIDEOS).is_dir() else []
        paths = [(evaluation_video(self.run_dir, int(row[2] or 0)), row) for row in rows[: -MOST_VIDEOS - 1 : -1]]
        return [row for path, row in paths if path.is_file() and not path.is_symlink()]

    def video(self, number: int) -> bytes:
        """The video of an evaluation. Raises `OSError` or `FileError` if there is none that can be read."""
        return read_bytes(evaluation_video(self.run_dir, number), MOST_VIDEO_BYTES)

    def pictures(self, *place: int) -> tuple[dict[str, Any], list[NDArray[np.uint8]]] | None:
        """Fields and frames of `ringside.watch.pictures.pictures`; None: the run has ended."""
        return None if self._attached is None else pictures(self._attached[0], *place)


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
        self._paths: list[Path] = []
        self._sources: dict[Path, Source] = {}
        if run is not None:
            self._paths.append(run)
            self.source(0).attach()

    def listed(self) -> dict[str, Any]:
        """Runs, the newest first; `seen` changes when the outline of a run may have changed."""
        found = [path for _, path in sorted(runs_below(self.directory), reverse=True)[:MOST_RUNS]]
        found = found if self._only is None else [self._only]
        self._paths += [path for path in found if path not in self._paths]
        return {"directory": str(self.directory), "runs": [self._listed(path) for path in found]}

    def _listed(self, path: Path) -> dict[str, Any]:
        living, moment = is_living(path), 0
        with suppress(OSError):  # removed since it was listed
            moment = sum(each.stat(follow_symlinks=False).st_mtime_ns for each in os.scandir(path))
        told = {"name": str(path.relative_to(self.directory)), "living": living, "seen": f"{living} {moment}"}
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
