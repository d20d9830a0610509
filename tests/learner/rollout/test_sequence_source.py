"""Minibatches of a recurrent network: whole rounds of envs, from the states in the ring, in an order of their own."""

import numpy as np
import pytest
import torch

from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from shared.config.settings import Config
from shared.network_parameters import parameters_of
from shared.network_spec import network_of
from tests.learner.rollout import test_rollout_source
from tests.learner.rollout.test_rollout_source import ENVS, TICKS, make_played_engine, minibatches_of, play_rounds
from tests.support.played_ring import ACTIONS, PlayedRing, small_config

BATCH = 12


def _config(method: str = "a2c", **settings: object) -> Config:
    """Rounds of 6 ticks of 4 envs; two minibatches of 2 envs."""
    config = small_config(schedule="alternate", snapshot_every_steps=24, optimizer="rms", batch_size=BATCH)
    return config.with_settings(method=method, recurrent=True, device="cpu", precision="fp32", **settings)


def _acted(config: Config, played: PlayedRing, round_: int) -> np.ndarray:
    """Outputs [T + 1, N, outputs] as acting computes them: tick by tick, from the states in the ring."""
    policy = Policy(network_of(config, ACTIONS), torch.device("cpu"), "fp32", batch=ENVS)
    policy.load(initial_parameters(network_of(config, ACTIONS), config.run.seed))
    envs, outputs = np.arange(ENVS), []
    state = played.ring.recurrent_state(envs, np.full(ENVS, round_ * TICKS))
    for tick in range(round_ * TICKS, (round_ + 1) * TICKS + 1):
        ticks = np.full(ENVS, tick)
        rows, mask = played.ring.stack_rows(envs, ticks)
        state[played.ring.flat["start"][played.ring.rows(envs, ticks)] != 0] = 0
        logits = policy.values_from_rows(played.ring.flat["frame"], rows, mask, envs, state=state)
        state = policy.next_state
        outputs.append(np.concatenate([logits, policy.state_values[:, None]], 1))
    return np.stack(outputs)


@pytest.mark.parametrize(("round_", "epochs"), [(0, 1), (2, 1), (2, 5)])
def test_a_minibatch_is_the_round_of_some_envs_with_their_states_and_targets(round_: int, epochs: int) -> None:
    """Five passes are a whole chunk and a part of another."""
    config = _config(epochs=epochs)
    played = play_rounds(config)
    minibatches = minibatches_of(make_played_engine(played, config), round_, updates=2 * epochs)
    ticks = np.arange(round_ * TICKS, (round_ + 1) * TICKS)
    slots = test_rollout_source.slots_of(played, round_)
    assert slots["start"][1:].any(), "episodes begin within the round"
    outputs = _acted(config, played, round_)
    advantage = test_rollout_source.advantages_of(slots, outputs[:, :, -1], config, 1.0)
    stacks = [[test_rollout_source.stack_of(played, env, tick) for tick in ticks] for env in range(ENVS)]
    seen: list[int] = []
    for found in minibatches:
        for first in range(0, BATCH, TICKS):
            part = {name: values[first : first + TICKS] for name, values in found.items() if len(values) == BATCH}
            (env,) = [e for e in range(ENVS) if np.array_equal(part["frames"][0], stacks[e][0])]
            seen.append(env)
            np.testing.assert_array_equal(part["frames"], stacks[env])
            for name, slot in (("action", "action"), ("start", "start"), ("weight", "valid")):
                np.testing.assert_array_equal(part[name], slots[slot][:, env])
            np.testing.assert_allclose(part["old_value"], outputs[:-1, env, -1], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(part["advantage"], advantage[:, env], rtol=1e-4, atol=1e-4)
            state = found["state"][first // TICKS]
            before = played.ring.recurrent_state(np.array([env]), ticks[:1])[0]
            np.testing.assert_array_equal(state, before)
            assert before.any() == (not slots["start"][0, env])
    for first in range(0, len(seen), ENVS):
        assert sorted(seen[first : first + ENVS]) == [0, 1, 2, 3], "every env comes once a pass"


@pytest.mark.parametrize("method", ["a2c", "a3c", "vtrace", "ppo"])
def test_an_update_moves_every_part_of_the_network(method: str) -> None:
    config = _config(method)
    moved = test_rollout_source.moved_in_a_round(make_played_engine(play_rounds(config), config))
    for name, part in parameters_of(network_of(config, ACTIONS)).split(moved).items():
        assert part.any(), name


def test_the_order_of_envs_is_a_function_of_seed_round_and_pass() -> None:
    config = _config("ppo", epochs=2)
    played = play_rounds(config)

    def order(seed: int, round_: int) -> list[list[float]]:
        engine = make_played_engine(played, config.with_settings(seed=seed))
        return [found["state"][:, 0, 0].tolist() for found in minibatches_of(engine, round_, updates=4)]

    first = order(1, 2)
    assert sorted(first[0] + first[1]) == sorted(first[2] + first[3]), "each pass takes every env once"
    assert first == order(1, 2)
    assert len({str(order(seed, round_)) for seed in (1, 2, 3) for round_ in (1, 2)}) > 3
