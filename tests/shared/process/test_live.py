"""live.json: who plays a run, and where its memory is."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shared.process.live import FORMAT, LIVE_FILE, Live, LiveError, process_start, withdraw


def test_a_live_file_is_read_while_its_process_lives(tmp_path: Path) -> None:
    live = Live.for_this_process(7, ("NOOP", "FIRE"))
    assert Live.read(tmp_path) is None
    live.write(tmp_path)
    assert Live.read(tmp_path) == live
    assert (live.process, live.descriptor, live.action_names) == (os.getpid(), 7, ("NOOP", "FIRE"))
    withdraw(tmp_path)
    assert Live.read(tmp_path) is None
    withdraw(tmp_path)


def test_a_launcher_that_was_killed_leaves_nothing_to_look_on(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    live = replace(Live.for_this_process(3, ("NOOP",)), process=child.pid, started=process_start(child.pid))
    live.write(tmp_path)
    assert Live.read(tmp_path) == live
    child.kill()
    assert child.wait(10) == -9
    assert (process_start(child.pid), Live.read(tmp_path)) == (None, None)


def test_a_process_that_died_and_was_not_reaped_is_dead(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it is dead now, and stays as it is
    assert Path(f"/proc/{child}").exists()
    assert process_start(child) is None
    os.waitpid(child, 0)


def test_another_process_of_the_same_number_is_not_the_launcher(tmp_path: Path) -> None:
    live = Live.for_this_process(3, ("NOOP",))
    replace(live, started=live.started - 1).write(tmp_path)
    assert Live.read(tmp_path) is None


NO_LIVE_FILES = [
    ("[", "damaged"),
    ("[1]", "damaged"),
    ("{}", "damaged"),
    (json.dumps({"format": FORMAT}), "damaged"),
    (json.dumps({"format": FORMAT, "process": 1, "started": 1, "descriptor": 1, "action_names": [1]}), "damaged"),
    (json.dumps({"format": FORMAT, "process": "1", "started": 1, "descriptor": 1, "action_names": []}), "damaged"),
    (json.dumps({"format": FORMAT + 1}), "version of Ringside"),
]


@pytest.mark.parametrize(("content", "said"), NO_LIVE_FILES)
def test_a_file_that_is_no_live_file_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / LIVE_FILE).write_text(content)
    with pytest.raises(LiveError, match=said):
        Live.read(tmp_path)
