"""Commands in processes of their own, and what they say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, CannotRun, WrongResult


def last_line(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """The JSON object in the last line that a command prints.

    Raises:
        CannotRun: it failed, or took longer than `seconds`.
        WrongResult: its last line is something else.
    """
    said = said_by(command, seconds)
    try:
        result: dict[str, Any] = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        raise WrongResult(f"{Path(command[0]).name} {' '.join(command[1:])} printed no result.") from None
    return result


def said_by(command: Sequence[str], seconds: float) -> str:
    """What a command prints. Raises `CannotRun` with the last thing that it complains about, or for a longer time."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{' '.join(command[1:])} did not end within {seconds:.0f} s.") from None
    except OSError as error:
        raise CannotRun(f"{command[0]} cannot be started: {error.strerror}.") from error
    if done.returncode:
        complaints = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        errors = [line for line in complaints if line.startswith("ERROR")] or complaints
        raise CannotRun(f"{' '.join(command[1:])} failed: {errors[-1]}")
    return done.stdout
