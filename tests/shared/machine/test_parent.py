"""Commands whose answer is waited for, but not for ever."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.machine.subprocesses import read_output
from shared.root import ROOT
from tests.support.runs import living
from tests.support.waiting import until


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_output_directory_and_input_of_a_program(tmp_path: Path) -> None:
    assert read_output(python("import os; print(os.getcwd(), end='')"), 60, cwd=tmp_path) == str(tmp_path)
    assert read_output(python("import sys; print(repr(sys.stdin.read()))"), 60) == "''\n"
    assert read_output(python("import sys; sys.stdout.buffer.write(b'\\xff')"), 60) == "\ufffd"


def test_a_failure_and_a_lack_are_errors() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        read_output(python("raise SystemExit('not like this')"), 60)
    assert failed.value.stderr == "not like this\n"
    with pytest.raises(OSError, match="No such file"):
        read_output(["/nowhere/at/all"], 60)


def test_a_late_child_is_killed_though_its_own_holds_the_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, communicate = tmp_path / "grandchild", subprocess.Popen.communicate

    def once_told(process: subprocess.Popen[str], *arguments: Any, **named: Any) -> tuple[str, str]:
        until(told.exists)
        return communicate(process, *arguments, **named)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_told)
    child = f"sleep 600 & echo $! > {told}.part; mv {told}.part {told}; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        read_output(["sh", "-c", child], 0.1)
    psutil.Process(int(told.read_text())).kill()  # there is none if it was waited for


def test_a_command_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = f"echo $$ > {told}.part; mv {told}.part {told}; exec sleep 600"
    program = f"from shared.machine.subprocesses import read_output; read_output(['sh', '-c', {child!r}], 600)"
    waiting = subprocess.Popen(python(program), cwd=ROOT)
    until(told.exists)
    command = psutil.Process(int(told.read_text()))
    waiting.kill()
    waiting.wait()
    try:
        until(lambda: living([command]) is None)
    finally:
        with suppress(psutil.NoSuchProcess):
            command.kill()
