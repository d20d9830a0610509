"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train, arguments and option first, then watch, report, suite and tune. suite_runner runs suites; study and space
belong to tune, examination to doctor.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import ringside

_MODULES = {
    "train": "train",
    "watch": "watch",
    "eval": "eval",
    "play": "play",
    "zoo": "zoo",
    "report": "report",
    "suite": "suite",
    "tune": "tune",
    "export": "export",
    "doctor": "doctor",
    "completion": "completion",
}
VERSION = ringside.__version__
TASKS = tuple(_MODULES)
"""Task names, the optional first argument (default: `train`)."""

FIRST_LINES = {
    "train": "Ringside starts: loading, and checking settings and machine ...",
    "suite": "Ringside starts: loading, and checking settings and machine ...",
    "tune": "Ringside starts: loading, and checking settings and machine ...",
    "eval": "Loading the agent ...",
    "play": "Loading the agent ...",
    "export": "Loading the agent ...",
    "report": "Reading the runs, and drawing ...",
}
"""First line in a terminal of the tasks that are silent for a second or more at their start."""


def module_of(task: str) -> ModuleType:
    """The module of a task, with its `main` and `OPTIONS`."""
    return import_module(f"{__name__}.{_MODULES[task]}")
