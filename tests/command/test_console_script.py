"""The console script `ringside`, which installing makes: the same command, from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.root import ROOT
from tests.command.conftest import SCRIPT
from tests.support.runs import summary


def test_it_refuses_as_the_command_does(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, "evla"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ringside: There is no task 'evla'; did you mean eval?\n"


def test_its_children_are_spawned_from_any_directory(evaluated_run: Path) -> None:
    assert summary(evaluated_run)["finished"]


HIDING = [("shared", "shared/__init__.py"), ("actors", "actors.py"), ("learner", "learner.py")]


@pytest.mark.parametrize(("package", "file"), HIDING)
def test_a_module_of_the_user_that_hides_ours_is_named_in_one_sentence(tmp_path: Path, package: str, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    says = f"{tmp_path / file} hides the package {package} of Ringside: rename it, or move it away.\n"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for command in ([sys.executable, "-c", "import ringside; ringside.Config"], [str(SCRIPT), "--help"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", says)


def test_other_modules_of_the_user_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("")
    (tmp_path / "shared").mkdir()  # a folder without __init__.py comes after packages
    code = "import ringside; ringside.Config(); ringside.train"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
