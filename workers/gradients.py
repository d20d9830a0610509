"""Gradients of workers: those of one lane at the parameters as they are, published one after the other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from learner.engine.engine import GRADIENT_NORM
from learner.engine.optimizer import Optimizer
from learner.engine.side_stream import SideStream
from learner.losses.method import Method, ValueMethod, make_method
from learner.networks.model import Model
from learner.rollout.on_policy_method import OnPolicyMethod
from shared.errors import FatalError
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from workers.newest_steps import Choose, LocalReplay, NewestSequences, NewestSteps


def make_worker_method(plan: Plan, device: torch.device) -> Method:
    """The method of a run of workers. An on-policy gradient is the sum over the steps (Mnih et al. 2016, section 4)."""
    method = make_method(plan.network, plan.config.algorithm, device, plan.method)
    if isinstance(method, OnPolicyMethod):
        method.sum_losses()
    return method


class Gradients:
    """The gradients of the workers of one process."""

    def __init__(self, memory: Memory, model: Model, target: Model | None, method: Method, choose: Choose) -> None:
        """Gradients by the parameters of `model`, as they are; `choose`: as `NewestSteps` needs it."""
        assert memory.shared_parameters is not None, "the run has workers"
        plan, run_schedule = memory.plan, memory.run_schedule
        self._shared, self._run_schedule, self._model = memory.shared_parameters, run_schedule, model
        learn = replace(plan.config.learn, batch_size=run_schedule.update_samples)
        self._optimizer = Optimizer(model, learn, plan.config.algorithm.clip_gradient)
        model.gradient_into(self._optimizer.gradient)
        self._side_stream = SideStream()
        self._source: LocalReplay | NewestSteps
        if isinstance(method, ValueMethod):
            assert target is not None, "TD targets need one"
            self._source = LocalReplay(memory, model, target, method)
        else:
            assert isinstance(method, OnPolicyMethod), "there are no other methods"
            source = NewestSequences if run_schedule.recurrent_units else NewestSteps
            self._source = source(memory, model, target, method, choose)

    def resume(self, worker: int, number: int) -> None:
        """Count the gradients of a worker before `number`, which are in the parameters that the run begins with."""
        if self._shared.computed.values[worker] < number:
            self._shared.computed.publish(worker, number)

    @torch.inference_mode()
    def compute(self, worker: int, number: int) -> bool:
        """Compute and publish gradient `number` of a worker, whose steps are played, unless a former incarnation did.

        Returns:
            True if there is a new gradient to apply.

        Raises:
            FatalError: the gradient is not finite; it is not published, so nothing of it is applied.
        """
        shared, run_schedule = self._shared, self._run_schedule
        if shared.computed.values[worker] > number:
            return False
        learns = number >= run_schedule.first_learning_round
        if learns:
            metrics = self._gradient(worker, number)
            if not all(map(math.isfinite, metrics.values())):
                found = ", ".join(f"{name} {value}" for name, value in metrics.items())
                raise FatalError(
                    f"Gradient {number} of worker {worker} is not finite ({found}): it was not applied; a smaller "
                    "--learning-rate may help."
                )
            torch.mul(self._optimizer.gradient, self._optimizer.scale(), out=torch.from_numpy(shared.gradient[worker]))
            before = 0.0 if run_schedule.is_record(number) else shared.sums[number % len(shared.sums), worker]
            added = [metrics.get(name, math.nan) for name in run_schedule.method.metrics]
            shared.sums[(number + 1) % len(shared.sums), worker] = before + np.array([*added, 1.0])
        shared.computed.publish(worker, number + 1)
        return learns

    def _gradient(self, worker: int, number: int) -> dict[str, float]:
        """Compute gradient `number` of a worker; return its metrics."""
        optimizer = self._optimizer
        saved, by_outputs, metrics = self._source.differentiate(worker, number)
        if optimizer.gradient_scale != 1.0:
            by_outputs.mul_(optimizer.gradient_scale)
        self._model.backward(saved, by_outputs, self._side_stream)
        norm = optimizer.norm().item() / optimizer.mean_factor
        return {name: value.mean().item() for name, value in metrics.items()} | {GRADIENT_NORM: norm}

    def means(self, boundary: int) -> tuple[int, dict[str, float]]:
        """Updates of the record up to `boundary`, and the means of the metrics over them."""
        *sums, updates = self._shared.sums[boundary % len(self._shared.sums)].sum(0).tolist()
        means = (total / max(1.0, updates) for total in sums)
        return int(updates), dict(zip(self._run_schedule.method.metrics, means, strict=True))
