"""Whole runs on a simulated GPU: the weights after kills, a stop and faults are those of the undisturbed run."""

import signal
from pathlib import Path

import pytest

from shared.memory.run_memory import Memory
from tests.crash.simulated_device import BUSY
from tests.crash.storm import FLAGS, Result, result_of
from tests.exact.conftest import stop_at
from tests.support.checkpoints import boundary_in
from tests.support.runs import Process, finish, kill, memory_of, start, summary, wait_until

pytestmark = pytest.mark.timeout(900)
stress = pytest.mark.stress

ON_GPU = {**FLAGS, "device": "cuda", "precision": "fp32", "inference_batch": "8", "total_steps": "3_360"}
SECONDS = 400.0


def begin(run_dir: Path, fault: str, *words: str, **flags: str) -> Process:
    """Start a run with a seed and a fault (tests/crash/simulated_device.py)."""
    return start(run_dir, *words, program=("-m", "tests.crash.simulated_device", fault), **(flags or ON_GPU))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Result of the run that nothing disturbs."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    ended(begin(run_dir, "0 learner none 0 once"), run_dir)
    assert summary(run_dir)["restarts"] == 0
    return result_of(run_dir)


def ended(process: Process, run_dir: Path, code: int = 0) -> str:
    """As `finish`; and no process has ended while its device worked, which its log would tell."""
    output = finish(process, SECONDS, code)
    logs = [(run_dir / "logs" / f"{role}.log").read_text() for role in ("learner", "inference")]
    assert not any(BUSY in log for log in logs)
    return output


def _memory_at(process: Process, run_dir: Path, boundary: int) -> Memory:
    """The memory of the run, when it has committed a boundary."""
    memory = memory_of(process, run_dir, actions=3)
    wait_until(process, lambda: memory.board.committed >= boundary, SECONDS)
    return memory


@stress
def test_kills_and_another_schedule_change_nothing(undisturbed: Result, run_dir: Path) -> None:
    process = begin(run_dir, "1 learner none 0 once")
    for role, boundary in (("learner", 2), ("inference", 4)):
        _memory_at(process, run_dir, boundary)
        kill(process, role)
    ended(process, run_dir)
    assert (summary(run_dir)["restarts"], result_of(run_dir)) == (2, undisturbed)


@stress
def test_a_stop_and_a_resume_change_nothing(undisturbed: Result, run_dir: Path) -> None:
    process = begin(run_dir, "2 learner none 0 once")
    stop_at(process, _memory_at(process, run_dir, 4), 4, signal.SIGINT)
    ended(begin(run_dir, "2 learner none 0 once", "--resume", str(run_dir), env=FLAGS["env"]), run_dir)
    assert result_of(run_dir) == undisturbed


ONCE = [
    *((role, fault) for role in ("learner", "inference") for fault in ("memory 5", "lost 5", "lost 2000")),
    ("learner", "memory 400"),  # the inference server, which answers by graphs, allocates little after its start
]


@stress
@pytest.mark.parametrize(("role", "fault"), ONCE)
def test_a_fault_that_comes_once_changes_nothing(undisturbed: Result, run_dir: Path, role: str, fault: str) -> None:
    process = begin(run_dir, f"3 {role} {fault} once")
    assert f"{role} met a fault of the GPU; it starts again" in ended(process, run_dir)
    assert (summary(run_dir)["restarts"], result_of(run_dir)) == (1, undisturbed)


ALWAYS = [
    ("learner", "memory", "OutOfMemoryError", "The GPU is out of memory: CUDA out of memory. Tried to", False),
    pytest.param("inference", "lost", "AcceleratorError", "The GPU failed", True, marks=stress),
]


@pytest.mark.parametrize(("role", "fault", "error", "says", "saved"), ALWAYS)
def test_a_fault_at_every_start_is_answered_by_one_restart_and_then_by_the_end(
    run_dir: Path, role: str, fault: str, error: str, says: str, saved: bool
) -> None:
    output = ended(begin(run_dir, f"4 {role} {fault} 30 always"), run_dir, code=1)
    assert output.count("; it starts again") == 1
    words = (says, f"{role} met a fault of the GPU, 2 times in a row without progress", "Traceback")
    assert [word in output for word in words] == [True, True, False], output
    assert ("--replay-on host keeps a replay buffer in main memory" in output) == (fault == "memory")
    assert error in (run_dir / "logs" / f"{role}.log").read_text()
    assert ("Continue it with" if saved else "Nothing was saved") in output
    assert any((run_dir / "checkpoints").glob("checkpoint-*.json")) == saved
    assert not saved or boundary_in(run_dir)
