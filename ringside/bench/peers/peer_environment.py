"""Virtual environment in which other packages are installed and run, separate from that of this project."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringside.bench.harness.programs import json_result, run_command
from ringside.bench.harness.tables import CannotRun
from shared.root import ROOT

PEERS = ROOT / ".venv-peers"
LOCK = ROOT / "requirements.lock"
INSTALL_SECONDS = 1_800.0
"""Longest time of an installation; torch with CUDA has gigabytes."""
START_SECONDS = 900.0
"""Longest time until a peer begins to learn, even on a busy machine."""


class Environment:
    """A virtual environment with the same torch, emulator and Gymnasium as this project's."""

    def __init__(self, directory: Path = PEERS) -> None:
        self._python = directory / "bin" / "python"
        self._directory = directory
        self._refusal: CannotRun | None = None
        self._made = False

    def install(self, *packages: str) -> None:
        """Install packages, in the versions of requirements.lock where it names them.

        torch is installed first and alone, so that no other package chooses its build.

        Raises:
            CannotRun: they cannot be installed; the message has the error of pip.
        """
        if self._refusal is not None:
            raise self._refusal
        if not self._made:
            try:
                if not self._has_pip():
                    run_command([sys.executable, "-m", "venv", "--clear", str(self._directory)], INSTALL_SECONDS)
                self._pip(next(line for line in LOCK.read_text().splitlines() if line.startswith("torch==")))
            except CannotRun as error:  # tried once: without a network pip takes long to fail
                self._refusal = error
                raise
            self._made = True
        self._pip(*packages)

    def run_script(self, script: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
        """Run a script of this folder with the environment's interpreter; return the JSON of its last line.

        Args:
            script: its file name.
            words: its arguments.
            seconds: its measuring time; after `START_SECONDS` more it is stopped.
        """
        # -P: modules of this folder must not shadow libraries of the same name.
        return json_result(
            [str(self._python), "-P", str(Path(__file__).parent / script), *words], seconds + START_SECONDS
        )

    def _has_pip(self) -> bool:
        """True if the environment is complete: pip is installed last."""
        try:
            run_command([str(self._python), "-m", "pip", "--version"], START_SECONDS)
        except CannotRun:
            return False
        return True

    def _pip(self, *packages: str) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--constraint", str(LOCK)]
        run_command([str(self._python), "-m", "pip", "install", *options, *packages], INSTALL_SECONDS)
