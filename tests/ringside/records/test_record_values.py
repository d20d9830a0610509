"""Values of a record: the learning rate, and the share of returns that the support of c51 does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringside.records.board_samples import NEWEST, Sample
from ringside.records.record_values import outside_support, record_values
from shared.config.settings import Config
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

CAPACITY = 16


def ring_of(rewards: list[float], **marks: list[int]) -> dict[str, np.ndarray]:
    """The fields of one lane of one env, whose tick 0 stands in slot 0; `marks` by field: the ticks that have it."""
    ring = {
        name: np.zeros((1, CAPACITY, 1), np.uint8) for name in ("valid", "terminated", "truncated", "life_lost")
    } | {"raw_reward": np.zeros((1, CAPACITY, 1), np.float32)}
    for tick, reward in enumerate(rewards):
        ring["raw_reward"][0, tick % CAPACITY, 0] = reward
        ring["valid"][0, tick % CAPACITY, 0] = 1
    for name, ticks in marks.items():
        for tick in ticks:
            ring[name][0, tick % CAPACITY, 0] = name != "valid"
    return ring


def config(**settings: object) -> Config:
    return Config().with_settings(method="c51", clip_rewards=False, discount=0.5, v_min=-4.0, v_max=4.0, **settings)


def test_rewards_count_as_far_as_they_are_discounted() -> None:
    # Returns from the last tick to the first: 12, 6, 3, 1.5.
    assert outside_support(ring_of([0, 0, 0, 12]), 0, 4, config()) == 2 / 4
    assert outside_support(ring_of([0, 0, 0, -12]), 0, 4, config()) == 2 / 4
    assert outside_support(ring_of([4, 0, 0, 0]), 0, 4, config()) == 0  # the support's end is of it


def test_clipped_rewards_are_what_is_learned_from() -> None:
    assert outside_support(ring_of([0, 0, 0, 12]), 0, 4, config().with_settings(clip_rewards=True)) == 0
    narrow = config().with_settings(clip_rewards=True, v_max=0.75)
    assert outside_support(ring_of([0, 0, 0, 12]), 0, 4, narrow) == 1 / 4


@pytest.mark.parametrize("end", ["terminated", "truncated", "life_lost"])
def test_rewards_after_an_end_are_not_part_of_the_return(end: str) -> None:
    assert outside_support(ring_of([0, 0, 0, 12], **{end: [1]}), 0, 4, config()) == 2 / 4
    assert outside_support(ring_of([0, 0, 0, 12], **{end: [2]}), 0, 4, config()) == 1 / 4


def test_ticks_between_episodes_are_no_states() -> None:
    ring = ring_of([0, 0, 0, 12], valid=[2], terminated=[1])
    assert outside_support(ring, 0, 4, config()) == 1 / 3
    ring = ring_of([0, 0, 0, 12], valid=[3])
    assert outside_support(ring, 0, 4, config()) == 0


def test_a_record_may_go_around_the_ring() -> None:
    ring = ring_of([0.0] * 17 + [12.0])
    assert outside_support(ring, 14, 18, config()) == 2 / 4
    assert outside_support(ring, 14, 17, config()) == 0


def test_a_record_without_a_state_has_none_outside() -> None:
    assert outside_support(ring_of([]), 0, 4, config()) == 0


@pytest.fixture
def memory() -> Iterator[Memory]:
    """Memory of a run with rounds of 40 steps, which anneals epsilon and the learning rate."""
    sizes = {"envs": 4, "round_steps": 40, "replay_size": 400, "learning_starts": 40, "total_steps": 400}
    anneal = {"learning_rate": 0.5, "learning_rate_end": 0.0, "anneal_steps": 80, "epsilon_start": 1.0}
    anneal |= {"epsilon_end": 0.2, "epsilon_steps": 80}
    machine = {"actors": 1, "inference_batch": 4, "device": "cpu", "run_dir": Path()}
    made = Memory.create(Plan(Config().with_settings(network="small", train_every=4, **sizes, **anneal, **machine), 4))
    yield made
    made.arena.close()


def test_the_learning_rate_is_that_of_the_last_round(memory: Memory) -> None:
    sample = Sample.kept(memory, NEWEST)
    rates = [record_values(memory, stop - 1, stop, sample, held=False)["learning_rate"] for stop in (1, 2, 3, 4)]
    assert rates == [0.5, 0.25, 0.0, 0.0]


def test_the_figures_of_a_record_follow_from_its_ticks_and_commits(memory: Memory) -> None:
    """The session began at 10 s, after 100 s of former ones, and committed at 12 and 16 s."""
    board, names = memory.board, memory.board.metric_names
    board.begun_ns[0], board.before[0] = 10_000_000_000, 100.0
    board.commits.publish(2)
    for span, (updates, at) in enumerate(((0, 12.0), (10, 16.0))):
        board.metrics[span, names.index("updates")] = updates
        board.metrics[span, names.index("committed_at")] = at
        board.metrics[span, names.index("boundary")] = span + 1
    memory.ring.field["valid"][:, :20] = 1
    memory.ring.field["valid"][0, 3:6, 0] = 0
    first, second = (record_values(memory, stop - 1, stop, Sample.kept(memory, NEWEST), held=True) for stop in (1, 2))
    per_second = [f"{name}_per_second" for name in ("steps", "frames", "updates")]
    wanted = ("frames", "updates", "samples_per_step", "valid_steps", "seconds", *per_second)
    assert [first[name] for name in wanted] == [160, 0, 0.0, 37, 102.0, 20.0, 80.0, 0.0]
    assert [second[name] for name in wanted] == [320, 10, 8.0, 40, 106.0, 10.0, 40.0, 2.5]
    assert [first["epsilon"], second["epsilon"]] == pytest.approx([1.0, 0.6])
    unread = record_values(memory, 0, 1, Sample.kept(memory, NEWEST), held=False)
    assert unread["valid_steps"] is None
    board.metrics[1, names.index("boundary")] = 2 + 256
    assert "seconds" not in record_values(memory, 1, 2, Sample.kept(memory, NEWEST), held=True), "the row is reused"
