"""The runs that a page shows: all below a directory, or one of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from werkzeug.exceptions import NotFound

from ringside.watch.attach import is_living, runs_below
from ringside.watch.source import Source

MOST_RUNS = 200
"""Runs that the list shows, the newest ones."""


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
        name = str(path.relative_to(self.directory))
        return {"id": self._paths.index(path), "name": name, "living": living, "seen": f"{living} {moment}"}

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
