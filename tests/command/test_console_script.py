"""The console script `ringside`, which installing makes: the same command, from any directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.runs import SMALL, summary

SCRIPT = Path(sys.executable).with_name("ringside")


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], cwd=directory, capture_output=True, text=True, timeout=100, check=False)


def test_it_refuses_as_the_command_does(tmp_path: Path) -> None:
    done = run(tmp_path, "evla")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ringside: There is no task 'evla'; did you mean eval?\n"


def test_its_children_are_spawned_from_any_directory(tmp_path: Path) -> None:
    flags = SMALL | {"--total-steps": "1_440", "--run-dir": str(tmp_path / "run")}
    done = run(tmp_path, "--plain", *(word for flag in flags.items() for word in flag))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert summary(tmp_path / "run")["finished"]
