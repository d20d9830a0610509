"""Command lines that a person may copy, and names that resemble another."""

import io
import os
import shutil
import subprocess

import pytest

from shared.config.presets import PRESETS
from shared.text import _HERE, closest, command, printable, shell_line

TYPED = [
    ([".venv/bin/python", "launch.py", "--game", "pong"], "launch.py", ".venv/bin/python launch.py"),
    (["python3", "-X", "dev", "./launch.py", "doctor"], "./launch.py", "python3 -X dev ./launch.py"),
    (["/a b/python", "/c/launch.py"], "/c/launch.py", "'/a b/python' /c/launch.py"),
    (["python", "-m", "pytest"], "/lib/pytest/__main__.py", "python launch.py"),  # not started as this program
    (["/bin/python3", str(shutil.which("env")), "eval"], str(shutil.which("env")), "env"),  # as of `ringside eval`
]


@pytest.mark.parametrize(("typed", "program", "own"), TYPED)
def test_a_command_is_told_as_typed(typed: list[str], program: str, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.orig_argv", typed)
    monkeypatch.setattr("sys.argv", [program])
    assert command("--resume", "runs/a b") == f"{own} --resume 'runs/a b'"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", ["runs/läufe 'x'", "runs/\udcff\\ 3", "runs/a\nb\x1b"])
def test_a_command_can_be_pasted_from_any_terminal(name: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    typed = printable(shell_line(["printf", "%s", name])).encode(encoding)
    assert subprocess.run(["bash", "-c", typed], capture_output=True, check=True).stdout == os.fsencode(name)
    assert shell_line(["a b", "ü"]) == ("'a b' 'ü'" if encoding == "utf-8" else r"'a b' $'\xc3\xbc'")


def test_a_name_of_another_library_is_answered_with_that_here() -> None:
    known = {name for preset in PRESETS.values() for name in preset.to_flat()}
    assert not known & _HERE.keys()
    assert {name: closest(name, known) for name in _HERE} == _HERE
    assert closest("Target-Network-Frequency", ["round-steps", "lane-envs"]) == "round-steps"
