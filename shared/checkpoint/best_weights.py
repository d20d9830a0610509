"""The weights with the best evaluation beside training, and the former best, to which a resume may return."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shared.checkpoint.manifest import BEST_FILE
from shared.checkpoint.weights_file import read_weights_metadata
from shared.errors import CheckpointError
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read

FORMER_BEST = re.compile(r"best-\d{8,}\.safetensors")
"""Names of the weights, by version, that were the best until better ones came."""


def best_files(directory: Path) -> list[Path]:
    """The best weights in a directory of checkpoints, and the former best; of any kind and content."""
    return [each for each in directory.iterdir() if each.name == BEST_FILE or FORMER_BEST.fullmatch(each.name)]


class BestWeights:
    """Files in the directory of the checkpoints.

    A resumed run has not reached the versions after its checkpoint. So where better weights replace the best ones of a
    kept checkpoint, or of the next one, these stay as `best-V.safetensors`, V being their version. Versions and mean
    returns rise together: the best weights at a boundary are the newest of those that existed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._best = directory, directory / BEST_FILE

    @property
    def mean_return(self) -> float | None:
        """Mean return of the best weights; None if there are none that can be read."""
        value = _about(self._best).get("mean_return")
        return value if isinstance(value, float) else None

    def replace(self, data: bytes, boundaries: Sequence[int]) -> None:
        """Put better ones in their place, and delete the former best that no kept checkpoint needs.

        Args:
            data: a weights file, which tells its `version` and `mean_return`.
            boundaries: those of the kept checkpoints and of the next one.

        Raises:
            OSError: the system refuses; the best are as they were.
        """
        versions = self._versions()
        needed = {_newest(versions, boundary) for boundary in boundaries}
        if self._best in needed:
            former = self._directory / f"best-{versions[self._best]:08d}.safetensors"
            with open_to_read(self._best) as best:
                write_atomic(former, partial(shutil.copyfileobj, best))
        write_atomic(self._best, data)
        for path in versions.keys() - needed - {self._best}:
            path.unlink()

    def cut_back(self, boundary: int) -> None:
        """Return to the best weights at a boundary. At 0 a run begins, and the files there are another run's."""
        versions = self._versions()
        found = _newest(versions, boundary)
        if found is None:
            self._best.unlink(missing_ok=True)
        elif found != self._best:
            found.replace(self._best)
        for path in best_files(self._directory):
            if path != self._best and (boundary == 0 or not 0 <= versions.get(path, -1) <= boundary):
                path.unlink()

    def _versions(self) -> dict[Path, int]:
        """The versions of the files that can be read."""
        found = {path: _about(path).get("version") for path in best_files(self._directory)}
        return {path: version for path, version in found.items() if isinstance(version, int)}


def _newest(versions: dict[Path, int], boundary: int) -> Path | None:
    """The file of the newest version that existed at a boundary of the run; at 0 none did."""
    existed = [path for path, version in versions.items() if boundary > 0 and version <= boundary]
    return max(existed, key=lambda path: (versions[path], path.name == BEST_FILE), default=None)


def _about(path: Path) -> dict[str, Any]:
    """Metadata of a file of weights; empty if there is none that can be read."""
    try:
        return read_weights_metadata(path)
    except (CheckpointError, FileNotFoundError):
        return {}
