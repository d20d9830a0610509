"""The steps of a round as minibatches: every step once a pass, with the targets of the network at the beginning."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from learner.engine.engine import Engine
from learner.make_engine import make_engine
from learner.networks.modules import initial_parameters
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import Rollout
from learner.rollout.rollout_source import RolloutSource
from learner.rollout.step_reader import StepReader
from shared.config.method_declaration import ActorCriticSettings, method_declaration, method_names
from shared.config.sections import Algorithm
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.frame_shape import STACK
from shared.network_spec import network_of
from tests.learner.networks.test_modules import make_reference
from tests.support.played_ring import ACTIONS, PlayedRing, small_config, stored_state

TRACE = 0.9
ENVS, TICKS, BATCH = 4, 6, 8


def _config(**learn: object) -> Config:
    """Rounds of 6 ticks of 4 envs; three minibatches of 8 steps."""
    settings: dict[str, object] = {"schedule": "alternate", "snapshot_every_steps": 24, "optimizer": "rms", **learn}
    return small_config(Algorithm("a2c", ActorCriticSettings(trace=TRACE)), **settings)


def make_played_engine(played: PlayedRing, config: Config, heartbeat: Callable[[], None] = lambda: None) -> Engine[Any]:
    """An engine on the CPU, with fresh parameters."""
    config = config.with_settings(device="cpu", precision="fp32")
    engine = make_engine(config, network_of(config, ACTIONS), played.ring, heartbeat)
    engine.load(None)
    return engine


def online_of(engine: Engine[Any]) -> np.ndarray:
    """Its parameters."""
    return stored_state(engine)["online"]


def moved_in_a_round(engine: Engine[Any]) -> np.ndarray:
    """Change of the parameters in round 1, whose metrics are finite."""
    before = online_of(engine)
    engine.begin_round(1, 2 * TICKS)
    engine.run(engine._planned)
    assert all(np.isfinite(value) for value in engine.end_round().means.values())
    return online_of(engine) - before


def play_rounds(config: Config) -> PlayedRing:
    """Three rounds of random episodes, with fields of the method."""
    played, random = PlayedRing(config, both=True, ticks=3 * TICKS), np.random.default_rng(5)
    fields = played.ring.field
    fields["log_prob"][:] = -random.random(fields["log_prob"].shape)
    if "recurrent_state" in fields:
        fields["recurrent_state"][:] = random.normal(size=fields["recurrent_state"].shape)
    return played


def stack_of(played: PlayedRing, env: int, tick: int) -> np.ndarray:
    """The stack that the ring holds."""
    rows, mask = played.ring.stack_rows(np.array([env]), np.array([tick]))
    return played.ring.flat["frame"][rows[0]] * mask[0][:, None, None]


def slots_of(played: PlayedRing, round_: int) -> dict[str, np.ndarray]:
    """Fields [ticks, envs] of a round's history."""
    ticks = range(round_ * TICKS, (round_ + 1) * TICKS)
    return {name: np.stack([played._slots[t][name] for t in ticks]) for name in played._slots[0]}


def advantages_of(slots: dict[str, np.ndarray], values: np.ndarray, config: Config, trace: float) -> np.ndarray:
    """Advantages [ticks, envs] of a round."""
    terminal = slots["terminated"] | slots["life_lost"]
    ends = {"terminal": terminal, "ended": terminal | slots["truncated"], "valid": slots["valid"]}
    acted = {"action": slots["action"], "log_prob": np.zeros_like(values[:-1]), "outputs": np.zeros(0)}
    rollout = Rollout(reward=np.sign(slots["raw_reward"]), **ends, **acted, discount=config.learn.discount)
    return generalized_advantages(rollout, values, trace)


def minibatches_of(engine: Engine[Any], round_: int, updates: int) -> list[dict[str, np.ndarray]]:
    """The minibatches of a round, in their order."""
    source: Any = engine._source
    with torch.inference_mode():
        source.begin_round(round_, (round_ + 1) * TICKS, updates)
        found = []
        for number in range(updates):
            source.load(number // source.chunk_updates)
            found.append(source.minibatch(0, number % source.chunk_updates).to_arrays())
    return found


def _steps(engine: Engine[Any], round_: int) -> dict[str, np.ndarray]:
    """All steps of a round, in the order in which updates take them."""
    parts = minibatches_of(engine, round_, engine._run_schedule.updates_per_round)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_a_value_method_without_a_target_network_is_refused() -> None:
    config = small_config(Algorithm("dqn")).with_settings(device="cpu", precision="fp32")
    ring = PlayedRing(config).ring
    ring.run_schedule = replace(ring.run_schedule, method=replace(ring.run_schedule.method, has_target_network=False))
    with pytest.raises(ConfigError, match=r"dqn learns from a target network, .* declare has_target_network=True\."):
        make_engine(config, network_of(config, ACTIONS), ring)


DECLARED = [method_declaration(name) for name in method_names()]


@pytest.mark.parametrize("method", [each.name for each in DECLARED if each.on_policy and not each.by_workers])
def test_a_round_that_is_lost_moves_no_parameter_by_its_gradient(method: str) -> None:
    """As after --no-checkpoint-replay: blank slots, in which no action was taken."""
    config = _config().with_settings(method=method, clip_gradient=0.5)
    played = PlayedRing(config)
    for field in played.ring.field.values():
        field[:] = 0
    assert not moved_in_a_round(make_played_engine(played, config)).any()


@pytest.mark.parametrize(("round_", "batch"), [(0, BATCH), (2, BATCH), (2, 2)])
def test_every_step_comes_once_with_its_targets(round_: int, batch: int) -> None:
    """The updates of a round are one chunk, or a whole one and a part of another."""
    config = _config(batch_size=batch)
    played = play_rounds(config)
    found = _steps(make_played_engine(played, config), round_)
    ticks = range(round_ * TICKS, (round_ + 1) * TICKS)
    acted = [(tick, env) for tick in ticks for env in range(ENVS) if played._slots[tick]["valid"][env]]
    assert 0 < len(acted) < ENVS * TICKS, "some slots hold the last frame of an episode"
    states = {played.transition(*place).state.tobytes(): place for place in acted}
    assert len(states) == len(acted)

    # Values of all ticks by the reference network, at invalid ticks of the stack that the ring holds there.
    network = network_of(config, ACTIONS)
    reference = make_reference(network, initial_parameters(network, config.run.seed))
    values = np.zeros((TICKS + 1, ENVS))
    for t, env in np.ndindex(values.shape):
        stack = stack_of(played, env, round_ * TICKS + t)
        assert stack.shape == (STACK, 84, 84)
        values[t, env] = reference.values(stack[None])[0, ACTIONS].item()
    expected = advantages_of(slots_of(played, round_), values, config, TRACE)
    seen = set()
    for i in np.flatnonzero(found["weight"]).tolist():
        tick, env = states[found["frames"][i].tobytes()]
        seen.add((tick, env))
        assert found["action"][i] == played._slots[tick]["action"][env]
        t = tick - round_ * TICKS
        assert found["advantage"][i] == pytest.approx(expected[t, env], rel=1e-4, abs=1e-5)
        assert found["returns"][i] == pytest.approx(expected[t, env] + values[t, env], rel=1e-4, abs=1e-5)
        assert found["old_value"][i] == pytest.approx(values[t, env], rel=1e-4, abs=1e-5)
        row = played.ring.rows(np.array(env), np.array(tick))
        assert found["log_prob"][i] == played.ring.flat["log_prob"][row]
    assert seen == set(acted)


def test_the_order_is_a_function_of_seed_and_round() -> None:
    config = _config()
    played = play_rounds(config)
    first, again, *others = (
        _steps(make_played_engine(played, config.with_settings(seed=seed)), round_)["action"].tolist()
        for seed, round_ in ((1, 1), (1, 1), (2, 1), (1, 2))
    )
    assert first == again
    assert first not in others


def test_the_preparation_of_a_round_beats_after_every_batch() -> None:
    config, beats = _config(), []
    make_played_engine(play_rounds(config), config, lambda: beats.append(1)).begin_round(1, 2 * TICKS)
    assert len(beats) == -(-ENVS * (TICKS + 1) // BATCH)


def test_an_update_is_the_same_however_a_round_is_sliced() -> None:
    config = _config()
    played = play_rounds(config)
    online = []
    for slices in ([3], [1, 1, 1], [2, 9]):
        engine = make_played_engine(played, config)
        fresh = online_of(engine)
        assert engine.begin_round(1, 2 * TICKS) == 3
        for count in slices:
            engine.run(count)
        assert set(engine.end_round().means) == set(played.run_schedule.method.metrics)
        online.append(online_of(engine))
        assert not np.array_equal(online[-1], fresh)
    np.testing.assert_equal(online[1:], online[:1] * 2)


@pytest.mark.parametrize("clip", [True, False])
def test_rewards_of_a_round_are_clipped_where_that_is_asked_for(*, clip: bool) -> None:
    config = _config(clip_rewards=clip)
    played, method = play_rounds(config), SimpleNamespace()
    reader = StepReader(played.ring, config.learn, method, range(ENVS))  # type: ignore[arg-type]
    rollout = reader.rollout(*reader.grid(2 * TICKS), np.zeros(((TICKS + 1) * ENVS, 5), np.float32))
    raw = np.stack([played._slots[tick]["raw_reward"] for tick in range(TICKS, 2 * TICKS)])
    assert np.abs(raw).max() > 1
    np.testing.assert_array_equal(rollout.reward, np.sign(raw) if clip else raw)


def test_every_pass_over_a_round_has_an_order_of_its_own() -> None:
    source: Any = SimpleNamespace(_seed=1)
    first, second = np.split(RolloutSource._shuffle(source, 0, 24, 48), 2)
    assert sorted(first) == sorted(second) == list(range(24))
    assert first.tolist() != second.tolist()
    assert RolloutSource._shuffle(source, 0, 24, 30).tolist() == [*first, *second[:6]]
    assert len({tuple(RolloutSource._shuffle(source, round_, 24, 24)) for round_ in range(9)}) == 9
