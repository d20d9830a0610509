"""The main loop of an actor: progress, and rings of doorbells."""

from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

from actors import actor as module
from actors.actor import Housekeeping
from shared.memory.board import Phase
from shared.memory.process_table import Role
from tests.actors.test_lane import memory_of_lane
from tests.support.counting_env import Counting


def test_steps_are_progress_and_wake_who_may_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make an env may take longer than any silence of an actor at work: it is done in the phase of a start."""
    memory, rung, points, phases = memory_of_lane(), list[str](), list[int](), list[Phase]()
    process = memory.plan.processes.index_of(Role.ACTOR)
    memory.board.prepared[0], memory.board.redone[process], memory.board.furthest[process] = 1, 3, 100
    memory.board.phase[process] = Phase.WAITING

    def note_phase() -> None:
        phases.append(Phase(int(memory.board.phase[process])))

    waiter = Mock(process=process, heartbeat=note_phase, wait=lambda ready: ready(), note_progress=points.append)
    monkeypatch.setattr(module, "make_env", lambda *arguments, **options: note_phase() or Counting())
    bells = MagicMock(of_role={Role.ACTOR: [Mock()]}.__getitem__)
    bells.__getitem__.side_effect = lambda role: Mock(ring=lambda: rung.append(role.name))
    housekeeping = Housekeeping(memory, waiter, Mock(process=process, number=0, doorbells=bells))
    housekeeping.start()
    assert phases[:8] == [Phase.STARTING, Phase.WAITING] * 4, "of the call, and of the heartbeat after it"
    assert set(rung) == {"LEARNER", "INFERENCE"}
    assert not housekeeping.tend_lanes()
    assert memory.board.phase[process] == Phase.WORKING
    rung.clear()
    lanes, told = housekeeping.lanes, []
    for _ in range(memory.run_schedule.round_ticks):
        memory.mailbox.answer(np.arange(2), memory.mailbox.request.values.copy(), np.zeros((2, 2), np.uint8))
        for lane in lanes.ready():
            housekeeping.after_step(lane, lanes.step(lane))
            told.append((lane.index, *rung))
            rung.clear()
    *_, before, last = (told[i : i + 2] for i in range(0, len(told), 2))
    assert before == [(0,), (1, "INFERENCE")], "the second asks for the last lane of the batch"
    assert last == [(0, "LEARNER"), (1, "LEARNER", "INFERENCE")]
    assert points == list(range(101, 101 + len(told)))
    assert memory.board.redone[process] == 3
    rung.clear()
    housekeeping.wait()
    assert rung == ["INFERENCE"]
    memory.arena.close()
