#!/usr/bin/env python3
"""The command: its first word chooses a task, the rest are the task's options.

    python launch.py --actors 12 --game breakout
    python launch.py watch
    python launch.py eval --load runs/breakout-20260101-120000 --episodes 30
    python launch.py doctor
    python launch.py help

Every child process imports this module again, so that it loads nothing of weight: a task's file is loaded when it is
chosen (tests/boundary).
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Any process of a run continues when it is asked for its stacks: until `enable_stack_dumps` the request waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

import errno
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run one task; returns the exit code.

    2: a mistake in the arguments. 1: a fault at run time. 130: Ctrl-C. 141: the reader of the output has gone.
    """
    from shared.errors import RingsideError
    from shared.root import INSTALL, ROOT

    try:
        return _run(*_task_and_words(arguments))
    except RingsideError as error:
        return _end(error.exit_code, str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or (ROOT / package).exists() or (ROOT / f"{package}.py").exists():
            raise
        return _end(2, f"{package} is not installed for {sys.executable}. Run {INSTALL}.")
    except KeyboardInterrupt:
        return _end(130, "Stopped.")
    except BrokenPipeError:  # the reader of the output has gone, as `head` does
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename is not None:  # a file of another user's run, say
            return _end(2, f"This user may not read or write {error.filename}.")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_output()
        return _end(1, f"The disk of {error.filename or 'standard output or a file'} is full: make room and try again.")


def _run(task: str, words: Sequence[str]) -> int:
    """Run one task; returns its exit code."""
    from ringside.command import SLOW, TOPICS, module_of, text_of

    if task in TOPICS:
        print(text_of(task), flush=True)
        return 0
    if task in SLOW and sys.stdout.isatty() and not {"-h", "--help"} & set(words):
        print("Ringside is loading ...", flush=True)
    chosen = module_of(task)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # `cli` had it so
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: int = chosen.main(words)
    sys.stdout.flush()
    return code


def _end(code: int, sentence: str) -> int:
    """Print the sentence of an error; returns the exit code."""
    from shared.text import PROGRAM, printable

    print(printable(f"{PROGRAM}: {sentence}"), file=sys.stderr)
    return code


def _task_and_words(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The task, by default `train`, and the words for it; `help TASK` is `TASK --help`."""
    task, rest = "train", list(arguments)
    if rest and not rest[0].startswith("-"):
        task = rest.pop(0)
    if rest[:1] == ["--version"]:
        task = "version"
    if task == "help":
        rest = rest[1:] if rest[:1] in (["help"], ["-h"], ["--help"]) else rest
        task, *more = rest if rest[:1] not in ([], ["all"]) else ["train", *rest]
        rest = ["--help", *more] if more == ["all"] else [*more, "--help"]
    return task, rest


def _drop_output() -> None:
    """Let standard output lead nowhere if it cannot be written, so that Python does not complain when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def cli() -> None:
    """Run the command line of this process; the console script `ringside` calls it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # While libraries load Ctrl-C kills: an exception in the middle of an import aborts some, and others lose it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Standard streams that were closed (`>&-`) lead nowhere: what is written to them must end no run.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))  # which takes the number that is free
            os.set_inheritable(getattr(sys, name).fileno(), True)  # where a child puts its log
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a path may hold any bytes
    import ringside.command  # noqa: F401  # which ends with a sentence where a module of the user hides ours
    from shared.machine.subprocesses import leave_threads
    from shared.process.signals import enable_stack_dumps

    enable_stack_dumps()
    leave_threads(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
