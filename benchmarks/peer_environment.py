"""The environment in which other packages are installed and run, apart from this project's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, CannotRun, WrongResult

PEERS = ROOT / ".venv-peers"
LOCK = ROOT / "requirements.lock"
INSTALL_SECONDS = 1_800.0
"""Most that an installation may take; torch with CUDA is gigabytes."""
START_SECONDS = 900.0
"""Most that a peer may take to begin to learn, on a machine that others use, too."""


class Environment:
    """A virtual environment with the same torch, emulator and Gymnasium as this project's."""

    def __init__(self, directory: Path = PEERS) -> None:
        self._python = directory / "bin" / "python"
        self._directory = directory
        self._refusal: CannotRun | None = None
        self._made = False

    def install(self, *packages: str) -> None:
        """Have these packages there, in the versions of requirements.lock where it names one.

        torch comes first and alone, so that nothing else decides which build of it is taken.

        Raises:
            CannotRun: they cannot be installed, with what pip says.
        """
        if self._refusal is not None:
            raise self._refusal
        if not self._made:
            try:
                if not self._python.exists():
                    _succeed([sys.executable, "-m", "venv", str(self._directory)])
                self._pip(next(line for line in LOCK.read_text().splitlines() if line.startswith("torch==")))
            except CannotRun as error:  # asked once: without a network pip takes its time to say so
                self._refusal = error
                raise
            self._made = True
        self._pip(*packages)

    def told(self, script: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
        """What a script of this room says in its last line, run by the environment's interpreter.

        Args:
            script: its file name.
            words: its arguments.
            seconds: that it measures; it is stopped when it takes `START_SECONDS` more.
        """
        # -P: the modules of this room must not stand in for libraries of the same name.
        return last_line([str(self._python), "-P", str(ROOT / "benchmarks" / script), *words], seconds + START_SECONDS)

    def _pip(self, *packages: str) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--constraint", str(LOCK)]
        _succeed([str(self._python), "-m", "pip", "install", *options, *packages])


def last_line(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """The JSON object in the last line that a command prints.

    Raises:
        CannotRun: it failed, or took longer than `seconds`.
        WrongResult: its last line is something else.
    """
    said = _run(command, seconds)
    try:
        result: dict[str, Any] = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        raise WrongResult(f"{Path(command[0]).name} {' '.join(command[1:])} printed no result.") from None
    return result


def _succeed(command: Sequence[str]) -> None:
    _run(command, INSTALL_SECONDS)


def _run(command: Sequence[str], seconds: float) -> str:
    """What a command prints. Raises `CannotRun` with the last thing that it complains about."""
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
