"""Commands run as subprocesses, and their output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ringside.bench.harness.tables import CannotRun, WrongResult
from shared.files.run_file_names import LOGS
from shared.machine.subprocesses import die_with, kill_and_reap, read_output
from shared.process.signals import stack_dumps_held_back
from shared.root import ROOT

END_SECONDS = 300.0
"""Longest time between SIGTERM and the end of a run."""


def json_result(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """JSON object in the last output line of a command.

    Raises:
        CannotRun: the command failed, or took longer than `seconds`.
        WrongResult: its last line is no JSON.
    """
    output = run_command(command, seconds)
    try:
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise WrongResult(f"{Path(command[0]).name} {' '.join(command[1:])} printed no result.") from None
    return result


def run_command(command: Sequence[str], seconds: float) -> str:
    """Return the output of a command. Raises `CannotRun` with its last error line, or after `seconds`."""
    try:
        return read_output(command, seconds, directory=ROOT)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{' '.join(command[1:])} did not end within {seconds:.0f} s.") from None
    except OSError as error:
        raise CannotRun(f"{command[0]} cannot be started: {error.strerror}.") from error
    except subprocess.CalledProcessError as error:
        complaints = [line.strip() for line in error.stderr.splitlines() if line.strip()] or ["it said nothing"]
        errors = [line for line in complaints if line.startswith("ERROR")] or complaints
        raise CannotRun(f"{' '.join(command[1:])} failed: {errors[-1]}") from None


@contextmanager
def running(command: Sequence[str], errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program of this repository; on every exit from the block, send SIGTERM and wait for its end.

    It also gets SIGTERM if this process is killed.

    Args:
        command: file and arguments of the program.
        errors: file for its standard error.
    """
    with open(errors, "wb") as file, stack_dumps_held_back():
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=file,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            kill_and_reap(process)  # its children die with it


def read_logs(run_dir: Path) -> str:
    """Text of the logs of a run, by name; the run directory itself may be removed afterwards."""
    logs = sorted((run_dir / LOGS).glob("*.log"))
    return "".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)


def last_log_line(errors: Path) -> str:
    """Last line that a program wrote to its standard error."""
    return (errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
