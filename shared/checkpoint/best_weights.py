"""The weights with the best evaluation beside training, and the former best, to which a resume may return."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from shared.checkpoint.manifest import BEST_FILE, FORMER_BEST_FILE
from shared.checkpoint.weights_file import read_weights_metadata
from shared.errors import CheckpointError
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read


class BestWeights:
    """Two files in the directory of the checkpoints.

    A resumed run has not reached the versions after its checkpoint. So when better weights replace the best ones of the
    newest checkpoint, the replaced file stays as `best-former`.
    """

    def __init__(self, directory: Path) -> None:
        self._best, self._former = directory / BEST_FILE, directory / FORMER_BEST_FILE

    @property
    def mean_return(self) -> float | None:
        """Mean return of the best weights; None if there are none that can be read."""
        value = _about(self._best).get("mean_return")
        return value if isinstance(value, float) else None

    def beaten_by(self, mean_return: float) -> bool:
        """True if this mean return is better than all before it; an equal one is not."""
        best = self.mean_return
        return mean_return > (-math.inf if best is None else best)

    def replace(self, data: bytes, newest: int) -> None:
        """Put better ones in their place.

        Args:
            data: a weights file, which tells its `version` and `mean_return`.
            newest: boundary of the newest checkpoint; 0: there is none.

        Raises:
            OSError: the system refuses; the best are as they were.
        """
        if _was_there(self._best, newest):
            with open_to_read(self._best) as best:
                write_atomic(self._former, partial(shutil.copyfileobj, best))
        write_atomic(self._best, data)

    def cut_back(self, boundary: int) -> None:
        """Return to the best weights at a boundary. At 0 a run begins, and the files there are another run's."""
        if not _was_there(self._best, boundary):  # damaged ones are of no version
            if _was_there(self._former, boundary):
                self._former.replace(self._best)
            else:
                self._best.unlink(missing_ok=True)
        self._former.unlink(missing_ok=True)


def _was_there(path: Path, boundary: int) -> bool:
    """True if a file of weights is of a version that existed at a boundary of the run."""
    version = _about(path).get("version")
    return boundary > 0 and isinstance(version, int) and version <= boundary


def _about(path: Path) -> dict[str, Any]:
    """Metadata of a file of weights; empty if there is none that can be read."""
    try:
        return read_weights_metadata(path)
    except (CheckpointError, FileNotFoundError):
        return {}
