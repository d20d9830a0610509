"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train, arguments and option first, then watch, report, suite and tune. study belongs to tune.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import ringside

VERSION = ringside.__version__
TASKS = ("train", "watch", "eval", "play", "zoo", "report", "suite", "tune", "export", "doctor", "completion")
"""Tasks, each a module with its `main` and `OPTIONS`; the optional first argument (default: `train`)."""

SLOW = ("train", "suite", "tune", "eval", "play", "export", "report")
"""Tasks that are silent for a second or more at their start; in a terminal they say that they load."""


def module_of(task: str) -> ModuleType:
    """The module of a task, with its `main` and `OPTIONS`. Raises `ConfigError` for a word that is no task."""
    if task not in TASKS:
        from ringside.command.arguments import unknown_task

        raise unknown_task(task)
    return import_module(f"{__name__}.{task}")
