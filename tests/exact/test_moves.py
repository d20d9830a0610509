"""Lanes that move between actors, with and without deaths, change nothing. Lanes are wanted elsewhere by the test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from shared.memory.run_memory import Memory
from tests.exact.conftest import Undisturbed, kill_when, stop_at
from tests.support.runs import begun, finish, kill, same_summary, start, wait_until

pytestmark = pytest.mark.stress


@contextmanager
def moving(process: subprocess.Popen[str], memory: Memory) -> Iterator[list[int]]:
    """Want every lane at the next actor, over and over; yields how many lanes have moved so often."""
    board, ended, moved = memory.board, Event(), list[int]()

    def turn() -> None:
        while not ended.wait(0.002):
            if np.array_equal(board.lane_owner, board.lane_wanted):
                board.lane_wanted[:] = (board.lane_owner + 1) % memory.plan.actors
                moved.append(len(board.lane_owner))

    thread = Thread(target=turn)
    thread.start()
    try:
        yield moved
    finally:
        ended.set()
        thread.join()


def test_all_lanes_move_at_every_boundary(undisturbed: Undisturbed, run_dir: Path) -> None:
    process, memory = begun(run_dir, balance="off", actors="3")
    with moving(process, memory) as moved:
        finish(process)
    last = same_summary(run_dir, undisturbed(balance="off"))
    assert len(moved) >= 9
    assert (last["redone_ticks"], last["restarts"]) == (0, 0)


def test_stopped_among_moves_and_resumed(undisturbed: Undisturbed, run_dir: Path) -> None:
    process, memory = begun(run_dir, balance="off")
    with moving(process, memory) as moved:
        stop_at(process, memory, 4)
    assert len(moved) >= 4
    finish(start(run_dir, "--resume", str(run_dir), balance="auto", actors="4"))
    assert same_summary(run_dir, undisturbed(balance="off"))["rounds"] == 10


def test_giver_and_taker_die_around_a_move(undisturbed: Undisturbed, run_dir: Path) -> None:
    process, memory = begun(run_dir, balance="off")
    board = memory.board

    def want(actor: int) -> None:
        """Want lane 2 there, in mid-round."""
        round_ = board.committed
        wait_until(process, lambda: board.committed > round_)
        assert board.lane_owner[2] != actor
        board.lane_wanted[2] = actor

    def moved() -> None:
        wait_until(process, lambda: board.lane_owner[2] == board.lane_wanted[2])

    want(1)
    kill(process, "actor 0")  # it comes back as the owner, and gives
    moved()
    want(0)
    moved()
    kill(process, "actor 0")  # it makes emulators, or has just begun
    want(1)
    finished = int(board.lane_finished.values[2])
    kill_when(process, "actor 0", lambda: board.lane_finished.values[2] > finished)
    kill(process, "actor 1")
    moved()
    finish(process)
    assert same_summary(run_dir, undisturbed(balance="off"))["restarts"] == 4
