"""Ends of a role's process, with and without a working log."""

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from shared.process.child import DEVICE_FAULT, ENV_FAULT, FATAL
from shared.root import ROOT

PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from shared.memory.process_table import Role
from shared.process.child import run_role
directory, role = Path(sys.argv[1]), Role[sys.argv[2]]
sys.path.append(str(directory))
run_role("failing_role", SimpleNamespace(run_dir=directory, name="learner", role=role, cores=None))
"""


def run_failing_role(directory: Path, source: str, role: str = "LEARNER", *, full: bool = False) -> int:
    """Exit code of a process whose role has this source; its log is logs/learner.log. `full`: no file can grow."""
    (directory / "failing_role.py").write_text(source)
    (directory / "logs").mkdir(exist_ok=True)
    words = [sys.executable, "-c", PROGRAM, str(directory), role]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0)) if full else None
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    return subprocess.run(words, cwd=ROOT, env=buffered, timeout=60, check=False, preexec_fn=limit).returncode


CODES = [("FatalError", FATAL), ("DeviceFault", DEVICE_FAULT), ("EnvFault", ENV_FAULT)]


@pytest.mark.parametrize(("error", "code"), CODES)
@pytest.mark.parametrize("full", [False, True])
def test_a_log_whose_disk_is_full_hides_no_exit_code(tmp_path: Path, error: str, code: int, full: bool) -> None:
    log = tmp_path / "logs" / "learner.log"
    source = f"from shared.errors import {error}\ndef main(birth):\n    print('said')\n    raise {error}('It broke.')\n"
    assert run_failing_role(tmp_path, source, full=full) == code
    if not full:
        assert log.read_text().endswith("It broke.\n")
        assert ("Traceback" in log.read_text()) == (error != "FatalError")


def test_a_role_whose_log_is_a_link_runs_without_one(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "learner.log").symlink_to(outside := tmp_path / "outside")
    assert (run_failing_role(tmp_path, "def main(child_spec): print('here')\n"), outside.exists()) == (0, False)


def test_objects_of_a_role_are_left_out_of_garbage_collection(tmp_path: Path) -> None:
    """With PyTorch they would take half a second of the end of a process, which a stop waits for."""
    loaded = "LOADED = [[] for _ in range(100_000)]"
    main = "def main(child_spec): raise SystemExit(5 if gc.get_freeze_count() > len(LOADED) else 6)"
    assert run_failing_role(tmp_path, f"import gc\n{loaded}\n{main}\n") == 5


@pytest.mark.parametrize("role", ["ACTOR", "EVALUATOR", "WORKER"])
@pytest.mark.parametrize(("end", "code"), [("return", 0), ("raise FatalError('It broke.')", FATAL)])
def test_threads_of_an_env_keep_no_process_alive(tmp_path: Path, role: str, end: str, code: int) -> None:
    head = "import atexit, threading\nfrom shared.errors import FatalError\natexit.register(print, 'left')\n"
    main = f"def main(child_spec):\n    threading.Thread(target=threading.Event().wait).start()\n    {end}\n"
    assert run_failing_role(tmp_path, head + main, role) == code
    assert (tmp_path / "logs" / "learner.log").read_text().endswith("left\n")
