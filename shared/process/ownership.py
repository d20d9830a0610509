"""Checks of a run directory before the first write, since a directory may come from elsewhere.

An archive can hold a symbolic link, a pipe or a directory in place of a file of the run. This module refuses these
before anything starts. shared/files/plain_files.py also opens files so that no link is followed and no pipe is waited
for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from shared.checkpoint.manifest import BEST_FILE, CHECKPOINTS
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE, EVALUATION_FILES, LOGS, METRICS_FILE, SUMMARY_FILE
from shared.process.live import LIVE_FILE

LOCK_FILE = "lock"
LIVING = "a run that is still going on, or saving"
"""Holder of the lock of a run directory, for sentences."""
SUITE_LOCK_FILE = "suite.lock"
SUITE_FILE = "suite.json"
"""Names of the run directories of a suite, in its order."""
EVENTS = "tensorboard"
REPORT = "report"
OWN_EVENTS = f"{EVENTS}/own"
OWN_METRICS_FILE = "own-metrics.jsonl"
"""Metrics that callbacks of the user return, and their TensorBoard events."""
TRACK_FILE = "track.json"
"""State of `--track` in a run directory: the service's id of the run, its address, its sender and the progress."""
WANDB = "wandb"
VIDEOS = "videos"
"""Videos of evaluations (--eval-video)."""
PART = ".part"
"""Suffix of an evaluation that is being written."""

_FILES = (
    *(CONFIG_FILE, METRICS_FILE, SUMMARY_FILE, LIVE_FILE, LOCK_FILE, SUITE_LOCK_FILE, SUITE_FILE, TRACK_FILE),
    OWN_METRICS_FILE,
    *(name for file in EVALUATION_FILES.values() for name in (file, str(Path(file).with_suffix(PART)))),
    f"{CHECKPOINTS}/{BEST_FILE}",
)
_FOLDERS = (CHECKPOINTS, LOGS, EVENTS, OWN_EVENTS, REPORT, WANDB, VIDEOS)
_OWN_NAMES = {
    CHECKPOINTS: re.compile(r"(checkpoint|segment|boundary|weights|best)-\d{8,}\.(json|ring|safetensors)"),
    LOGS: re.compile(r".*\.log"),
    VIDEOS: re.compile(r"evaluation-\d{5,}\.(part|mp4)"),
}
"""By folder: files in it that a run appends to, replaces or removes."""


def evaluation_video(run_dir: Path, number: int) -> Path:
    """Path of the video of an evaluation."""
    return run_dir / VIDEOS / f"evaluation-{number:05}.mp4"


def require_writable_run(path: Path, flag: str) -> None:
    """Refuse a run directory, or one of a suite, that this user may not write, or in which something is not plain.

    Args:
        path: may be a symbolic link, since a user names it; what lies inside may not. Where there is nothing, all is
            well.
        flag: the option that names it, for the sentence.

    Raises:
        ConfigError: the directory or a folder in it is another user's or no directory, or a file is none.
    """
    try:
        _require(path.stat(), path, flag, directory=True)
        for name in _FOLDERS:
            if os.path.lexists(path / name):
                _require((path / name).lstat(), path / name, flag, directory=True)
        for file in _files_in(path):
            if os.path.lexists(file):
                _require(file.lstat(), file, flag, directory=False)
                if file.parent.name == LOGS and file.lstat().st_nlink > 1:
                    raise ConfigError(
                        f"{flag} cannot be used: {file} has another name elsewhere (a hard link) and would be written "
                        "there, too; move it away."
                    )
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be used: {error.strerror}.") from error


def _files_in(path: Path) -> Iterator[Path]:
    """Paths at which a run has, or may have, a file."""
    yield from (path / name for name in _FILES)
    for folder, names in _OWN_NAMES.items():
        if (path / folder).is_dir():
            yield from (entry for entry in (path / folder).iterdir() if names.fullmatch(entry.name))


def _require(status: os.stat_result, path: Path, flag: str, *, directory: bool) -> None:
    """Refuse an entry that is not of the wanted kind, and a directory of another user."""
    kind = stat.S_ISDIR if directory else stat.S_ISREG
    if not kind(status.st_mode):
        wanted = "a directory" if directory else "a plain file"
        raise ConfigError(f"{flag} cannot be used: {path} is not {wanted} but {_kind(status.st_mode)}; move it away.")
    if directory and status.st_uid != os.geteuid():
        raise ConfigError(
            f"{flag} cannot be used: {path} belongs to the user with the number {status.st_uid}, and this process runs "
            f"as {os.geteuid()}; run as that user, in a container too (--user), or name another directory."
        )


def _kind(mode: int) -> str:
    """Kind of a directory entry, in words."""
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISREG, "a plain file"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for is_one, words in kinds if is_one(mode)), "a device")
