"""Checks of a run directory before the first write, since a directory may come from elsewhere.

An archive can hold a symbolic link, a pipe or a directory in place of a file of the run. This module refuses these
before anything starts. shared/files/plain_files.py also opens files so that no link is followed and no pipe is waited
for.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from shared.errors import ConfigError
from shared.files.run_file_names import CHECKPOINTS, LOGS
from shared.text import refused

LOCK_FILE = "lock"
LIVING = "a run that is still going on, or saving"
"""Holder of the lock of a run directory, for sentences."""
SUITE_LOCK_FILE = "suite.lock"
EVENTS = "tensorboard"
REPORT = "report"
OWN_EVENTS = f"{EVENTS}/own"
OWN_METRICS_FILE = "own-metrics.jsonl"
"""Metrics that callbacks of the user return, and their TensorBoard events."""
TRACK_FILE = "track.json"
"""State of `--track` in a run directory: the service's id of the run, and the newest records sent."""
WANDB = "wandb"
VIDEOS = "videos"
"""Videos of evaluations (--eval-video)."""
PART = ".part"
"""Suffix of an evaluation that is being written."""

_FOLDERS = (CHECKPOINTS, LOGS, EVENTS, OWN_EVENTS, REPORT, WANDB, VIDEOS)
_FILES = {
    "": re.compile(r".*\.(json|jsonl|part)|(suite\.)?lock"),
    CHECKPOINTS: re.compile(r".*\.(json|ring|safetensors)"),
    LOGS: re.compile(r".*\.log"),
    VIDEOS: re.compile(r".*\.(part|mp4)"),
}
"""By folder: names of files that a run appends to, replaces or removes."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a plain file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


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
    with refused(f"{flag} {path} cannot be used"), suppress(FileNotFoundError, NotADirectoryError):
        _require(path.stat(), path, flag, directory=True)
        for name in _FOLDERS:
            if os.path.lexists(path / name):
                _require((path / name).lstat(), path / name, flag, directory=True)
        for folder, names in _FILES.items():
            entries = (path / folder).iterdir() if (path / folder).is_dir() else ()
            for file in (entry for entry in entries if names.fullmatch(entry.name)):
                _require(file.lstat(), file, flag, directory=False)
                if folder == LOGS and file.lstat().st_nlink > 1:
                    raise ConfigError(
                        f"{flag} cannot be used: {file} has another name elsewhere (a hard link) and would be written "
                        "there, too; move it away."
                    )


def _require(status: os.stat_result, path: Path, flag: str, *, directory: bool) -> None:
    """Refuse an entry that is not of the wanted kind, and a directory of another user."""
    wanted, found = _KINDS[stat.S_IFDIR if directory else stat.S_IFREG], _KINDS.get(stat.S_IFMT(status.st_mode))
    if found != wanted:
        raise ConfigError(f"{flag} cannot be used: {path} is not {wanted} but {found or 'a device'}; move it away.")
    if directory and status.st_uid != os.geteuid():
        raise ConfigError(
            f"{flag} cannot be used: {path} belongs to the user with the number {status.st_uid}, and this process runs "
            f"as {os.geteuid()}; run as that user, in a container too (--user), or name another directory."
        )
