"""Targets that read an annealed setting, as a plug-in's may: the value of their own round, after a restart too."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from learner.losses.method import NextState
from learner.methods.a2c import A2C
from learner.methods.dqn import DQN
from learner.rollout.on_policy_method import Rollout, StepTargets
from shared.config import method_declaration
from shared.config.method_declaration import ActorCriticSettings, MethodDeclaration, MethodSettings, add_method
from shared.config.sections import Algorithm
from shared.config.settings import Config
from tests.support.played_ring import PlayedRing, make_test_engine, small_config, stored_state

TICKS, ROUNDS, BOUNDARY = 6, 6, 3


@dataclass(frozen=True)
class Shifted(MethodSettings):
    """A number that is added to targets."""

    shift: float = 1.0
    shift_end: float | None = 0.0


def _on_policy(monkeypatch: pytest.MonkeyPatch, seen: list[float]) -> Config:
    targets = A2C.targets

    def shifted(self: A2C, rollout: Rollout) -> StepTargets:
        found = targets(self, rollout)
        seen.append(self.annealed["entropy_weight"].item())
        return found._replace(returns=found.returns + np.float32(seen[-1]))

    monkeypatch.setattr(A2C, "targets", shifted)
    algorithm = Algorithm("a2c", ActorCriticSettings(entropy_weight=1.0, entropy_weight_end=0.0))
    return small_config(algorithm, schedule="alternate", optimizer="rms", anneal_steps=24 * 8)


def _value_based(monkeypatch: pytest.MonkeyPatch, seen: list[float]) -> Config:
    target = DQN.target

    def shifted(self: DQN, next_state: NextState) -> Any:
        seen.append(self.annealed["shift"].item())
        return target(self, next_state) + self.annealed["shift"]

    monkeypatch.setattr(DQN, "target", shifted)
    monkeypatch.setattr(method_declaration, "_REGISTRY", dict(method_declaration._REGISTRY))
    add_method(MethodDeclaration("shifted", "learner.methods.dqn:DQN", Shifted))
    return small_config(Algorithm("shifted", Shifted()), anneal_steps=24 * 8)


@pytest.mark.parametrize("make_config", [_on_policy, _value_based])
def test_targets_read_the_annealed_value_of_their_round(make_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round is prefetched while the present one runs; a learner goes on from the snapshot of a boundary."""
    seen = list[float]()
    config = make_config(monkeypatch, seen)
    played = PlayedRing(config, both=True)
    played.ring.field.get("log_prob", np.zeros(0))[:] = -1.0
    first, second = (make_test_engine(played, config) for _ in range(2))
    window_end = played.run_schedule.window_end
    for round_ in range(ROUNDS):
        played.play(TICKS)
        if round_ == BOUNDARY:
            second.load(stored_state(first))
        means = []
        for engine in (first, second)[: 1 + (round_ >= BOUNDARY)]:
            seen.clear()
            engine.run(engine.begin_round(round_, window_end(round_)))
            engine.prefetch(round_ + 1, window_end(round_ + 1))
            means.append(engine.end_round())
            assert set(seen) == ({1.0 - round_ / 8} if engine._planned else set())
            engine.update_target()
        assert means[0] == means[-1], "of this round alone"
    np.testing.assert_array_equal(*(stored_state(engine)["online"] for engine in (first, second)))
