"""The fork server of a run: it has one thread and nothing of the run, and dies with those that it forked."""

import os
from pathlib import Path

import psutil
import pytest

from shared.memory.memory_need import MEMBER_BYTES
from tests.crash.storm import FLAGS, Undisturbed, result_of
from tests.support.runs import Process, begun, child, finish, fork_server_of, living, summary, wait_until
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

FORKED = ("learner", "member 1", "inference")
TEAM = {"learner_members": "2"}


def _forked(process: Process) -> list[psutil.Process]:
    """Processes that the fork server has forked, once they are all there."""
    wait_until(process, lambda: all(child(process, role) is not None for role in FORKED))
    found = fork_server_of(process).children()
    assert {each.cmdline()[0] for each in found} == {f"ringside {role}" for role in FORKED}
    return found


def test_it_dies_with_its_processes_and_changes_nothing(undisturbed: Undisturbed, run_dir: Path) -> None:
    process, _ = begun(run_dir, **FLAGS, **TEAM, actions=3, committed=1)
    forked, server = _forked(process), fork_server_of(process)
    assert server.num_threads() == 1
    assert "memfd" not in " ".join(os.readlink(link) for link in Path(f"/proc/{server.pid}/fd").iterdir())
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    server.kill()
    until(lambda: living(forked) is None, every=0.05)
    finish(process)
    assert (result_of(run_dir), summary(run_dir)["restarts"]) == (undisturbed("4_800"), len(FORKED))


@pytest.mark.stress
def test_one_that_is_stopped_goes_on_once_it_is_needed(undisturbed: Undisturbed, run_dir: Path) -> None:
    process, _ = begun(run_dir, **FLAGS, **TEAM, actions=3, committed=1)
    forked, server = _forked(process), fork_server_of(process)
    server.suspend()
    next(each for each in forked if each.cmdline()[0] == "ringside learner").kill()
    finish(process)
    assert (result_of(run_dir), summary(run_dir)["restarts"]) == (undisturbed("4_800"), 2)


@pytest.mark.stress
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_members_have_little_memory_of_their_own(run_dir: Path, precision: str) -> None:
    """After 1,000 updates of a network of usual size."""
    usual = {"network": "nature", "batch_size": "32", "replay_size": "24_000", "total_steps": "1_000_000"}
    process, memory = begun(run_dir, **FLAGS, **TEAM, **usual, precision=precision, actions=3)
    wait_until(process, lambda: memory.board.updates[0] >= 1_000, 200.0)
    for each in (each for each in _forked(process) if each.cmdline()[0] != "ringside inference"):
        maps = each.memory_maps(grouped=False)
        assert sum(m.private_dirty for m in maps if "memfd" not in m.path) < MEMBER_BYTES, each.cmdline()[0]
