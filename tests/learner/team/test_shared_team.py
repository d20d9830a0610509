"""Members that share memory: barriers, numbers that they compare, sleep, and memory that is not there."""

import errno
import os
from collections.abc import Callable, Iterator
from mmap import PAGESIZE
from multiprocessing import get_context
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from learner.team import shared_team
from learner.team.shared_team import SharedTeam
from shared.errors import FatalError
from shared.memory.wait import POLL_SECONDS, Doorbell, Stopped, Waiter
from tests.support.waiting import until

MEMBERS, TURNS = 8, 50


class Bell:
    """A doorbell that does `meanwhile` in every sleep; without it nothing may sleep."""

    def __init__(self) -> None:
        self.rings, self.meanwhile = 0, list[Callable[[], object]]()

    def ring(self) -> None:
        self.rings += 1

    def wait(self, seconds: float) -> None:
        assert seconds <= POLL_SECONDS, "every wait is bounded"
        self.meanwhile.pop(0)()


@pytest.fixture
def fd() -> Iterator[int]:
    made = os.memfd_create("team")
    yield made
    os.close(made)


def _member(rank: int, fd: int, bells: list[Any]) -> SharedTeam:
    names = ("busy_ns", "waited_ns", "cpu_ns", "heartbeat", "private_bytes", "phase")
    board = Mock(**{name: np.zeros(len(bells), np.int64) for name in names}, stopping=False)
    return SharedTeam(rank, fd, Waiter(board, rank, bells[rank]), bells)


Pair = tuple[SharedTeam, SharedTeam, list[Bell]]


@pytest.fixture
def pair(fd: int) -> Pair:
    """Two members and their doorbells."""
    bells = [Bell(), Bell()]
    return _member(0, fd, bells), _member(1, fd, bells), bells


def _work(rank: int, fd: int, doorbells: list[Doorbell], cores: set[int]) -> None:
    """Add up what all have written, turn by turn, and compare numbers."""
    os.sched_setaffinity(0, cores)
    team = _member(rank, fd, doorbells)
    written = team.zeros(MEMBERS, 3).numpy()
    for turn in range(TURNS):
        written[rank] = turn * (rank + 1)
        team.sync()
        assert written.sum() == 3 * turn * MEMBERS * (MEMBERS + 1) // 2
        team.exchange(torch.empty(0))
    assert [team.lead(turn + rank) for turn in range(TURNS)] == list(range(TURNS))
    team.meet(5, "something")
    says = r"members of the learner disagree about the answer \(7, 7, 7, 6, 7, 7, 7, 7\): their"
    with pytest.raises(FatalError, match=says):
        team.meet(6 if rank == 3 else 7, "the answer")


@pytest.mark.parametrize("spins", [0, shared_team.SPINS])
def test_processes_meet_on_fewer_cores(fd: int, spins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_team, "SPINS", spins)
    doorbells, cores = [Doorbell.create() for _ in range(MEMBERS)], {min(os.sched_getaffinity(0))}
    make = get_context("fork").Process
    members = [make(target=_work, args=(rank, fd, doorbells, cores), daemon=True) for rank in range(MEMBERS)]
    for member in members:
        member.start()
    try:
        until(lambda: all(member.exitcode == 0 for member in members) or any(member.exitcode for member in members))
    finally:
        for member in members:
            member.kill()  # one that waits for a member that has failed
    assert [member.exitcode for member in members] == [0] * MEMBERS


def test_a_member_that_sleeps_is_woken_by_the_last(pair: Pair) -> None:
    """It looks again after a ring for another reason, and a member that is awake is not rung for."""
    one, other, bells = pair
    bells[0].meanwhile = [lambda: None] * 20 + [other.sync]
    one.sync()
    assert [bell.rings for bell in bells] == [1, 0]
    bells[0].meanwhile = [lambda: other._arrive()]
    with pytest.raises(IndexError):  # the other has not come to the second barrier of a meeting
        one.meet(0, "something")
    assert [bell.rings for bell in bells] == [2, 0]


@pytest.mark.parametrize("wait", [SharedTeam.sync, lambda team: team.meet(1, "something")], ids=["barrier", "meeting"])
def test_a_run_that_stops_ends_a_wait(pair: Pair, wait: Callable[[SharedTeam], None]) -> None:
    one, _, bells = pair
    bells[0].meanwhile = [lambda: None, lambda: setattr(one._waiter.board, "stopping", True)]
    with pytest.raises(Stopped):
        wait(one)
    assert not bells[0].meanwhile


SHAPES = {(3, 5): torch.float32, (0, 4): torch.int64, (PAGESIZE + 1,): torch.uint8, (2,): torch.bfloat16}


def test_members_find_zeros_at_the_same_place(pair: Pair, fd: int) -> None:
    one, other, _ = pair
    for shape, dtype in SHAPES.items():
        mine, yours = (team.zeros(*shape, dtype=dtype) for team in (one, other))
        assert (mine.shape, mine.dtype) == (yours.shape, yours.dtype) == (shape, dtype)
        assert mine.data_ptr() % PAGESIZE == 0 == mine.count_nonzero()
        mine.fill_(3)
        assert torch.equal(mine, yours)
    assert os.fstat(fd).st_blocks * 512 >= os.fstat(fd).st_size, "their memory is reserved"


def test_memory_that_is_not_there_is_a_sentence(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))))
    says = r"Memory of 0\.04 GB .* \(Cannot allocate memory\): pass fewer --learner-members, or free memory\."
    with pytest.raises(FatalError, match=says):
        pair[0].zeros(10_000_000)
