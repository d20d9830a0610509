"""Checks of a run directory before anything is written to it."""

from __future__ import annotations

import os
from pathlib import Path

from shared.errors import ConfigError
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process import ownership
from shared.text import shell_line, words_of


def nearest_directory(path: Path) -> Path:
    """The path, or its closest existing parent."""
    return next(above for above in (path.absolute(), *path.absolute().parents) if os.path.exists(above))


def require_run_directory(path: Path, *, continues: bool, env: str | None = None, plugin: str | None = None) -> None:
    """Raise `ConfigError` for a directory that is not writable, or holds another run than the continued one.

    `env`, `plugin`: the user's --env and --plugin, which --resume requires again.
    """
    if os.path.exists(path) and not os.path.isdir(path):  # neither raises
        raise ConfigError(f"--run-dir {path} is a file, not a directory.")
    ownership.require_writable_run(path, "--run-dir")
    if any(path.glob("checkpoints/checkpoint-*.json")) and not continues:
        more = "N" if read_object(path / SUMMARY_FILE).get("finished") is True else None
        words = ["--resume", str(path), *words_of(env=env, plugin=plugin, total_steps=more)]
        raise ConfigError(
            f"--run-dir {path} already holds a run; name another, or continue that one with {shell_line(words)}."
        )
    above = nearest_directory(path)
    if not os.path.isdir(above) or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"--run-dir {path} cannot be written: {above} is not a directory that this user may write.")
