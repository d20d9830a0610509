"""The private MPS daemon, with a stand-in for the real one: started, used, ended whatever happens, missed in words."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringside.supervisor.children import Child
from ringside.supervisor.deaths import Cause
from ringside.supervisor.supervisor import Supervisor
from shared.memory.process_table import ProcessTable, Role
from shared.process import mps
from shared.root import ROOT
from tests.support.played_ring import small_config
from tests.support.waiting import until

FAKE = ROOT / "tests/support/fake_mps.py"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the stand-in, which records what happens in this directory; clients need no GPU."""
    folder = tmp_path / "bin"
    folder.mkdir()
    control = folder / mps.CONTROL
    control.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(mps, "client", lambda index: [sys.executable, "-c", _TRIAL])
    return tmp_path


_TRIAL = (
    "import os, pathlib; pathlib.Path(os.environ['RECORD'], 'client').write_text(os.environ['CUDA_MPS_PIPE_DIRECTORY'])"
)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _nothing_left(record: Path) -> bool:
    daemon = json.loads((record / "daemon").read_text())["pid"]
    return _gone(daemon) and _gone(int((record / "server").read_text())) and not any((record / "tmp").iterdir())


def test_a_daemon_lives_as_long_as_the_run(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    notes: list[str] = []
    with mps.service("auto", "cuda:0", notes.append) as service:
        environment = service.environment
        pipe = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert stat.S_IMODE(pipe.parent.stat().st_mode) == 0o700
        told = json.loads((record / "daemon").read_text())["environment"]
        assert told.items() >= environment.items()
        assert "CUDA_VISIBLE_DEVICES" not in told
        assert (record / "client").read_text() == str(pipe)
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert (record / "quit").exists()
    assert _nothing_left(record)
    assert service.environment == {}
    assert not notes


def test_a_server_with_killed_clients_is_shut_down(record: Path) -> None:
    with mps.service("on", "cuda:0", print) as service:
        server = (record / "server").read_text()
        (record / "client").write_text("")
        assert service.renew()
        assert (record / "shut").read_text() == f"shutdown_server {server} -f\n"
        assert (record / "client").read_text(), "a client had another server started before anybody needs it"
        assert service._directory is not None
        (service._directory / "pipe" / "control").unlink()
        assert not service.renew(), "the daemon does not answer"
        (service._directory / "pipe" / "quit").touch()  # as the guardian would tell it, and wait for its end


def test_the_program_is_found_beside_the_driver(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.environ["PATH"].split(":")[0]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(mps, "DRIVER_FOLDER", "/nowhere")
    assert mps.control() is None
    monkeypatch.setattr(mps, "DRIVER_FOLDER", folder)
    assert mps.control() == str(Path(folder) / mps.CONTROL)


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_run_dies(record: Path, death: signal.Signals) -> None:
    program = f"""
import signal, sys
from shared.process import mps
mps.client = lambda index: [sys.executable, "-c", {_TRIAL!r}]
with mps.service("on", "cuda:0", print):
    print("up", flush=True)
    signal.pause()
"""
    run = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    run.send_signal(death)
    run.wait(20)
    run.stdout.close()
    until(lambda: _nothing_left(record))
    assert (record / "quit").exists()


def test_a_guardian_that_is_killed_takes_the_daemon_along(record: Path) -> None:
    service = mps.Service()
    service.start(mps.client(0))
    assert service._guardian is not None
    service._guardian.kill()
    daemon = json.loads((record / "daemon").read_text())["pid"]
    until(lambda: _gone(daemon))
    assert service.environment == {}
    os.kill(int((record / "server").read_text()), signal.SIGKILL)  # no process is left to end the server
    service.quit()
    assert not any((record / "tmp").iterdir())


def test_a_daemon_that_dies_serves_no_client_and_leaves_no_server(record: Path) -> None:
    with mps.service("on", "cuda:0", print) as service:
        os.kill(json.loads((record / "daemon").read_text())["pid"], signal.SIGKILL)
        until(lambda: service.environment == {})
        assert _nothing_left(record)


@pytest.mark.parametrize(
    ("variable", "trial", "says"),
    [
        ("BROKEN", _TRIAL, "ended with code 7"),
        ("FINE", "raise SystemExit('CUDA error 2')", r"could not use the GPU through MPS \(CUDA error 2\)"),
        ("IDLE", "pass", "not through MPS"),
    ],
)
def test_a_service_that_does_not_work_gives_a_reason(
    record: Path, monkeypatch: pytest.MonkeyPatch, variable: str, trial: str, says: str
) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(mps, "client", lambda index: [sys.executable, "-c", trial])
    notes: list[str] = []
    with mps.service("auto", "cuda:0", notes.append) as service:
        assert service.environment == {}
    assert re.search(says, notes[0])
    assert not any((record / "tmp").iterdir())
    with pytest.raises(mps.MpsError, match=says), mps.service("on", "cuda:0", notes.append):
        raise AssertionError("it cannot be had")
    assert not any((record / "tmp").iterdir())


def test_a_server_that_is_starting_is_asked_again(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    third = (
        "import os, pathlib, sys; tries = pathlib.Path(os.environ['RECORD'], 'tries'); tries.touch();"
        "tries.write_text(tries.read_text() + '.'); len(tries.read_text()) < 3 and sys.exit('CUDA error 807')"
    )
    monkeypatch.setattr(mps, "client", lambda index: [sys.executable, "-c", third])
    with mps.service("on", "cuda:0", print) as service:
        assert service.environment
        assert (record / "tries").read_text() == "..."
        (record / "tries").unlink()
        monkeypatch.setattr(mps, "START_SECONDS", 0.0)
        assert not service.renew(), "it is not asked for ever"


@pytest.mark.parametrize(("asked", "device"), [("auto", "cpu"), ("off", "cuda:0")])
def test_none_is_started_where_there_is_nothing_to_share(record: Path, asked: str, device: str) -> None:
    with mps.service(asked, device, print) as service:
        assert service.environment == {}
    assert not (record / "daemon").exists()


def test_a_missing_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(mps, "DRIVER_FOLDER", "/nowhere")
    notes: list[str] = []
    with mps.service("auto", "cuda:0", notes.append) as service:
        assert service.environment == {}
    assert notes == [f"The GPU is shared in turns, without MPS: There is no {mps.CONTROL} on the PATH or in /nowhere."]
    with pytest.raises(mps.MpsError, match="no nvidia-cuda-mps-control"), mps.service("on", "cuda:0", print):
        raise AssertionError("it cannot be had")


class _Process:
    """A process of the stand-in supervisor below."""

    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True

    @property
    def exitcode(self) -> int | None:
        return -signal.SIGKILL if self.killed else None

    def join(self, seconds: float) -> None:
        assert self.killed


class _Gpu:
    """A daemon that is there until it is told to quit."""

    def __init__(self, *, there: bool) -> None:
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": "/there"} if there else {}
        self.renewed = False

    def quit(self) -> None:
        self.environment = {}

    def renew(self) -> bool:
        assert self.environment, "there is a server"
        self.renewed = True
        return True


def _restarted(asked: str, dead: int, deaths: int, *, there: bool, ranks: int = 0) -> tuple[list[int], bool]:
    """Restarts by a supervisor after a death, with and without MPS, and with so many ranks beside the learner."""
    config = small_config().with_settings(mps=asked, actors=1)
    indexes = (Role.SCRIBE, Role.LEARNER, Role.INFERENCE, *range(5, 5 + ranks))
    children: dict[int, Child] = {index: Child(cast(Any, _Process())) for index in indexes}
    for _ in range(deaths):
        children[dead].deaths.add(Cause.OWN, -1)
    gpu, started = _Gpu(there=there), []

    def start(number: int, incarnation: int) -> None:
        assert incarnation == 1
        assert all(children[role].process.killed for role in children if role in started or role == number)
        assert gpu.renewed == (dead != Role.SCRIBE and bool(gpu.environment)), "no process meets the old server"
        started.append(number)

    stand_in = SimpleNamespace(
        _gpu=gpu,
        _children=children,
        _plan=SimpleNamespace(config=config),
        _processes=ProcessTable.make({Role.ACTOR: 1, Role.RANK: ranks}),
        _board=SimpleNamespace(restarts=dict.fromkeys(children, 0)),
        _note=lambda sentence: None,
        _start=start,
    )
    stand_in._may_give_up_mps = lambda number: Supervisor._may_give_up_mps(cast(Supervisor, stand_in), number)
    Supervisor._restart(cast(Supervisor, stand_in), dead, children[dead])
    return started, bool(gpu.environment)


def test_under_mps_learner_and_inference_are_started_again_together() -> None:
    both = [Role.LEARNER, Role.INFERENCE]
    assert _restarted("auto", Role.INFERENCE, 1, there=True) == (both, True)
    assert _restarted("auto", Role.LEARNER, 1, there=False) == ([Role.LEARNER], False)
    assert _restarted("auto", Role.SCRIBE, 1, there=True) == ([Role.SCRIBE], True)
    assert _restarted("auto", Role.LEARNER, 2, there=True) == (both, False)
    assert _restarted("on", Role.LEARNER, 4, there=True) == (both, True)


@pytest.mark.parametrize("dead", [Role.LEARNER, 5, 6])
def test_ranks_of_a_learner_are_started_again_together(dead: int) -> None:
    assert _restarted("off", dead, 1, there=False, ranks=2) == ([Role.LEARNER, 5, 6], False)
    assert _restarted("off", Role.INFERENCE, 1, there=False, ranks=2) == ([Role.INFERENCE], False)


_TELLS = """
import os
def main(birth):
    print("MPS", os.environ.get("CUDA_MPS_PIPE_DIRECTORY"))
"""


def test_a_role_is_given_its_environment_before_it_loads_anything(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "tells.py").write_text(_TELLS)
    program = f"""
import os, pathlib, sys
from shared.memory.process_table import ProcessTable, Role
from shared.process.child import ChildSpec, run_role
sys.path.append({str(tmp_path)!r})
run_role("tells", ChildSpec(plan=None, memory_fd=0, doorbells=None, role=Role.LEARNER, number=0, process=1,
    incarnation=0, parent=os.getppid(), run_dir=pathlib.Path({str(tmp_path)!r}), cores=None,
    environment={{"CUDA_MPS_PIPE_DIRECTORY": "/there"}}))
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=30)
    assert (tmp_path / "logs" / "learner.log").read_text() == "MPS /there\n"
