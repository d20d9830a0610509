"""Stages of a proof: commands with time limits, their outcomes, and an archive of all their files."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ringside.bench.harness.programs import read_logs
from shared.files.atomic import write_atomic
from shared.machine import facts
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.process.signals import TELL_STACKS, stack_dumps_held_back
from shared.root import ROOT

STAGE_SECONDS = 560.0
"""Time limit of a stage with all its commands."""
LONG = 500.0
"""Time limit of a command that is a whole stage."""
ROOMY_BYTES = 16_000_000_000
"""Free memory from which runs keep the default replay buffer; they need 10 GB."""
SMALLER_REPLAY = "--replay-size 300_000"
"""Option of large runs on machines with less free memory."""
END_SECONDS = 45.0
"""Time between SIGTERM and SIGKILL of a command; part of the time of its stage."""
STACKS_SECONDS = 1.0
"""Time for the processes of a late command to write their stacks."""
TALKATIVE = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
"""Environment in which a crash prints its stacks and a kill loses no output."""
OUTCOME = "outcome.json"
LAUNCH = "launch.py"


class Outcome:
    """Results of all commands, written to a file after each command, and an archive of all files."""

    def __init__(self, out: Path, archive: Path | None, about: dict[str, Any]) -> None:
        """Keep the results that `out` holds already.

        Args:
            out: directory of all files.
            archive: .tar.gz of these files, rewritten each time; None: no archive.
            about: commit and machine.
        """
        out.mkdir(parents=True, exist_ok=True)
        self.out, self._archive, self._about = out.resolve(), archive, about
        path = out / OUTCOME
        self._before: list[dict[str, Any]] = json.loads(path.read_text())["done"] if path.exists() else []
        self.done: list[dict[str, Any]] = []
        self._write()

    @property
    def good(self) -> bool:
        """True if no command has failed since the start."""
        return all(fact.get("good", True) for fact in self.done)

    def note(self, fact: dict[str, Any]) -> None:
        """Add a result, and write the file."""
        self.done.append(fact)
        print(json.dumps(fact), flush=True)
        self._write()

    def _write(self) -> None:
        """Write the outcome, and the archive if there is one."""
        whole = {**self._about, "done": self._before + self.done}
        write_atomic(self.out / OUTCOME, json.dumps(whole, indent=1).encode() + b"\n")
        if self._archive is not None:
            unfinished = self._archive.with_name(self._archive.name + ".part")
            with tarfile.open(unfinished, "w:gz") as archive:
                archive.add(self.out, self.out.name)
            unfinished.replace(self._archive)


class Stage:
    """One stage: its commands and their log."""

    def __init__(self, name: str, outcome: Outcome, more: str = "", seconds: float = STAGE_SECONDS) -> None:
        """Begin a stage.

        Args:
            outcome: receives the results of its commands.
            more: options for every run.
            seconds: time for all its commands.
        """
        self.name = name
        self.out = outcome.out
        self.more = more
        self._outcome = outcome
        self._deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the last command gets SIGTERM."""
        return self._deadline - END_SECONDS - time.monotonic()

    def launch(self, words: str, seconds: float, run_dir: Path | None = None) -> bool:
        """Run `launch.py` with these arguments. Return True if it ended with code 0 in time."""
        return self.run([LAUNCH, *shlex.split(words)], seconds, run_dir=run_dir)

    def bench(self, words: str, file: str, seconds: float, more: str = "") -> bool:
        """Run `launch.py bench` with its result in `file`. Return True if no part is missing or wrong."""
        path = self.out / file
        path.unlink(missing_ok=True)
        ended = self.launch(f"bench {words} --json {shlex.quote(str(path))} {more}", seconds)
        if not path.exists():
            return False
        found = json.loads(path.read_text())
        if found["missing"] or found["wrong"]:
            self.note({"file": file, "missing": found["missing"], "wrong": found["wrong"], "good": False})
            return False
        return ended

    def run(
        self,
        words: Sequence[str],
        seconds: float,
        is_done: Callable[[], bool] = lambda: False,
        run_dir: Path | None = None,
    ) -> bool:
        """Run a Python program; stop it after `seconds`, at the end of the stage, or as soon as `is_done()`.

        A late `launch.py` first writes the stacks of its threads. If a run fails, the logs in its `run_dir` are added
        to the log of the stage. The program gets SIGTERM if this process dies.

        Return True if it ended by itself with code 0, or was stopped by `is_done`.
        """
        began = time.monotonic()
        end = began + min(seconds, self.left)
        if began >= end:
            self.note({"command": " ".join(words), "good": False, "error": "The time of the stage was over."})
            return False
        with (self.out / f"{self.name}.log").open("ab") as log:
            log.write(f"\n$ python {' '.join(words)}\n".encode())
            log.flush()
            with stack_dumps_held_back():
                process = subprocess.Popen(
                    [sys.executable, *words],
                    cwd=ROOT,
                    env=os.environ | TALKATIVE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
                )
            done = late = False
            try:
                while not done and not late and process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
                    done, late = is_done(), time.monotonic() > end
                if process.poll() is None:
                    if late and words[0] == LAUNCH:
                        _tell_stacks(process)
                    process.send_signal(signal.SIGTERM)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(END_SECONDS)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                kill_and_reap(process)
        good = done or (process.returncode == 0 and not late)
        if not good and run_dir is not None:
            with (self.out / f"{self.name}.log").open("ab") as log:
                log.write(read_logs(run_dir).encode())
        took = round(time.monotonic() - began, 1)
        self.note({"command": " ".join(words), "code": process.returncode, "seconds": took, "late": late, "good": good})
        return good

    def note(self, fact: dict[str, Any]) -> None:
        """Add a result of this stage to the outcome."""
        self._outcome.note({"stage": self.name, **fact})


def _tell_stacks(process: subprocess.Popen[bytes]) -> None:
    """Make a late `launch.py` and its child processes write the stacks of their threads."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, TELL_STACKS)
        process.wait(STACKS_SECONDS)


def room() -> str:
    """Options with which a run of default size fits into the free memory."""
    return "" if facts.usable_memory() >= ROOMY_BYTES else SMALLER_REPLAY
