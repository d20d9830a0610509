"""Main modules of users: a call outside of the guard, a script without a file, a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ringside
from shared.errors import ConfigError
from shared.root import ROOT

CHECK = "from ringside.run.spawning import require_main_guard\n"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def python(*words: str, cwd: Path, script: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=ENVIRONMENT, input=script, capture_output=True, text=True, timeout=60
    )


def test_training_without_the_guard_is_one_sentence_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import ringside\n\nringside.train(\n    game='pong',\n)\n")
    done = python("mine.py", cwd=tmp_path)
    assert done.returncode == 1
    says = f"{tmp_path / 'mine.py'}, line 3, starts a run whenever the file is imported, and each process of the run"
    assert f'ConfigError: {says} imports it: put the call under if __name__ == "__main__":.' in done.stderr
    assert os.listdir(tmp_path) == ["mine.py"]


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("require_main_guard()", True),
        ("def main():\n    require_main_guard()\nmain()", True),
        ("import experiment", True),
        ("if __name__ == '__main__':\n    require_main_guard()", False),
        ("def main():\n    require_main_guard()\nif '__main__' == __name__ and True:\n    main()", False),
        ("exec('require_main_guard()')", True),
        ("if True:\n    require_main_guard()", True),
    ],
)
def test_the_guard_is_seen(tmp_path: Path, script: str, refused: bool) -> None:
    (tmp_path / "experiment.py").write_text(f"{CHECK}require_main_guard()\n")
    (tmp_path / "mine.py").write_text(f"{CHECK}{script}\n")
    done = python("mine.py", cwd=tmp_path)
    assert ("put the call under" in done.stderr, done.returncode) == (refused, int(refused)), done.stderr


def test_a_main_module_without_a_file_needs_no_guard(tmp_path: Path) -> None:
    script = f"{CHECK}require_main_guard()\nprint('fine')"
    for done in (python("-c", script, cwd=tmp_path), python("-", cwd=tmp_path, script=script)):
        assert (done.stdout, done.stderr) == ("fine\n", "")


def test_a_script_from_standard_input_starts_children(tmp_path: Path) -> None:
    script = """
import os, sys
from ringside.run.spawning import ChildProcess
child = ChildProcess(target=os.putenv, args=("A", "B"))
child.start()
child.join()
sys.exit(child.exitcode)
"""
    done = python("-", cwd=tmp_path, script=script)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_call_from_another_thread_is_one_sentence() -> None:
    """Neither memory nor doorbells are made then."""
    before, refused = set(os.listdir("/proc/self/fd")), list[BaseException]()

    def train() -> None:
        try:
            ringside.train(game="pong", preset="quick")
        except ConfigError as error:
            refused.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert [str(error) for error in refused] == [
        "Training was called from another thread: call it from the main thread."
    ]
    assert set(os.listdir("/proc/self/fd")) == before
