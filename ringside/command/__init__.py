"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train, arguments and option first, then watch, report, suite and tune. study belongs to tune.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import ringside
from shared.errors import ConfigError
from shared.text import closest, nearest_or_all

TASKS = ("train", "watch", "eval", "play", "zoo", "report", "suite", "tune", "export", "doctor", "completion")
"""Tasks, each a module with its `main` and `Options`; the optional first argument (default: `train`)."""

TOPICS = ("version", "games", "presets")
"""First words of the command, also behind `help`, that print a text."""

SLOW = ("train", "suite", "tune", "eval", "play", "export", "report")
"""Tasks that are silent for a second or more at their start; in a terminal they say that they load."""


def text_of(topic: str) -> str:
    """Text of one of `TOPICS`."""
    if topic == "version":
        return f"Ringside {ringside.__version__}"
    from actors.envs.atari import games
    from shared.config.presets import PRESETS

    lines = (
        f"{name:12} --method {it.algorithm.method}, {it.learn.total_steps:,} steps" for name, it in PRESETS.items()
    )
    return "\n".join(games() if topic == "games" else lines)


def module_of(task: str) -> ModuleType:
    """The module of a task, with its `main` and `Options`. Raises `ConfigError` for a word that is no task."""
    if task not in TASKS:
        raise _unknown_task(task)
    return import_module(f"{__name__}.{task}")


def _unknown_task(word: str) -> ConfigError:
    """The error for a first word of the command that is no task; it may be meant as the value of an option."""
    from actors.env import EnvError
    from actors.envs.atari import game_name, games
    from shared.config.presets import PRESETS

    if word in PRESETS:
        return ConfigError(f"{word} is a preset, not a task: pass --preset {word}.")
    if word == "record":
        return ConfigError("record is a part of play: pass play --load AGENT --video FILE.mp4 --episodes N.")
    if os.path.isdir(word):
        return ConfigError(f"{word} is no task: pass --resume {word} to continue a run, or eval {word}.")
    try:
        game = game_name(word)
    except EnvError:
        tasks = [*TASKS, "help", *TOPICS]
        close = closest(word, [*tasks, *games()])
        advice = f"; did you mean --game {close}?" if close in games() else nearest_or_all(word, tasks)
        return ConfigError(f"There is no task {word!r:.60}{advice}")
    return ConfigError(f"{word} is a game, not a task: pass --game {game}.")
