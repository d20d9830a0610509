"""Updates of the presets of Atari 100k against their papers, from the history that was played, in float64.

Of the engine are taken its parameters, the noise that it drew and, with priorities, the transitions.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from learner.engine.engine import Engine
from learner.networks.modules import initial_parameters
from learner.replay.sampling import draw_integers
from shared.config.presets import PRESETS
from shared.network_parameters import parameters_of
from shared.network_spec import network_of
from shared.prng import Stream, bits
from tests.learner.engine.test_update import _step
from tests.learner.losses.test_losses import action_values, paper_target
from tests.learner.networks.test_modules import make_reference
from tests.support.played_ring import ACTIONS, PlayedRing, make_test_engine, stored_state

BATCH, ROUND, SEED = 6, 150, 3
SUPPORT = [-10.0 + 0.4 * i for i in range(51)]
Stacks = NDArray[np.uint8]


def augmented(stacks: Stacks, draws: NDArray[np.float64]) -> Stacks:
    """Stacks [n, planes, y, x] by draws [n, 3]: offsets of the crop and the factor, pixel by pixel rounded."""
    found = np.empty_like(stacks)
    for i, (down, right, factor) in enumerate(draws):
        padded = np.pad(stacks[i], ((0, 0), (4, 4), (4, 4)), "edge")
        size, y, x = stacks.shape[-1], int(down), int(right)
        cut = padded[:, y : y + size, x : x + size] * np.float64(np.float32(factor))
        found[i] = np.minimum(np.floor(cut + 0.5), 255)
    return found


def drawn(seed: int, round_: int, number: int, n: int) -> NDArray[np.float64]:
    """Draws [n, 2, 3] of a chunk, of s and of s' (`drq_image_augmentation` of Dopamine)."""
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.AUGMENT, round_), number]))
    offsets, normal = generator.integers(0, 8, (n, 2, 2)), generator.standard_normal((n, 2, 1))
    return np.concatenate([offsets, 1 + 0.05 * np.clip(normal, -2, 2)], axis=2)


def _begin(played: PlayedRing, engine: Engine, round_: int) -> None:
    played.play(round_ + 1 - played.ticks)
    assert engine.begin_round(round_, played.ticks) == 1


@pytest.mark.parametrize("preset", ["der", "der-dopamine", "drq"])
def test_an_update_is_that_of_the_papers(preset: str) -> None:
    config = PRESETS[preset].with_settings(batch_size=BATCH, learning_starts=64, replay_size=400)
    network, algorithm, learn = network_of(config, ACTIONS), config.algorithm, config.learn
    spec, played = parameters_of(network), PlayedRing(config, both=True)
    engine = make_test_engine(played, config)
    state = stored_state(engine, "target")
    for seed, name in enumerate(("online", "target"), start=1):
        state[name] = initial_parameters(network, seed)
        for last in ("value.weight", "advantage.weight"):
            spec.split(state[name])[last][:] *= 30.0
    engine.load(state)
    for round_ in range(ROUND - 20, ROUND + 1):  # so that errors are not all the same
        _begin(played, engine, round_)
        engine.run(1)
        engine.end_round()

    state = stored_state(engine, "target")
    _begin(played, engine, ROUND + 1)
    sampler = engine._source._sampler
    leaves = sampler.tree._leaves.copy() if algorithm.prioritized else np.ones(1)
    engine.run(1)
    update, minibatch = engine.last_update(), engine._source.minibatch(0, 0)
    if algorithm.prioritized:
        index = minibatch.tree_index.numpy()
        places = list(zip(*sampler.tree.tick_env(index, played.ticks), strict=True))
        beta = algorithm.importance_start + (algorithm.importance_end - algorithm.importance_start) * (ROUND + 1) / 1e5
        weights = (leaves[index] / leaves.sum()) ** -beta
        weights /= weights.max()
        np.testing.assert_allclose(minibatch.importance, weights, rtol=1e-5)
        assert weights.min() < 0.99
    else:
        starts = played.samplable(played.ticks)
        places = [starts[pick] for pick in draw_integers(len(starts), 1, BATCH, SEED, ROUND + 1)[0]]
        weights = np.ones(BATCH)
    batch = [played.transition(int(tick), int(env)) for tick, env in places]
    stacks = [np.stack([getattr(each, name) for each in batch]) for name in ("state", "next_state")]
    if algorithm.augment:
        draws = drawn(SEED, ROUND + 1, 0, BATCH)
        stacks = [augmented(each, draws[:, i]) for i, each in enumerate(stacks)]
    states, following = (torch.from_numpy(each).double() for each in stacks)

    online, target = (make_reference(network, state[name]) for name in ("online", "target"))
    noise, next_noise = (each.double() if algorithm.noisy else None for each in (minibatch.noise, minibatch.next_noise))
    with torch.no_grad():
        choice = action_values(algorithm, online(following, None, noise), SUPPORT)
        outputs = target(following, None, next_noise)
    learned, total = online(states, None, noise), torch.zeros((), dtype=torch.float64)
    for i, each in enumerate(batch):
        step = each.reward, 0.0 if each.ends else 0.99**each.length, each.action
        y = torch.tensor(paper_target(algorithm, step, [], choice[i], outputs[i], SUPPORT), dtype=torch.float64)
        np.testing.assert_allclose(update["target_value"][i], y if algorithm.method == "c51" else y[0], atol=1e-4)
        row = learned[i, each.action]
        loss = -(y * row.log_softmax(0)).sum() if algorithm.method == "c51" else F.huber_loss(row, y)
        if algorithm.prioritized:
            assert minibatch.td_error[i].item() == pytest.approx(loss.item(), rel=1e-3)
        total = total + weights[i] * loss / BATCH
    total.backward()
    gradient = online.gradient()
    assert np.linalg.norm(update["gradient"] - gradient.numpy()) < 3e-3 * np.linalg.norm(gradient)
    gradient *= min(1.0, (algorithm.clip_gradient or torch.inf) / float(gradient.norm()))

    vectors = [torch.from_numpy(state[name]).double() for name in ("online", "moment1", "moment2")]
    number = played.run_schedule.updates_before(ROUND + 1) + 1
    moved = _step(learn, number, gradient, *vectors)[0] - vectors[0]
    found = update["parameters_after"] - state["online"]
    assert np.linalg.norm(found - moved.numpy()) < 3e-2 * np.linalg.norm(moved)


def test_offsets_and_factors_are_those_of_dopamine() -> None:
    draws = drawn(SEED, 7, 1, 4_000)
    assert [np.unique(draws[:, i, j]).tolist() for i in (0, 1) for j in (0, 1)] == [list(range(8))] * 4
    assert (draws[..., 2].min(), draws[..., 2].max()) == (0.9, 1.1)
    assert draws[..., 2].std() == pytest.approx(0.048, abs=0.002)
    assert abs(np.corrcoef(draws.reshape(len(draws), -1).T) - np.eye(6)).max() < 0.06
