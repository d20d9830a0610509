"""A run for several tests of the command."""

import sys
from pathlib import Path

import pytest

from tests.support.made_once import made_once
from tests.support.runs import SMALL, finish, start_words

SCRIPT = Path(sys.executable).with_name("ringside")
"""The console script, which installing makes."""
FEW_ENVS = {"--envs": "2", "--lane-envs": "1", "--inference-batch": "1", "--actors": "1", "--total-steps": "960"}
"""Envs that play long enough to end an episode."""
EVALUATION = {"--eval-every-steps": "480", "--eval-episodes": "1", "--eval-max-frames": "400"}


@pytest.fixture(scope="session")
def evaluated_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a finished run with evaluations, which the console script started in an empty directory.

    So its children are spawned from any directory.
    """

    def run(run_dir: Path) -> None:
        flags = SMALL | FEW_ENVS | EVALUATION | {"--run-dir": run_dir.name}
        words = [word for flag in flags.items() for word in flag]
        finish(start_words("--plain", *words, program=(str(SCRIPT),), cwd=run_dir.parent))

    return made_once(tmp_path_factory, "evaluated-run", run)
