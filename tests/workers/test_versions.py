"""Versions of shared parameters against updates one after the other, whatever the shards."""

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from learner.engine.optimizer import Optimizer
from learner.networks.model import ExtraInputs
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.packed_model import PackedModel
from shared.memory.run_memory import Memory
from shared.memory.shared_parameters import SharedParameters
from tests.learner.networks.test_modules import CPU, canonical, packed_model
from tests.support.worker_memory import LANE_ENVS, T_MAX, WORKERS, worker_config, worker_memory
from workers import versions
from workers.versions import Hogwild, Versions

ROUNDS = 3


def _memory(**settings: Any) -> tuple[Memory, SharedParameters]:
    memory, _ = worker_memory(worker_config(**settings))
    return memory, memory.shared_parameters


def _model(memory: Memory) -> PackedModel:
    return make_model(memory.plan.network, CPU, "fp32")


def _shards(memory: Memory) -> list[Versions]:
    made = [Versions(memory, _model(memory), None, shard) for shard in range(memory.plan.actors)]
    for each in made:
        each.fill()
    return made


def _gradients(memory: Memory, round_: int) -> np.ndarray:
    return np.random.default_rng(round_).normal(size=(WORKERS, memory.plan.parameters.count)).astype(np.float32)


def _write_snapshot(memory: Memory, *names: str) -> dict[str, np.ndarray]:
    """Random vectors in canonical layout, as the snapshot of boundary 6."""
    random, count = np.random.default_rng(1), memory.plan.parameters.count
    state = {name: random.normal(size=count).astype(np.float32) for name in names}
    memory.learner_snapshots.write(6, lambda out: [np.copyto(out[name], state[name]) for name in out])
    return state


class Reference:
    """Updates one after the other, in one process."""

    def __init__(self, memory: Memory) -> None:
        self.model = _model(memory)
        self.model.pack(initial_parameters(memory.plan.network, 1), self.model.params)
        self.optimizer = Optimizer(self.model, memory.plan.config.learn, None, mean_gradient=True)

    def apply(self, gradient: np.ndarray) -> None:
        """Make one update."""
        self.optimizer.gradient.copy_(torch.from_numpy(gradient))
        self.optimizer.step()


class WithoutOrder:
    """Gradients that are applied in place, with a target network where there is one, and by the reference."""

    def __init__(self, **settings: Any) -> None:
        self.memory, self.shared = _memory(schedule="async", **settings)
        self.target = _model(self.memory) if self.memory.run_schedule.method.has_target_network else None
        self.hogwild, self.reference = Hogwild(self.memory, _model(self.memory), self.target, 0), Reference(self.memory)
        self.hogwild.fill()

    def apply(self, worker: int, number: int, gradient: np.ndarray) -> None:
        """Publish a gradient and apply it: the parameters are those of the reference."""
        self.shared.gradient[worker] = gradient
        self.shared.computed.publish(worker, number + 1)
        self.hogwild.apply(worker, number)
        self.reference.apply(gradient)
        np.testing.assert_array_equal(self.shared.params[0], self.reference.model.params.numpy())


def _played(memory: Memory, shared: SharedParameters) -> dict[str, np.ndarray]:
    """The vectors after some rounds of random gradients, in canonical layout."""
    shards = _shards(memory)
    for round_ in range(ROUNDS):
        shared.gradient[:] = _gradients(memory, round_)
        for shard in shards:
            shard.apply(round_)
        assert shared.applied.values.tolist() == [round_ + 1] * len(shards)
    out = {name: np.zeros(memory.plan.parameters.count, np.float32) for name in ("online", "moment1", "moment2")}
    shards[0].store(ROUNDS, out)
    return out


@pytest.mark.parametrize("optimizer", ["rms", "rmsprop", "adam", "radam"])
def test_gradients_are_applied_in_the_order_of_workers(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    """Whatever the shards."""
    monkeypatch.setattr(versions, "BLOCK", 1 << 12)
    settings = {"optimizer": optimizer, "learning_rate_end": 1e-5, "anneal_steps": 100}
    memory, shared = _memory(**settings)
    found = _played(memory, shared)
    for actors in (2, 3):
        np.testing.assert_equal(_played(*_memory(actors=actors, **settings)), found)

    reference = Reference(memory)
    model, engine = reference.model, reference.optimizer
    for round_ in range(ROUNDS):
        engine.set_steps(memory.run_schedule.updates_before(round_))
        engine.set_rate(memory.run_schedule.learning_rate(round_, memory.plan.config.learn))
        for gradient in _gradients(memory, round_):
            reference.apply(gradient)
    expected = {"online": model.params, "moment1": engine.mean, "moment2": engine.square}
    np.testing.assert_equal(found, {name: canonical(model, vector) for name, vector in expected.items()})


def test_a_shard_that_was_interrupted_is_made_again() -> None:
    memory, shared = _memory()
    (shard,) = _shards(memory)
    shared.gradient[:] = _gradients(memory, 0)
    shard.apply(0)
    whole = shared.params[1].copy()
    shared.applied.publish(0, 0)  # killed before it was published, with some of its blocks written
    shared.params[1, 1_000:] = 7.0
    shared.moment2[1, :500] = 7.0
    shard.apply(0)
    np.testing.assert_array_equal(shared.params[1], whole)
    shared.gradient[:] = 0.0
    shard.apply(0)  # it is whole: nothing is done
    np.testing.assert_array_equal(shared.params[1], whole)


def test_a_shard_that_was_filled_is_not_filled_again() -> None:
    """A process that comes back must not put the first version in the place of a later one."""
    memory, shared = _memory()
    (shard,) = _shards(memory)
    for round_ in range(2):  # version 2 lies in the buffer of version 0
        shared.gradient[:] = _gradients(memory, round_)
        shard.apply(round_)
    whole = shared.params.copy()
    _shards(memory)
    np.testing.assert_array_equal(shared.params, whole)
    assert shared.applied.values.tolist() == [2]


def test_the_first_version_comes_from_the_newest_snapshot() -> None:
    memory, _ = _memory(actors=2)
    state = _write_snapshot(memory, "online", "moment1", "moment2")
    shards = _shards(memory)
    found = {name: np.zeros_like(vector) for name, vector in state.items()}
    shards[0].store(6, found)
    np.testing.assert_equal(found, state)
    shards[1].load(6)
    np.testing.assert_array_equal(canonical(shards[1]._model, shards[1]._model.params), state["online"])


@pytest.mark.parametrize(("schedule", "kind"), [("ordered", Versions), ("async", Hogwild)])
def test_the_target_network_comes_from_the_newest_snapshot(schedule: str, kind: type[Versions | Hogwild]) -> None:
    """It is older than the parameters, and its number continues."""
    target_steps = 2 * T_MAX * LANE_ENVS * WORKERS
    memory, _ = _memory(schedule=schedule, method="n-step-q", round_steps=target_steps)
    state = _write_snapshot(memory, "online", "target", "moment1", "moment2")
    models = [_model(memory) for _ in range(2)]
    made = kind(memory, *models, 0)
    made.fill()
    made.load(6)
    np.testing.assert_array_equal(canonical(models[1], models[1].params), state["target"])
    blocks = torch.randint(0, 256, memory.plan.network.frames.blocks(2), dtype=torch.uint8)
    for name, model in zip(("online", "target"), models, strict=True):
        fresh = packed_model(memory.plan.network, "fp32", state[name], make_model)
        outputs, expected = (each.forward(blocks, 0, ExtraInputs()).outputs for each in (model, fresh))
        assert torch.equal(outputs, expected), name
    assert made.target_changes(6) == 6 * memory.run_schedule.round_steps // target_steps


def test_an_annealed_rate_moves_gradients_without_order() -> None:
    run = WithoutOrder(learning_rate=1e-2, learning_rate_end=1e-4, anneal_steps=360)
    assert run.memory.run_schedule.round_steps == 36
    for number in range(6):
        run.reference.optimizer.set_rate(1e-2 - (1e-2 - 1e-4) * number * 36 / 360)
        run.apply(0, number, _gradients(run.memory, number)[0])


def test_the_target_network_is_that_of_its_newest_change() -> None:
    memory, shared = _memory(method="n-step-q", round_steps=2 * T_MAX * LANE_ENVS * WORKERS)
    online, target = (_model(memory) for _ in range(2))
    shard = Versions(memory, online, target, 0)
    shard.fill()
    changed = []
    for round_ in range(4):
        shard.load(round_)
        before = target.params.clone()
        shared.gradient[:] = _gradients(memory, round_)
        shard.apply(round_)
        shard.load(round_ + 1)
        np.testing.assert_array_equal(target.params.numpy(), shared.target)
        changed.append(not torch.equal(before, target.params))
    assert changed == [False, True, False, True]


def test_gradients_without_order_are_steps_in_place_and_the_target_follows_all_steps() -> None:
    run, changed = WithoutOrder(method="n-step-q", round_steps=2 * T_MAX * LANE_ENVS), []
    for number, gradient in enumerate(_gradients(run.memory, 0)):
        before = run.shared.target.copy()
        run.apply(number, 0, gradient)
        changed.append(not np.array_equal(before, run.shared.target))
    assert changed == [False, True, False]
    run.hogwild.load(0)
    np.testing.assert_array_equal(run.target.params.numpy(), run.shared.target)


@pytest.mark.parametrize("behind", [0, 1])
def test_gradients_before_learning_are_no_steps_of_adam_without_order(behind: int) -> None:
    """The first step corrects its moments as step 1, whatever was played before `learning_starts`.

    Nothing keeps workers together: others may be some gradients behind.
    """
    settings = {"method": "dqn", "local_replay": 1_000, "batch_size": 4, "learning_starts": 100, "optimizer": "adam"}
    run = WithoutOrder(round_steps=4 * T_MAX * LANE_ENVS, **settings)
    first = run.memory.run_schedule.first_learning_round
    run.shared.computed.publish_all(first - behind)  # of every worker, without a step
    for number, gradient in enumerate(_gradients(run.memory, 0)):
        run.apply(number, first, gradient)


def test_a_target_network_is_written_before_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process that loads in between would keep the former one, and a kill in between would lose the change."""
    run, numbers, target = WithoutOrder(method="n-step-q", round_steps=T_MAX * LANE_ENVS), list[int](), MagicMock()
    target.__setitem__.side_effect = lambda place, values: numbers.append(int(run.shared.target_changes[0]))
    monkeypatch.setattr(run.shared, "target", target)
    run.apply(0, 0, _gradients(run.memory, 0)[0])
    assert (numbers, int(run.shared.target_changes[0])) == ([0], 1)
