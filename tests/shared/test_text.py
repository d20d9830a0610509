"""Command lines that a person may copy."""

from __future__ import annotations

import pytest

from shared.text import command


@pytest.mark.parametrize(
    ("typed", "program", "own"),
    [
        ([".venv/bin/python", "launch.py", "--game", "pong"], "launch.py", ".venv/bin/python launch.py"),
        (["python3", "-X", "dev", "./launch.py", "doctor"], "./launch.py", "python3 -X dev ./launch.py"),
        (["/a b/python", "/c/launch.py"], "/c/launch.py", "'/a b/python' /c/launch.py"),
        (["python", "-m", "pytest"], "/lib/pytest/__main__.py", "python launch.py"),  # not started as this program
    ],
)
def test_the_command_is_told_as_it_was_typed(
    typed: list[str], program: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.orig_argv", typed)
    monkeypatch.setattr("sys.argv", [program])
    assert command("--resume", "runs/a b") == f"{own} --resume 'runs/a b'"
