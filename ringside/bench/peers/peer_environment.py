"""The environment in which other packages are installed and run, apart from this project's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringside.bench.harness.programs import json_result, run_command
from ringside.bench.harness.tables import ROOT, CannotRun

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
                if not self._has_pip():
                    run_command([sys.executable, "-m", "venv", "--clear", str(self._directory)], INSTALL_SECONDS)
                self._pip(next(line for line in LOCK.read_text().splitlines() if line.startswith("torch==")))
            except CannotRun as error:  # asked once: without a network pip takes its time to say so
                self._refusal = error
                raise
            self._made = True
        self._pip(*packages)

    def told(self, script: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
        """Run a script of this room with the environment's interpreter; return the JSON of its last line.

        Args:
            script: its file name.
            words: its arguments.
            seconds: that it measures; it is stopped when it takes `START_SECONDS` more.
        """
        # -P: the modules of this room must not stand in for libraries of the same name.
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
