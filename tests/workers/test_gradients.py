"""A worker's gradient against autograd, and what is published of it."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.engine.engine import GRADIENT_NORM
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.packed_model import PackedModel
from learner.rollout.actor_critic import ActorCritic
from learner.rollout.advantages import generalized_advantages
from learner.rollout.step_reader import StepReader
from shared.errors import FatalError
from shared.memory.run_memory import Memory
from shared.memory.shared_parameters import SharedParameters
from tests.learner.networks.test_modules import CPU, Reference, canonical, make_reference, packed_model
from tests.support.played_ring import ACTIONS
from tests.support.worker_memory import LANE_ENVS, T_MAX, WORKERS, worker_config, worker_memory
from workers.gradients import Gradients, make_worker_method

WORKER, ROUND = 1, 2


def models_of(memory: Memory, *seeds: int, scale: float = 1.0) -> list[PackedModel]:
    """Models of fresh parameters times `scale`."""
    network = memory.plan.network
    return [packed_model(network, "fp32", scale * initial_parameters(network, seed), make_model) for seed in seeds]


def _gradients(*, scale: float = 1.0, **settings: Any) -> tuple[Memory, Gradients, SharedParameters]:
    """Gradients of a memory with these settings, by fresh parameters times `scale`."""
    memory, _ = worker_memory(worker_config(**settings))
    (model,) = models_of(memory, 1, scale=scale)
    gradients = Gradients(memory, model, None, make_worker_method(memory.plan, CPU), lambda *of_tick: [])
    return memory, gradients, memory.shared_parameters


def _gradient(**settings: Any) -> tuple[np.ndarray, dict[str, float]]:
    """One gradient, and the means of its round's record."""
    _, gradients, shared = _gradients(**settings)
    gradients.compute(WORKER, ROUND)
    return shared.gradient[WORKER], gradients.means(ROUND + 1)[1]


def _outputs(memory: Memory, reference: Reference, tick: np.ndarray, env: np.ndarray) -> Tensor:
    """Outputs of the steps (tick, env), by tick and then env, by PyTorch's layers."""
    rows, mask = memory.ring.stack_rows(env, tick)
    stacks = torch.from_numpy(memory.ring.flat["frame"][rows] * mask[:, :, None, None]).double()
    x = reference.hidden(reference.torso(stacks / 255.0)).relu()
    if memory.run_schedule.recurrent_units:
        starts = memory.ring.flat["start"][memory.ring.rows(env, tick)].reshape(-1, LANE_ENVS)
        before = memory.ring.flat["recurrent_state"][memory.ring.rows(env[:LANE_ENVS], tick[:LANE_ENVS] - 1)]
        state, found = torch.from_numpy(before).double().unbind(1), []
        for row, start in zip(x.view(-1, LANE_ENVS, 1, x.shape[1]), starts, strict=True):
            keep = torch.from_numpy(1.0 - start)[:, None]
            outputs, after = reference.lstm(row, tuple((each * keep)[None] for each in state))
            state = tuple(each[0] for each in after)
            found.append(outputs[:, 0])
        x = torch.cat(found)
    return reference.heads(x)


def _expected(memory: Memory, flat: np.ndarray) -> np.ndarray:
    """Gradient of the sum of the losses of A3C over the valid steps of a worker, by autograd."""
    config = memory.plan.config
    settings: Any = config.algorithm.settings
    method: Any = make_worker_method(memory.plan, CPU)
    reader = StepReader(memory.ring, config.learn, method, range(WORKER * LANE_ENVS, (WORKER + 1) * LANE_ENVS))
    ticks = np.arange(ROUND * T_MAX, (ROUND + 1) * T_MAX + 1)
    tick, env = np.repeat(ticks, LANE_ENVS), np.tile(WORKER * LANE_ENVS + np.arange(LANE_ENVS), len(ticks))
    reference = make_reference(memory.plan.network, flat)
    outputs = _outputs(memory, reference, tick, env)
    rollout = reader.rollout(tick, env, outputs.detach().float().numpy())
    assert 0 < rollout.valid.sum() < rollout.valid.size
    values, n = rollout.outputs[:, :, -1], T_MAX * LANE_ENVS
    advantage = generalized_advantages(rollout, values, 1.0)
    log_policy = torch.log_softmax(outputs[:n, :ACTIONS], 1)
    taken = log_policy.gather(1, torch.from_numpy(rollout.action.reshape(-1, 1)))[:, 0]
    entropy = -(log_policy.exp() * log_policy).sum(1)
    weight = torch.from_numpy(rollout.valid.reshape(-1).astype(np.float32))
    returns = torch.from_numpy((advantage + values[:-1]).reshape(-1).astype(np.float32))
    by_step = -torch.from_numpy(advantage.reshape(-1).astype(np.float32)) * taken
    by_step = by_step + settings.value_weight / 2 * (outputs[:n, ACTIONS] - returns).square()
    (weight * (by_step - settings.entropy_weight * entropy)).sum().backward()
    return reference.gradient().numpy()


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_gradient_is_the_sum_over_the_steps_of_one_worker(*, recurrent: bool) -> None:
    """With an LSTM from the state in the ring on, through all steps and no episode's end."""
    memory, gradients, shared = _gradients(recurrent=recurrent)
    assert memory.ring.field["start"][WORKER, ROUND * T_MAX + 1 : (ROUND + 1) * T_MAX].any()
    gradients.compute(WORKER, ROUND)
    found = canonical(gradients._model, torch.from_numpy(shared.gradient[WORKER]))
    expected = _expected(memory, initial_parameters(memory.plan.network, 1))
    for name, part in memory.plan.parameters.split(expected).items():
        assert part.any(), name
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
    assert shared.computed.values.tolist() == [0, ROUND + 1, 0]


def test_a_clipped_gradient_has_the_bound_as_its_norm() -> None:
    """The bound is of the mean over the steps, as with every method."""
    found, _ = _gradient(clip_gradient=1e-3)
    assert np.linalg.norm(found) == pytest.approx(1e-3 * T_MAX * LANE_ENVS, rel=1e-2)


def test_a_gradient_of_adam_is_the_mean_over_the_steps_whose_norm_every_optimizer_records() -> None:
    found = []
    for optimizer, steps in (("rms", T_MAX * LANE_ENVS), ("adam", 1)):
        gradient, means = _gradient(optimizer=optimizer)
        found.append(gradient / steps)
        assert means[GRADIENT_NORM] == pytest.approx(np.linalg.norm(found[-1]), rel=1e-3)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-5 * np.abs(found[0]).max())


def test_sarsa_ends_with_the_action_that_its_policy_takes_at_the_tick_that_opens_the_next_round() -> None:
    memory, _ = worker_memory(worker_config(method="sarsa", round_steps=72))
    online, target = models_of(memory, 0, 1)
    choose, method = Mock(return_value=[2, 3]), make_worker_method(memory.plan, CPU)
    method.targets = targets = Mock(wraps=method.targets)
    for models in ((online, target), (target, online)):
        Gradients(memory, *models, method, choose).compute(WORKER, ROUND)
        memory.shared_parameters.computed.publish(WORKER, ROUND)
    first, second = (call.args[0] for call in targets.call_args_list)
    worker, tick, best = choose.call_args_list[0].args
    assert (worker, tick, best.tolist()) == (WORKER, (ROUND + 1) * T_MAX, first.outputs[-1].argmax(1).tolist())
    assert first.next_action.tolist() == [2, 3]
    np.testing.assert_array_equal(first.target_outputs, second.outputs)
    assert not np.allclose(first.outputs, second.outputs)


@pytest.mark.parametrize("schedule", ["ordered", "async"])
def test_an_annealed_setting_has_its_value_of_the_gradient(schedule: str) -> None:
    """The gradients of all workers take 36 steps, so gradient 2 begins half way to the end."""
    annealed, half, whole = (
        _gradient(**settings, schedule=schedule, snapshot_every_steps=108)[0]
        for settings in (
            {"entropy_weight": 0.5, "entropy_weight_end": 0.0, "anneal_steps": 144},
            {"entropy_weight": 0.25},
            {"entropy_weight": 0.5},
        )
    )
    np.testing.assert_array_equal(annealed, half)
    assert not np.array_equal(annealed, whole)


def test_a_method_that_gives_a_mean_alone_has_the_gradient_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plug-in does that writes `learn` by its documented interface."""
    found = []
    for follows, gives_mean in ((True, True), (False, True), (False, False)):
        monkeypatch.setattr(ActorCritic, "can_sum_losses", follows)
        monkeypatch.setattr(ActorCritic, "mean_gradient", gives_mean)
        found.append(_gradient()[0])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6 * np.abs(found[0]).max())
    np.testing.assert_array_equal(found[2], found[0])  # one that always gives the sum


def test_metrics_are_summed_over_a_record_and_a_repeated_part_counts_once() -> None:
    """Records of two rounds; a stop may end one earlier."""
    memory, gradients, shared = _gradients()
    assert memory.run_schedule.record_rounds == 2
    for round_, of_record in ((0, [0]), (1, [0, 1]), (2, [2]), (3, [2, 3])):
        for worker in range(WORKERS):
            gradients.compute(worker, round_)
            shared.computed.publish(worker, round_)  # as if killed before it was published
            gradients.compute(worker, round_)
        with torch.inference_mode():
            own = [gradients._gradient(worker, number) for number in of_record for worker in range(WORKERS)]
        updates, means = gradients.means(round_ + 1)
        assert updates == len(own)
        expected = {name: np.mean([metrics[name] for metrics in own]) for name in memory.run_schedule.method.metrics}
        assert means == pytest.approx(expected)


def test_gradients_that_are_counted_stay_so() -> None:
    """A process that comes back has computed more of them than the snapshot holds."""
    _, gradients, shared = _gradients()
    shared.computed.publish(WORKER, 5)
    for worker in range(WORKERS):
        gradients.resume(worker, 3)
    assert shared.computed.values.tolist() == [3, 5, 3]


def test_sums_of_a_record_stay_while_its_worker_is_ahead() -> None:
    """With async a worker computes up to a record's rounds before the commit of the first of them."""
    memory, gradients, _ = _gradients(schedule="async")
    assert (memory.run_schedule.record_rounds, memory.run_schedule.max_rounds_ahead) == (2, 2)
    found = []
    for round_ in range(4):
        for worker in range(WORKERS):
            gradients.compute(worker, round_)
        if round_ in (1, 2):  # 2 is the newest that may be computed while boundary 2 is not committed
            found.append(gradients.means(2))
    assert found[0] == found[1]
    assert found[0][0] == gradients.means(4)[0] == 2 * WORKERS


@pytest.mark.parametrize("published", [ROUND + 1, ROUND + 2])
def test_a_gradient_that_was_published_is_not_computed_again(published: int) -> None:
    """With async it may have been applied already, and would count twice."""
    _, gradients, shared = _gradients()
    shared.computed.publish(WORKER, published)
    assert not gradients.compute(WORKER, ROUND)
    assert not shared.gradient.any()
    assert shared.computed.values[WORKER] == published


def test_a_gradient_that_is_not_finite_is_not_published() -> None:
    _, gradients, shared = _gradients(scale=1e30)
    with pytest.raises(FatalError, match=f"Gradient {ROUND} of worker {WORKER} is not finite"):
        gradients.compute(WORKER, ROUND)
    assert not shared.computed.values.any()
    assert not shared.gradient.any()
