"""Ends and deaths that a user meets: nothing is left behind, and what happened is said in a sentence."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from shared.process.signals import TELL_STACKS
from tests.crash.storm import FLAGS, Undisturbed, result_of
from tests.crash.test_deaths_of_workers import WORKERS
from tests.support.checkpoints import boundary_in
from tests.support.runs import begun, child, finish, gone, shared_names, start, wait_until

ROLES = ("scribe", "learner", "inference", "actor 0", "actor 1")


ONE_LANE = {"envs": "2", "inference_batch": "2"}
"""So one env fails first, each time."""
WORKER_DEATHS = [
    pytest.param("raises", "worker 0", WORKERS | {"schedule": schedule}, id=schedule, marks=pytest.mark.stress)
    for schedule in ("async", "ordered")
]


DEATHS = [("raises", "actor 0", {}), ("repeats", "actor 0", ONE_LANE), *WORKER_DEATHS]


@pytest.mark.parametrize(("env", "role", "flags"), DEATHS)
def test_a_role_that_cannot_live_ends_the_run(run_dir: Path, env: str, role: str, flags: dict[str, str]) -> None:
    """An error that seed and actions repeat is told once."""
    output = finish(start(run_dir, **flags | {"env": f"tests.crash.failing:{env}", "actors": "1"}), code=1)
    times = output.count(f"{role} met an error of its env; it starts again")
    assert times >= 4 if env == "raises" else times == 1
    assert "the cartridge fell out" in output
    if env == "repeats":
        assert "RuntimeError: the cartridge fell out (failing.py, line " in output
        assert f"Restarts of {role} did not help; the traceback is in " in output
    assert "Traceback" not in output
    assert "Traceback" in (run_dir / "logs" / f"{role.replace(' ', '-')}.log").read_text()
    assert boundary_in(run_dir)


@pytest.mark.timeout(300)
def test_a_killed_launcher_takes_children_along_and_the_run_resumes(undisturbed: Undisturbed, run_dir: Path) -> None:
    before = shared_names()
    process, memory = begun(run_dir, checkpoint_every_minutes="0.001", **FLAGS, actions=3, committed=1)
    wait_until(process, lambda: all(child(process, role) for role in ROLES))
    # Scribe and actors load no PyTorch, and an actor has little memory of its own.
    scribe, actor = (child(process, role).memory_maps(grouped=False) for role in ("scribe", "actor 0"))
    assert not [m.path for m in (*scribe, *actor) if "libtorch" in m.path]
    assert sum(m.private_dirty for m in actor if "memfd" not in m.path) < 100e6
    wait_until(process, lambda: memory.board.saved[0] >= 3)
    learner, log = child(process, "learner"), run_dir / "logs" / "learner.log"
    learner.send_signal(TELL_STACKS)
    wait_until(process, lambda: "Current thread" in log.read_text(), every=0.01)
    told = memory.board.updates.item(0)
    wait_until(process, lambda: memory.board.updates.item(0) > told or memory.board.finished)
    assert memory.board.restarts.sum() == 0, "it only tells"
    process.kill()
    process.wait()
    assert gone(process)
    assert shared_names() <= before
    assert not (run_dir / "summary.json").exists()
    finish(start(run_dir, "--resume", str(run_dir), env=FLAGS["env"]))
    assert result_of(run_dir) == undisturbed("4_800")


@pytest.mark.parametrize("begins", [False, True])
def test_a_second_ctrl_c_ends_a_run(run_dir: Path, *, begins: bool) -> None:
    """One that has only begun, or one whose scribe does not save. As a terminal does, SIGINT goes to all processes."""
    process, _ = begun(run_dir, total_steps="1_000_000", committed=-1 if begins else 1)
    if not begins:
        child(process, "scribe").suspend()  # so that nothing is saved before the second
    deadline = time.monotonic() + 60
    while process.poll() is None:  # what comes within a second of the first is the same signal twice
        assert time.monotonic() < deadline
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.1)
    process.communicate(timeout=10)
    # 0: it had saved before the second came; 130: no child had started.
    assert process.returncode in ((0, 1, 130) if begins else (1,))
    assert gone(process)
