"""Whole runs on a simulated GPU: the weights after kills, a stop and faults are those of the undisturbed run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.storm import FLAGS, result_of
from tests.support.runs import finish, gone, kill, memory_of, start, summary, wait_until

pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]

SIMULATED = ("-m", "tests.crash.simulated_device")
ON_GPU = {**FLAGS, "device": "cuda", "precision": "fp32", "inference_batch": "8", "total_steps": "3_360"}
SECONDS = 400.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Result of the run that nothing disturbs."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMULATED_GPU", "0 learner none 0 once")
        finish(start(run_dir, program=SIMULATED, **ON_GPU), SECONDS)
    assert summary(run_dir)["restarts"] == 0
    return result_of(run_dir)


def test_kills_and_another_schedule_change_nothing(
    undisturbed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_GPU", "1 learner none 0 once")
    process = start(tmp_path / "run", program=SIMULATED, **ON_GPU)
    memory = memory_of(process, tmp_path / "run", actions=3)
    for role, boundary in (("learner", 2), ("inference", 4)):
        wait_until(process, lambda boundary=boundary: memory.board.committed >= boundary, SECONDS)
        kill(process, role)
    finish(process, SECONDS)
    assert summary(tmp_path / "run")["restarts"] == 2
    assert result_of(tmp_path / "run") == undisturbed


def test_a_stop_and_a_resume_change_nothing(
    undisturbed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_GPU", "2 learner none 0 once")
    process = start(tmp_path / "run", program=SIMULATED, **ON_GPU)
    memory = memory_of(process, tmp_path / "run", actions=3)
    wait_until(process, lambda: memory.board.committed >= 4, SECONDS)
    process.send_signal(signal.SIGINT)
    finish(process, SECONDS)
    assert gone(process)
    resumed = start(tmp_path / "run", "--resume", str(tmp_path / "run"), program=SIMULATED, env=FLAGS["env"])
    finish(resumed, SECONDS)
    assert result_of(tmp_path / "run") == undisturbed


@pytest.mark.parametrize(
    ("role", "fault", "at"),
    [
        (role, fault, at)
        for role in ("learner", "inference")
        for fault, at in (("memory", 5), ("lost", 5), ("lost", 2_000))
    ]
    + [("learner", "memory", 400)],  # the inference server, which answers by graphs, allocates little after its start
)
def test_a_fault_that_does_not_come_again_changes_nothing(
    undisturbed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, fault: str, at: int
) -> None:
    monkeypatch.setenv("SIMULATED_GPU", f"3 {role} {fault} {at} once")
    output = finish(start(tmp_path / "run", program=SIMULATED, **ON_GPU), SECONDS)
    assert f"{role} met a fault of the GPU; it starts again" in output
    assert summary(tmp_path / "run")["restarts"] == 1
    assert result_of(tmp_path / "run") == undisturbed


@pytest.mark.parametrize(
    ("role", "fault", "says", "saved"),
    [("learner", "memory", "out of memory", False), ("inference", "lost", "The GPU failed", True)],
)
def test_a_fault_at_every_start_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, fault: str, says: str, saved: bool
) -> None:
    monkeypatch.setenv("SIMULATED_GPU", f"4 {role} {fault} 30 always")
    process = start(tmp_path / "run", program=SIMULATED, **ON_GPU)
    output = finish(process, SECONDS, code=1)
    assert f"{role} met a fault of the GPU, 2 times in a row without progress" in output
    assert says in output
    assert "Traceback" not in output
    assert ("Continue it with" if saved else "Nothing was saved") in output
    assert any((tmp_path / "run" / "checkpoints").glob("checkpoint-*.json")) == saved
    assert gone(process)
