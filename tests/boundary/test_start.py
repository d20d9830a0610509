"""Data walks once from the settings to the first process: the calls of functions of this repository are counted."""

import subprocess
import sys
from pathlib import Path

from shared.root import ROOT

MOST_CALLS, MOST_FILES = 1_350, 56
"""From the settings of `--game pong --preset ppo-quick`, as parsed, to the start of the first process."""

ROOMS = tuple(f"{ROOT / room}/" for room in ("actors", "learner", "shared", "ringside", "workers"))

PROGRAM = f"""
import sys
from multiprocess.context import SpawnProcess
from ringside.run import planning, training
from ringside.command import train
class Started(BaseException): pass

def start(process):
    sys.setprofile(None)
    raise Started

importing, files = 0, []
def count(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_filename.startswith({ROOMS!r}):
        if code.co_name == "<module>":
            importing += {{"call": 1, "return": -1}}.get(event, 0)
        elif event == "call" and not importing and not code.co_name.startswith("<"):
            files.append(code.co_filename)

words = ["--game", "pong", "--preset", "ppo-quick", "--device", "cpu", "--plain", "--run-dir", sys.argv[1]]
config, SpawnProcess.start = train.configuration(words), start
sys.setprofile(count)
try:
    training.run_plan(planning.plan(config), lambda status: None, lambda sentence: None)
except Started:
    print(len(files), len(set(files)))
"""


def test_a_start_calls_few_functions_of_few_files(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    calls, files = map(int, subprocess.check_output(words, cwd=ROOT, text=True, timeout=60).split())
    assert 0 < calls < MOST_CALLS
    assert files < MOST_FILES
