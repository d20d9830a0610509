"""Whole runs of workers in one process: a thread stands for each process, and an exception for its kill."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from shared.memory import wait
from shared.memory.board import Stop
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Stopped, Waiter
from shared.process.child import ChildSpec, Doorbells
from tests.support.worker_memory import LANE_ENVS, T_MAX, WORKERS, worker_config
from workers.worker import WorkerProcess

ACTIONS, ROUNDS = 3, 8
STEPS = ROUNDS * WORKERS * LANE_ENVS * T_MAX
FOREVER = 1 << 62


class Killed(Exception):
    """Ends a life of a process at once."""


class MortalWaiter(Waiter):
    """Kills its process after so many heartbeats: at its start, between two ticks or gradients, before a wait."""

    def __init__(self, heartbeats: int, memory: Memory, spec: ChildSpec, stop_at: int) -> None:
        """After boundary `stop_at` the run is asked to stop, when all have done their part, and its committer dies."""
        super().__init__(memory.board, spec.process, spec.doorbells[spec.process])
        self._applied, self._committer = memory.shared_parameters.applied, memory.plan.committer
        self._left, self._stop_at = heartbeats, stop_at

    def heartbeat(self) -> None:
        super().heartbeat()
        done = self._applied.values.min() > self.board.committed >= self._stop_at
        if done and self.process == self._committer and self.board.stop[0] == Stop.RUN:
            self.board.stop[0] = Stop.FINISH
            raise Killed
        self._left -= 1
        if self._left < 0:
            raise Killed


def _live(memory: Memory, stop_at: int, spec: ChildSpec, lives: Iterator[int]) -> int:
    """Run one process until the last round is committed; return its deaths. `lives`: heartbeats of each."""
    torch.set_num_threads(1)
    deaths = 0
    try:
        for heartbeats in lives:
            with suppress(Killed):
                process = WorkerProcess(memory, MortalWaiter(heartbeats, memory, spec, stop_at), spec)
                process.start()
                process.run()
                break
            deaths += 1
    except Stopped:  # the other process has failed
        pass
    finally:
        if not memory.board.finished:
            memory.board.stop[0] = Stop.ABANDON
    return deaths


def _run(actors: int, kills: bool = False, stop_at: int = FOREVER, **more: Any) -> tuple[dict[str, np.ndarray], int]:
    """Fields of the memory after a run, and the deaths of its processes."""
    game: dict[str, Any] = {"env": "tests.support.pixel_game:factory", "total_steps": STEPS, "optimizer_epsilon": 1e-3}
    plan = Plan(worker_config(actors=actors, **game | more), ACTIONS)
    memory = Memory.create(plan)
    memory.board.prepared[0] = memory.board.records_refused[0] = 1  # nothing waits for a scribe
    bells = Doorbells(tuple(Doorbell.create().fd for _ in range(len(plan.processes))), plan.processes)
    kept: dict[str, Any] = {"plan": plan, "doorbells": bells, "memory_fd": memory.arena.fd, "role": Role.WORKER}
    kept |= {"incarnation": 0, "run_dir": Path(), "cores": None}
    processes = enumerate(plan.processes.indexes_of(Role.WORKER))
    specs = [ChildSpec(number=number, process=process, **kept) for number, process in processes]
    # Some short lives, of which the later ones come further; then one without an end.
    lives = [iter([*(range(15 + 4 * spec.number, 140, 13) if kills else ()), FOREVER]) for spec in specs]
    with ThreadPoolExecutor(actors) as threads:
        try:
            deaths = sum(threads.map(partial(_live, memory, stop_at), specs, lives, timeout=100.0))
        finally:
            memory.board.stop[0] = Stop.ABANDON  # which ends threads that wait for each other
    for fd in (*bells.fds, memory.arena.fd):
        os.close(fd)
    schedule, last = memory.run_schedule, memory.board.last.read()
    state = memory.learner_snapshots.read(last)
    assert all(memory.lane_snapshots.newest(lane) == last for lane in range(schedule.lanes))
    rows = memory.board.metrics[: schedule.record_number(last) + 1, : len(schedule.method.metrics)]
    return {"metrics": rows, **state, **memory.ring.field}, deaths


@pytest.mark.parametrize("recurrent", [True, pytest.param(False, marks=pytest.mark.stress)])
def test_processes_and_deaths_change_nothing(monkeypatch: pytest.MonkeyPatch, *, recurrent: bool) -> None:
    """Parameters, moments, metrics, frames and the states of the LSTM are the same."""
    monkeypatch.setattr(wait, "POLL_SECONDS", 0.01)  # of a killed process nothing rings
    (expected, _), (found, deaths) = _run(1, recurrent=recurrent), _run(2, kills=True, recurrent=recurrent)
    assert deaths >= 8
    assert ("recurrent_state" in expected) == recurrent
    assert not recurrent or expected["recurrent_state"].any()
    np.testing.assert_equal(found, expected)


def test_a_worker_plays_up_to_its_gradient_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later tick is played with later parameters."""
    play, ends = WorkerProcess._play, list[tuple[int, int]]()

    def watch(self: WorkerProcess, lanes: Any, number: int) -> None:
        play(self, lanes, number)
        ends.extend((number, lane.tick) for lane in lanes)

    monkeypatch.setattr(WorkerProcess, "_play", watch)
    _run(1)
    assert ends == [(number, (number + 1) * T_MAX) for number in range(ROUNDS) for _ in range(WORKERS)]


def test_the_last_action_of_a_worker_is_that_of_its_lane() -> None:
    lanes = [SimpleNamespace(index=i, choose=lambda tick, best, i=i: [i, tick, *best]) for i in (3, 1)]
    process: Any = SimpleNamespace(_lanes=SimpleNamespace(played=lanes))
    assert WorkerProcess._choose(process, 1, 7, [5]) == [1, 7, 5]  # type: ignore[arg-type]


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_a_stop_ends_where_all_are_whatever_dies(monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    """Snapshots come every fourth round, so a process that starts again first plays to the last boundary."""
    monkeypatch.setattr(wait, "POLL_SECONDS", 0.01)
    every_fourth = {"snapshot_every_steps": 4 * WORKERS * LANE_ENVS * T_MAX}
    found, deaths = _run(2, kills=True, stop_at=stop_at, **every_fourth)
    (expected, _) = _run(1, total_steps=(stop_at + 1) * WORKERS * LANE_ENVS * T_MAX, **every_fourth)
    assert deaths >= 1
    for name in ("online", "moment2"):  # the first moment of `rms` stays 0
        np.testing.assert_array_equal(found[name], expected[name], name)


REPLAY = {"local_replay": 48, "learning_starts": 72, "batch_size": 8, "round_steps": 72}
METHODS: dict[str, dict[str, Any]] = {"a3c": {}, "vtrace": {}, "pqn": {"epochs": 1}}
METHODS |= {name: {"round_steps": 72} for name in ("sarsa", "n-step-q", "one-step-q")}
METHODS |= dict.fromkeys(("dqn", "c51", "qr-dqn"), REPLAY)


@pytest.mark.stress
@pytest.mark.parametrize("schedule", ["ordered", "async"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_moves_all_parameters(method: str, schedule: str) -> None:
    settings = METHODS[method] | {"method": method, "schedule": schedule}
    found, _ = _run(2, **settings)
    assert np.isfinite(found["metrics"][-1]).all()
    assert np.isfinite(found["online"]).all()
    for name, squares in Plan(worker_config(**settings), ACTIONS).parameters.split(found["moment2"]).items():
        assert squares.any(), name
