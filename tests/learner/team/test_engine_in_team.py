"""Rounds of learning by a team: parameters, snapshots and metrics have the bits of one member, in every member."""

from typing import Any

import numpy as np
import pytest
import torch

from learner import make_engine
from learner.networks.divided import DividedModel
from learner.team.team import Team
from shared.config.presets import PRESETS
from tests.support.device_work import Numbers, Work, learn, make_test_engine, played_ring
from tests.support.played_ring import stored_state
from tests.support.thread_team import in_team

CPU = torch.device("cpu")
USUAL = [
    Work("quick", parts=4, round_steps=44, batch=6),
    Work("ppo", parts=8, round_steps=60, batch=12),
    Work("rainbow", parts=8, round_steps=20, batch=6),
    Work("nature", "bf16", parts=8),
    Work("a2c", parts=8, recurrent=True),
    Work("ppo", parts=4, batch=2),
]
"""Batches that the parts do not divide and a short last chunk, of Double DQN and of a method whose loss is a mean over
the whole minibatch; priorities and noise, with fewer updates than parts; bfloat16; fewer sequences than parts; a
member without rows."""
LEARNERS = [name for name, preset in PRESETS.items() if not preset.play.workers]
ALL = [Work(preset, precision, parts=8) for preset in LEARNERS for precision in ("fp32", "bf16")]
ALL += [Work(preset, "bf16", parts=4, recurrent=True) for preset in ("a2c", "ppo", "impala")]


@pytest.mark.parametrize("work", USUAL, ids=str)
def test_two_members_have_the_bits_of_one(work: Work) -> None:
    _require_same(work, (2,), rounds=2)


@pytest.mark.parametrize("preset", ["quick", "ppo"])
def test_two_ranks_have_the_bits_of_one(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on GPUs, where plain networks are divided by rows alone."""
    monkeypatch.setattr(make_engine, "UnitsModel", DividedModel)
    _require_same(Work(preset, parts=4), (2,), rounds=2, ranks=True)


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("work", ALL, ids=str)
def test_the_number_of_members_changes_no_bit(work: Work) -> None:
    _require_same(work, (2, 4, 8)[: (work.parts or 1) // 4 + 1], rounds=3)


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("preset", LEARNERS)
def test_the_number_of_ranks_changes_no_bit(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_engine, "UnitsModel", DividedModel)
    _require_same(Work(preset, parts=8), (2, 4, 8), rounds=3, ranks=True)


def _require_same(work: Work, sizes: tuple[int, ...], rounds: int, *, ranks: bool = False) -> None:
    """Require the numbers of a learner of one process from every member of teams of these sizes, in both orders."""
    wanted = learn(work, CPU, rounds)
    assert (wanted["first"] != wanted[f"published {rounds}"]).any(), "something was learned"
    for size in sizes:
        for reverse in (False, True):
            for found in in_team(size, lambda team: learn(work, CPU, rounds, team), ranks=ranks, reverse=reverse):
                np.testing.assert_equal(found, wanted)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_team_begins_anew_once_all_have_read(reverse: bool) -> None:
    """As a report of numbers that are not finite does, without a snapshot."""
    work = Work("quick", parts=2)

    def begin_anew(team: Team) -> list[Numbers]:
        played = played_ring(work)
        engine: Any = make_test_engine(work, CPU, played, team)
        found = []
        for _ in range(2):
            engine.run(engine.begin_round(1, played.run_schedule.window_end(1)))
            found.append(stored_state(engine))
            engine.load(None)
            found.append(stored_state(engine))
        return found

    for found in in_team(2, begin_anew, reverse=reverse):
        np.testing.assert_equal(found[2:], found[:2])
        assert all((numbers != found[1][name]).any() for name, numbers in found[0].items())


@pytest.mark.stress
def test_another_number_of_parts_gives_other_bits() -> None:
    """So the comparison above can fail."""
    one, other = (learn(Work("quick", parts=parts), CPU, 3)["published 3"] for parts in (2, 4))
    assert (one != other).any()
    np.testing.assert_allclose(one, other, atol=1e-3)
