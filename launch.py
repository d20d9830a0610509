"""The command: its first word chooses a task, the rest are the task's options.

    python launch.py --actors 12 --game breakout
    python launch.py watch
    python launch.py eval --load runs/breakout-20260101-120000 --episodes 30
    python launch.py bench limits
    python launch.py doctor

Every child process imports this module again, so that it loads nothing of weight: a task's file is loaded when it is
chosen (tests/boundary).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

TASKS = ("train", "watch", "eval", "play", "record", "zoo", "report", "suite", "bench", "doctor", "completion")
"""What the first word of the command line can be; without one, `train`. Each is a module of `tasks` with a `main`."""


def main(arguments: Sequence[str]) -> int:
    """Run one task; returns the exit code: 2 for a mistake in the arguments."""
    from shared.config import ConfigError
    from tasks.arguments import PROGRAM

    task, rest = "train", list(arguments)
    if rest and not rest[0].startswith("-"):
        task = rest.pop(0)
    try:
        if task not in TASKS:
            from shared.validate import nearest

            raise ConfigError(f"There is no task {task!r}{nearest(task, TASKS)}")
        code: int = import_module(f"tasks.{task}").main(rest)
        return code
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: Stopped before anything was started.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
