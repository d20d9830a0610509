"""The steps of a round as minibatches: every step once a pass, with the targets of the network at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from learner.engine.engine import Engine
from learner.engine.initialization import initial_parameters
from learner.make_engine import make_engine
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import Rollout
from learner.rollout.rollout_source import RolloutSource
from learner.rollout.step_reader import StepReader
from shared.config.method_declaration import ActorCriticSettings, method_declaration, method_names
from shared.config.sections import Algorithm
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.frame_shape import STACK
from shared.network_parameters import parameters_of
from shared.network_spec import network_of
from tests.support.plain_network import plain_values
from tests.support.played_ring import ACTIONS, PlayedRing, small_config

TRACE = 0.9
ENVS, TICKS, BATCH = 4, 6, 8

pytestmark = pytest.mark.usefixtures("one_thread")


def _config(**learn: object) -> Config:
    """Rounds of 6 ticks of 4 envs; three minibatches of 8 steps."""
    settings: dict[str, object] = {"schedule": "alternate", "snapshot_every_steps": 24, "optimizer": "rms", **learn}
    return small_config(Algorithm("a2c", ActorCriticSettings(trace=TRACE)), **settings)


def _engine(played: PlayedRing, config: Config, heartbeat: Callable[[], None] = lambda: None) -> Engine[Any]:
    machine = replace(config.machine, device="cpu", precision="fp32")
    engine = make_engine(replace(config, machine=machine), network_of(config, ACTIONS), played.ring, heartbeat)
    engine.initialize()
    return engine


def test_a_value_method_without_a_target_network_is_refused() -> None:
    config = small_config(Algorithm("dqn"))
    machine = replace(config.machine, device="cpu", precision="fp32")
    ring = PlayedRing(config).ring
    ring.run_schedule = replace(ring.run_schedule, method=replace(ring.run_schedule.method, has_target_network=False))
    with pytest.raises(ConfigError, match=r"dqn learns from a target network, .* declare has_target_network=True\."):
        make_engine(replace(config, machine=machine), network_of(config, ACTIONS), ring)


def _played(config: Config, rounds: int = 3) -> PlayedRing:
    played = PlayedRing(config, both=True)
    played.play(rounds * TICKS)
    played.ring.field["log_prob"][:] = -np.random.default_rng(5).random(played.ring.field["log_prob"].shape)
    return played


BY_LEARNERS = [
    name
    for name in method_names()
    if (declaration := method_declaration(name)).on_policy and not declaration.by_workers
]


@pytest.mark.parametrize("method", BY_LEARNERS)
def test_a_round_that_is_lost_moves_no_parameter_by_its_gradient(method: str) -> None:
    """As after --no-checkpoint-replay: blank slots, in which no action was taken."""
    config = _config().with_settings(method=method, clip_gradient=0.5)
    played = PlayedRing(config)
    for field in played.ring.field.values():
        field[:] = 0
    engine = _engine(played, config)
    before, after = (np.zeros(parameters_of(network_of(config, ACTIONS)).count, np.float32) for _ in range(2))
    engine.online_into(before)
    engine.begin_round(1, 2 * TICKS)
    engine.run(engine._planned)
    assert all(np.isfinite(value) for value in engine.end_round().means.values())
    engine.online_into(after)
    np.testing.assert_array_equal(after, before)


def _steps(engine: Engine[Any], round_: int) -> dict[str, np.ndarray]:
    """All steps of a round, in the order in which updates take them."""
    source: Any = engine._source
    updates = engine._run_schedule.updates_per_round
    source.begin_round(round_, (round_ + 1) * TICKS, updates)
    parts = []
    for number in range(updates):
        chunk, index = divmod(number, source.chunk_updates)
        parts.append(source.minibatch(source.load(chunk), index).to_arrays())
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize(("round_", "batch"), [(0, BATCH), (2, BATCH), (2, 2)])
def test_every_step_comes_once_with_its_targets(round_: int, batch: int) -> None:
    """The updates of a round are one chunk, or a whole one and a part of another."""
    config = _config(batch_size=batch)
    played = _played(config)
    engine = _engine(played, config)
    with torch.inference_mode():
        found = _steps(engine, round_)
    ticks = range(round_ * TICKS, (round_ + 1) * TICKS)
    acted = [(tick, env) for tick in ticks for env in range(ENVS) if played._slots[tick]["valid"][env]]
    assert 0 < len(acted) < ENVS * TICKS, "some slots hold the last frame of an episode"
    states = {played.transition(*place).state.tobytes(): place for place in acted}
    assert len(states) == len(acted)

    # Values of all ticks by the reference network, at invalid ticks of the stack that the ring holds there.
    flat = torch.from_numpy(initial_parameters(network_of(config, ACTIONS), config.run.seed))
    values = np.zeros((TICKS + 1, ENVS))
    for t in range(TICKS + 1):
        for env in range(ENVS):
            rows, mask = played.ring.stack_rows(np.array([env]), np.array([round_ * TICKS + t]))
            stack = played.ring.flat["frame"][rows[0]] * mask[0][:, None, None]
            assert stack.shape == (STACK, 84, 84)
            values[t, env] = plain_values("small", flat, torch.from_numpy(stack[None]))[0, ACTIONS]
    slots = {name: np.stack([played._slots[t][name] for t in ticks]) for name in played._slots[0]}
    terminal = slots["terminated"] | slots["life_lost"]
    rollout = Rollout(
        reward=np.sign(slots["raw_reward"]),
        terminal=terminal,
        ended=terminal | slots["truncated"],
        valid=slots["valid"],
        action=slots["action"],
        log_prob=np.zeros_like(values[:-1]),
        outputs=np.zeros((0,)),
        discount=config.learn.discount,
    )
    expected = generalized_advantages(rollout, values, TRACE)
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
    played = _played(config)
    with torch.inference_mode():
        orders = {
            name: _steps(_engine(played, replace(config, run=replace(config.run, seed=seed))), round_)[
                "action"
            ].tolist()
            for name, seed, round_ in (("first", 1, 1), ("again", 1, 1), ("other seed", 2, 1), ("other round", 1, 2))
        }
    assert orders["first"] == orders["again"]
    assert orders["first"] != orders["other seed"]
    assert orders["first"] != orders["other round"]


def test_the_preparation_of_a_round_beats_after_every_batch() -> None:
    config, beats = _config(), []
    engine = _engine(_played(config), config, lambda: beats.append(1))
    engine.begin_round(1, 2 * TICKS)
    assert len(beats) == -(-ENVS * (TICKS + 1) // BATCH)


def test_a_round_begins_with_its_annealed_settings() -> None:
    settings = ActorCriticSettings(entropy_weight=0.04, entropy_weight_end=0.0)
    config = replace(_config(anneal_steps=96), algorithm=Algorithm("a2c", settings))
    engine = _engine(_played(config), config)
    rule: Any = engine._rule
    weights = []
    for round_ in (0, 1, 2):
        engine.begin_round(round_, (round_ + 1) * TICKS)
        weights.append(rule.annealed["entropy_weight"].item())
    assert weights == pytest.approx([0.04, 0.03, 0.02])


def test_an_update_is_the_same_however_a_round_is_sliced() -> None:
    config = _config()
    played = _played(config)
    online = []
    for slices in ([3], [1, 1, 1], [2, 9]):
        engine = _engine(played, config)
        fresh = np.zeros(len(initial_parameters(network_of(config, ACTIONS), 1)), np.float32)
        engine.store({"online": fresh})
        assert engine.begin_round(1, 2 * TICKS) == 3
        for count in slices:
            engine.run(count)
        assert set(engine.end_round().means) == set(played.run_schedule.method.metrics)
        after = np.zeros_like(fresh)
        engine.online_into(after)
        assert not np.array_equal(after, fresh)
        online.append(after)
    np.testing.assert_array_equal(online[0], online[1])
    np.testing.assert_array_equal(online[0], online[2])


@pytest.mark.parametrize("clip", [True, False])
def test_rewards_of_a_round_are_clipped_where_that_is_asked_for(*, clip: bool) -> None:
    config = _config(clip_rewards=clip)
    played, method = _played(config), SimpleNamespace()
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
