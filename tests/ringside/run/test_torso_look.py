"""The look at a user's network in a program of its own: what it prints, and how it may end."""

import sys
from pathlib import Path

import pytest

from ringside.run import torso_look
from ringside.run.torso_look import look_at_torso
from shared.errors import ConfigError
from shared.frame_shape import DEFAULT_FRAMES

HOME = "tests.support.own_networks"


@pytest.fixture(autouse=True)
def look_anew() -> None:
    look_at_torso.cache_clear()


FAULTS = [
    (f"{HOME}:Dropout", "as with dropout"),
    (f"{HOME}:Ending", "ended with code 3: its code must not end the program."),
    (f"{HOME}:Starving", "A library of the GPU got no memory: CUDA error: out of memory"),
    (f"{HOME}:Crashing", "was killed by SIGSEGV: its code must not end the program."),
]


@pytest.mark.parametrize(("name", "says"), FAULTS)
def test_faults_of_the_program_are_sentences(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        look_at_torso(name, DEFAULT_FRAMES)


def test_a_program_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torso_look, "LIMIT_SECONDS", 0.5)
    with pytest.raises(ConfigError, match=r"--network \S+:Hanging did not end within 0 s"):
        look_at_torso(f"{HOME}:Hanging", DEFAULT_FRAMES)


def test_it_finds_modules_as_the_launcher_whatever_they_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_nets.py").write_text(f"print('{{}}')\nfrom {HOME} import Printing\n")
    found = look_at_torso("users_nets:Printing", DEFAULT_FRAMES)
    assert "users_nets" not in sys.modules
    assert (found.features, [name for name, _ in found.shapes]) == (16, ["layer.weight", "layer.bias"])
