"""The random inputs of a chunk, and the views of its updates."""

from __future__ import annotations

import torch

from learner.losses.method import ValueMethod, make_method
from learner.replay.chunk import Chunk
from shared.network_spec import Network
from tests.support.played_ring import ACTIONS, make_algorithm

UPDATES, BATCH, SAMPLES, NOISE = 3, 40, 8, 50
POLICY = 4


def _drawn(seed: int, round_: int, number: int) -> Chunk:
    algorithm = make_algorithm(method="iqn", iqn_samples=SAMPLES)
    method = make_method(Network("small", ACTIONS, "iqn", fractions=POLICY), algorithm, torch.device("cpu"))
    assert isinstance(method, ValueMethod)
    chunk = Chunk.create(UPDATES, BATCH, method, NOISE)
    chunk.draw_random_inputs(seed, round_, number)
    return chunk


def test_fractions_and_noise_are_functions_of_seed_round_and_chunk() -> None:
    drawn = [_drawn(*place) for place in ((1, 2, 3), (1, 2, 3), (4, 2, 3), (1, 4, 3), (1, 2, 4))]
    for name in ("fractions", "next_fractions", "noise", "next_noise"):
        first, again, *others = (getattr(chunk, name) for chunk in drawn)
        assert torch.equal(first, again)
        assert len({each.sum().item() for each in (first, *others)}) == 4, "each of the three counts"


def test_fractions_are_uniform_noise_is_normal_and_those_that_choose_stay() -> None:
    chunk = _drawn(1, 2, 3)
    assert torch.equal(chunk.next_fractions[:, :POLICY], ((torch.arange(POLICY) + 0.5) / POLICY).expand(120, -1))
    for fractions in (chunk.fractions, chunk.next_fractions[:, POLICY:]):
        assert fractions.shape == (UPDATES * BATCH, SAMPLES)
        assert 0.0 <= fractions.min() < 0.01 < 0.99 < fractions.max() < 1.0
    assert not torch.equal(chunk.fractions, chunk.next_fractions[:, POLICY:])
    for noise in (chunk.noise, chunk.next_noise):
        assert noise.min() < -1.5
        assert 0.8 < noise.std() < 1.2
    assert not torch.equal(chunk.noise, chunk.next_noise)


def test_every_update_has_rows_and_noise_of_its_own() -> None:
    chunk = _drawn(1, 2, 3)
    for index in range(UPDATES):
        minibatch, rows = chunk.minibatch(index), slice(index * BATCH, (index + 1) * BATCH)
        assert torch.equal(minibatch.fractions, chunk.fractions[rows])
        assert torch.equal(minibatch.noise, chunk.noise[index : index + 1])
        assert torch.equal(minibatch.next_noise, chunk.next_noise[index : index + 1])
