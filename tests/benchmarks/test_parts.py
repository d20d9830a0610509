"""Measurements in workers: data paths are verified, inference is; all of them give figures."""

import os
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from benchmarks import memory_paths, network_parts
from benchmarks.harness import CannotRun, WrongResult, measure_at_once, workers
from benchmarks.measured_run import plan_of
from learner.engine.engine import Engine
from learner.learner import Rounds
from shared.errors import ConfigError
from shared.memory.plan import Plan
from tests.support.runs import living
from tests.support.waiting import until

SMALL = "--game pong --device cpu --precision fp32 --envs 4 --actors 1 --inference-batch 4 --learner-members 1 \
--network small --round-steps 80 --replay-size 160 --learning-starts 80"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(SMALL.split())


def with_members(plan: Plan, members: int) -> Plan:
    return Plan(plan.config.with_settings(learner_members=members), plan.actions)


def kept_engines() -> list[Engine]:
    """In a worker, those of the measurements that follow."""
    found, make = list[Engine](), network_parts.rounds_without_others

    def keep(*arguments: Any) -> tuple[Engine, Rounds]:
        engine, rounds = make(*arguments)
        found.append(engine)
        return engine, rounds

    network_parts.rounds_without_others = keep
    return found


def checksum(plan: Plan) -> Callable[[float], int]:
    """A worker's measurement: a number that follows from the parameters after one round of the learner alone."""
    engines, measure = kept_engines(), network_parts.learner_alone(plan)
    return lambda seconds: engines[0].checksum() if measure(seconds) else 0


def moves(plan: Plan, members: int) -> Callable[[float], tuple[bool, bool, bool]]:
    """A worker's measurement: True if it takes time, if it moves a member's parameters, and if it moves others."""
    engines, measure = kept_engines(), network_parts.part_of_update(plan, members)

    def run(seconds: float) -> tuple[bool, bool, bool]:
        online = engines[0]._online
        before, own = online.params.clone(), torch.zeros(len(online.params), dtype=torch.bool)
        for place in chain(*online.parts[: len(online.parts) // members]):
            own[place] = True
        times, moved = measure(seconds), online.params != before
        return min(times) > 0, bool(moved[own].any()), bool(moved[~own].any())

    return run


def test_members_make_the_updates_of_one(plan: Plan) -> None:
    assert len(set(measure_at_once([(checksum, with_members(plan, members)) for members in (1, 2)], 1e-9))) == 1


@pytest.mark.parametrize("killed", [None, "learner", "member"])
def test_members_end_with_their_learner(plan: Plan, killed: str | None) -> None:
    with workers([(network_parts.learner_alone, with_members(plan, 2))]) as measure:
        children = psutil.Process().children(recursive=True)
        (member,) = (child for child in children if child.ppid() != os.getpid())
        team = {"learner": member.parent(), "member": member}
        if killed:
            team[killed].kill()
            with pytest.raises(CannotRun, match="ended early"):
                measure(1e-9)
    until(lambda: living(team.values()) is None, 20)


def test_a_part_is_that_of_one_member(plan: Plan) -> None:
    assert measure_at_once([(moves, plan, members) for members in (2, 4)], 1e-9) == [(True, True, False)] * 2


def test_a_changed_answer_is_wrong(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = network_parts.make_policy(plan, 4)
    answer()
    monkeypatch.setattr(network_parts.Policy, "values", lambda self, stacks: np.zeros(1))
    with pytest.raises(WrongResult, match="other values"):
        answer()


def test_a_replay_that_would_not_fit_is_refused(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_paths, "usable_memory", lambda: 10**9)
    with pytest.raises(ConfigError, match=r"only 1\.0 GB are free; no replay would fit"):
        memory_paths.memory_paths(plan)


WRONG_PATHS = [
    ("HostFrames.select", lambda self, rows, mask, out: out.fill_(1), "The learner gathers other blocks"),
    ("gather_planes_to", lambda planes, rows, mask, places, words: words.fill(1), "Inference gathers other blocks"),
    ("FusedModel.take", lambda self, exported: None, "Inference reads other parameters"),
]


@pytest.mark.parametrize(("name", "wrong", "says"), WRONG_PATHS)
def test_a_wrong_path_is_seen(plan: Plan, monkeypatch: pytest.MonkeyPatch, name: str, wrong: object, says: str) -> None:
    monkeypatch.setattr(f"benchmarks.memory_paths.{name}", wrong)
    with pytest.raises(WrongResult, match=says):
        memory_paths.memory_paths(plan)
