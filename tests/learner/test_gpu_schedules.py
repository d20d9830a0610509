"""Bits of a GPU do not depend on the order in which it does its work, and agree with a CPU, on a simulated device."""

import re
from collections.abc import Iterator
from itertools import combinations, cycle, product

import numpy as np
import pytest
import torch

from shared.config.presets import PRESETS
from tests.support.device_work import ROUNDS, Numbers, Work, answer, differences, distance, learn, played_ring
from tests.support.simulated_gpu import DEVICE, simulated_gpu

CPU = torch.device("cpu")
FIRST, LATER = {"fp32": 1e-4, "bf16": 0.1}, {"fp32": 0.1, "bf16": 0.2}
"""Distance from a CPU, in the first round and in those that follow, which start from different last digits."""
COMPARED = 3
"""Rounds that are compared with a CPU: an optimizer that divides gradients by their size magnifies roundings."""
SEEDS = 200
EVERY = 8
"""Configurations among which a seed is one of the tried."""

PATTERNS = ([("fp32", 8, "device"), ("bf16", 0, "host")], [("bf16", 2, "device"), ("fp32", 0, "host")])
ON_A_GPU = [name for name, preset in PRESETS.items() if preset.learn.schedule in ("concurrent", "alternate")]
"""Presets whose learner has a device; those of actor-learners learn on CPUs."""
COVERING = [Work(preset, *each) for number, preset in enumerate(ON_A_GPU) for each in PATTERNS[number % 2]]
COVERING += [Work(preset, "bf16", 8, "host") for preset in ("nature", "rainbow")]
COVERING += [Work(preset, "fp32", 0, "device") for preset in ("nature", "rainbow")]
COVERING += [Work(*each, recurrent=True) for each in (("impala", "bf16"), ("a2c", "fp32"))]
COVERING += [Work(*each, parts=2) for each in (("nature", "fp32"), ("btr", "bf16"), ("ppo", "fp32"))]
"""Every pair of two settings (`test_every_pair_is_tried`), recurrent networks, and minibatches in parts."""


@pytest.fixture(autouse=True)
def _same_bits() -> Iterator[None]:
    """Refuse operations that add in any order, as a learner does."""
    former = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode(former)


def _compare(work: Work, seeds: range, rounds: int = ROUNDS) -> None:
    """Learn and answer on the device, which refuses to capture what CUDA cannot."""
    played = played_ring(work)
    wanted = learn(work, CPU, rounds) | answer(work, CPU, played)
    first: Numbers = {}
    for seed in seeds:
        with simulated_gpu(seed) as gpu:
            found = learn(work, DEVICE, rounds) | answer(work, DEVICE, played)
            assert gpu.idle
        repeated = found["published before the repetition"], found[f"published {max(1, rounds - 1)}"]
        assert np.array_equal(*repeated), f"{work} does not repeat a round: seed {seed}"
        first = first or found
        assert not differences(first, found), f"{work} depends on the schedule: seeds {seeds[0]} and {seed}"
    for name in wanted:
        if (round_ := _round_of(name)) is not None and round_ <= COMPARED:
            assert distance(wanted, first, name) < (FIRST if round_ <= 1 else LATER)[work.precision], name


def _round_of(name: str) -> int | None:
    """The round of a result, 0 for answers; None where networks that differ by now drew the data."""
    if name.startswith("of "):
        return 0
    found = re.match(r"(published|published within|metrics|snapshot before) (\d+)", name)
    return int(found[2]) if found else None


USUAL = [Work("nature"), Work("rainbow", "bf16", 0, "host"), Work("pqn", graph_updates=2)]


@pytest.mark.parametrize("work", USUAL, ids=str)
def test_bits_do_not_depend_on_the_schedule_and_agree_with_a_cpu(work: Work) -> None:
    _compare(work, range(2))


WORKS = [Work(preset, precision, 2) for preset, precision in zip(ON_A_GPU, cycle(("bf16", "fp32")), strict=False)]


@pytest.mark.parametrize("work", [*WORKS, *(Work("impala", each, 2, recurrent=True) for each in FIRST)], ids=str)
def test_the_first_round_of_a_preset_is_captured_and_agrees_with_a_cpu(work: Work) -> None:
    """In one of the precisions; both take `make stress`."""
    _compare(work, range(1), rounds=1)


def test_every_pair_is_tried() -> None:
    works = [work._replace(graph_updates=8 if work.graph_updates else 0) for work in COVERING]
    tried = {frozenset(pair) for work in works for pair in combinations(work._asdict().items(), 2)}
    values = {"graph_updates": (0, 8), "replay_on": ("device", "host"), "precision": FIRST, "preset": ON_A_GPU}
    settings = [[(name, each) for each in these] for name, these in values.items()]
    for these, those in combinations(settings, 2):
        assert {frozenset(pair) for pair in product(these, those)} <= tried


@pytest.mark.stress
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("number", "work"), list(enumerate(COVERING)), ids=map(str, COVERING))
def test_no_seed_changes_a_bit(number: int, work: Work) -> None:
    _compare(work, range(number % EVERY, SEEDS, EVERY))
