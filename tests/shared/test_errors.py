"""The family of errors: a command ends with 2 for what the user said and with 1 for a fault at run time."""

from pathlib import Path
from unittest.mock import Mock

import pytest

import launch as launch_py
from shared.errors import CheckpointError, ConfigError, DeviceFault, FileError, RingsideError, RunFailed, require
from shared.memory.arena import ArenaError

KINDS = {ConfigError: 2, FileError: 1, CheckpointError: 1, RunFailed: 1, DeviceFault: 1, ArenaError: 1}


@pytest.mark.parametrize(("kind", "code"), KINDS.items())
def test_an_error_ends_the_command_with_its_sentence_and_code(
    kind: type[RingsideError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ringside.command.eval.main", Mock(side_effect=kind("It cannot work.")))
    assert launch_py.main(["eval"]) == code
    assert capsys.readouterr().err == "launch.py: It cannot work.\n"


def test_a_folder_with_the_name_of_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sunshade").mkdir()  # as wandb makes one
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="needs the package sunshade, which is not installed"):
        require("--shade", "shade", "sunshade")
