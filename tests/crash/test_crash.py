"""Ends and deaths that a user meets: nothing is left behind, and what happened is said in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from shared.process.signals import TELL_STACKS
from tests.crash.storm import FLAGS, Undisturbed, result_of
from tests.support.runs import begun, child, finish, gone, memory_of, shared_names, spawning, start, wait_until

ROLES = ("scribe", "learner", "inference", "actor 0", "actor 1")


def all_there(process: subprocess.Popen[str]) -> bool:
    return all(child(process, role) is not None for role in ROLES)


def _require_light(process: subprocess.Popen[str]) -> None:
    """Scribe and actors load no PyTorch, and an actor has little memory of its own."""
    for role in ("actor 0", "scribe"):
        maps = child(process, role).memory_maps(grouped=False)
        assert not [m.path for m in maps if "libtorch" in m.path]
        if role == "actor 0":
            assert sum(m.private_dirty for m in maps if "memfd" not in m.path) < 100e6


def test_a_role_that_cannot_live_ends_the_run(tmp_path: Path) -> None:
    process = start(tmp_path / "run", env="tests.crash.failing:raises", actors="1")
    output = finish(process, code=1)
    assert output.count("it starts again") >= 4
    assert "the cartridge fell out" in output
    assert "Traceback" not in output
    assert "Traceback" in (tmp_path / "run" / "logs" / "actor-0.log").read_text()
    assert list((tmp_path / "run" / "checkpoints").glob("checkpoint-*.json"))
    assert gone(process)


def test_an_error_that_seed_and_actions_repeat_is_told_once(tmp_path: Path) -> None:
    one_lane = {"envs": "2", "inference_batch": "2", "actors": "1"}  # so one env fails first, each time
    process = start(tmp_path / "run", env="tests.crash.failing:repeats", **one_lane)
    output = finish(process, code=1)
    assert output.count("actor 0 met an error of its env; it starts again") == 1
    assert "RuntimeError: the cartridge fell out (failing.py, line " in output
    assert "A restart of actor 0 met it again; the traceback is in " in output
    assert "Traceback" not in output
    assert "Traceback" in (tmp_path / "run" / "logs" / "actor-0.log").read_text()
    assert gone(process)


@pytest.mark.timeout(300)
def test_killing_the_launcher_takes_all_children_along_and_the_run_can_be_resumed(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    before, run_dir = shared_names(), tmp_path / "run"
    process, memory = begun(run_dir, checkpoint_every_minutes="0.001", **FLAGS, actions=3)
    wait_until(process, lambda: memory.board.committed >= 1 and all_there(process))
    _require_light(process)
    wait_until(process, lambda: memory.board.saved[0] >= 3)
    learner, log = child(process, "learner"), run_dir / "logs" / "learner.log"
    learner.send_signal(TELL_STACKS)
    wait_until(process, lambda: "Current thread" in log.read_text(), every=0.01)
    assert learner.is_running(), "it only tells"
    process.kill()
    process.wait()
    assert gone(process)
    assert shared_names() <= before
    assert not (run_dir / "summary.json").exists()
    finish(start(run_dir, "--resume", str(run_dir), env=FLAGS["env"]))
    assert result_of(run_dir) == undisturbed("4_800")[0]


@pytest.mark.stress
def test_roles_that_are_still_starting_go_on_when_asked_for_stacks_and_end_with_the_launcher(tmp_path: Path) -> None:
    process = start(tmp_path / "run", program=("tests/support/starting.py",))
    children = psutil.Process(process.pid).children
    wait_until(process, lambda: sum(spawning(child) for child in children()) == len(ROLES))
    starting = children()
    os.killpg(process.pid, TELL_STACKS)
    assert len(starting) == len(ROLES) + 1, "multiprocess has a resource tracker"
    assert not psutil.wait_procs(starting, timeout=1.0)[0]
    process.kill()
    process.wait()
    assert gone(process)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Send SIGINT to all processes, as a terminal does, until the run has ended."""
    deadline = time.monotonic() + 30
    while process.poll() is None:  # what comes within a second of the first is the same signal twice
        assert time.monotonic() < deadline
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.1)
    process.communicate(timeout=10)


def test_a_second_ctrl_c_ends_a_run_whose_scribe_does_not_save(tmp_path: Path) -> None:
    process, memory = begun(tmp_path / "run", total_steps="1_000_000")
    wait_until(process, lambda: memory.board.committed >= 1)
    child(process, "scribe").suspend()  # so that nothing is saved before the second
    _interrupt(process)
    assert process.returncode == 1
    assert gone(process)


def test_a_second_ctrl_c_ends_a_run_that_has_only_begun(tmp_path: Path) -> None:
    process = start(tmp_path / "run", total_steps="1_000_000")
    memory_of(process, tmp_path / "run")
    _interrupt(process)
    assert process.returncode in (0, 1, 130)  # 0: it had saved before the second came; 130: no child had started
    assert gone(process)
