"""The update rule of value-based methods: TD targets, bootstrapped from a target network, and the method's loss."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.losses.method import NextState, ValueMethod
from learner.losses.scalar_loss import greedy_policy, munchausen_reward, rescale, soft_policy, unrescale
from learner.networks.model import ExtraInputs, Model
from learner.replay.chunk import Chunk
from learner.replay.replay_frames import second_stack_offset
from learner.team.team import ALONE, Team
from shared.network_spec import RESCALING


class TDLearning:
    """Update rule of value-based methods (`learner.engine.interfaces.UpdateRule`).

    The parts of the targets that need no online network are computed for a whole chunk, the rest in every update.

    Attributes:
        device: of both networks.
    """

    mean_gradient = False

    def __init__(self, online: Model, target: Model, method: ValueMethod) -> None:
        """`method` is that of both networks."""
        self._online, self._target, self._method = online, target, method
        self._algorithm = method.algorithm
        self._second = second_stack_offset(method.network.frames, method.algorithm.n_step)
        self.networks: dict[str, Model] = {"target": target}
        self.device = method.device

    def make_chunk(self, updates: int, batch: int, team: Team = ALONE) -> Chunk:
        """Empty buffers for `updates` updates of `batch` transitions each, in the memory of a team."""
        return Chunk.create(updates, batch, self._method, self._online.noise, team)

    def update_target(self) -> None:
        """Copy the online network into the target network."""
        self._target.params.copy_(self._online.params)
        self._target.sync_copy()

    def anneal(self, value_between: Callable[[float, float | None], float]) -> None:
        """Set the annealed settings of the method to their values during a round."""
        self._method.anneal(value_between)

    def prepare(self, chunk: Chunk) -> None:
        """Compute the target network's outputs for a chunk or a part of it; without Double DQN also the TD targets."""
        algorithm, method = self._algorithm, self._method
        extra_inputs = ExtraInputs.from_buffers(chunk.next_fractions, chunk.next_noise)
        answer = self._target.forward(chunk.blocks, self._second, extra_inputs)
        outputs = self._unscaled(answer.outputs)
        # An implicit network answers at the fractions that choose the action, then at those of the loss.
        choosing = outputs[:, :, : method.policy_samples] if method.policy_samples else outputs
        outputs = outputs[:, :, method.policy_samples :]
        if algorithm.double:
            chunk.next_outputs.copy_(outputs)
            return
        q, bonus = method.values(choosing), None
        if algorithm.munchausen:
            log_policy, policy = soft_policy(q, algorithm.munchausen_temperature)
            bonus = log_policy.mul(-algorithm.munchausen_temperature)
            chunk.reward.add_(self._munchausen_term(chunk))
        else:
            policy = greedy_policy(q)
        chunk.target.copy_(self._scaled_target(NextState(outputs, policy, bonus, chunk.reward, chunk.discount)))

    def targets(self, minibatch: Chunk) -> Tensor:
        """TD targets of the next update, of a prepared chunk.

        With Double DQN r + gamma Q^(s', argmax_a' Q(s', a')), Q being the online network as it is now, Q^ the target
        network (van Hasselt et al. 2016, section "Double DQN").
        """
        if not self._algorithm.double:
            return minibatch.target
        samples = self._method.policy_samples
        extra_inputs = ExtraInputs.from_buffers(minibatch.next_fractions[:, :samples], minibatch.noise)
        answer = self._online.forward(minibatch.blocks, self._second, extra_inputs)
        policy = greedy_policy(self._method.values(self._unscaled(answer.outputs)))
        next_state = NextState(minibatch.next_outputs, policy, None, minibatch.reward, minibatch.discount)
        return minibatch.target.copy_(self._scaled_target(next_state))

    def learn(self, outputs: Tensor, minibatch: Chunk, *, costly_metrics: bool) -> UpdateOutput:
        """Gradient of the method's losses; with prioritized replay it writes the errors of the transitions."""
        target = self.targets(minibatch)
        fractions = minibatch.extra_inputs.fractions
        learned = self._method.loss_and_gradient(outputs, minibatch.action_one_hot, target, fractions)
        if self._algorithm.prioritized:
            minibatch.td_error.copy_(learned.priority)
            learned.gradient.mul_(minibatch.importance[:, None, None])
        best = self._method.values(self._unscaled(outputs)).amax(1)
        metrics = {"loss": learned.loss, "mean_q": best}
        if costly_metrics:
            metrics["q_spread"] = best.std(correction=0)
        return UpdateOutput(learned.gradient, metrics)

    def _scaled_target(self, next_state: NextState) -> Tensor:
        """The method's target on the scale of the outputs."""
        target = self._method.target(next_state)
        return rescale(target, RESCALING) if self._algorithm.value_rescaling else target

    def _unscaled(self, outputs: Tensor) -> Tensor:
        """Outputs on the scale of rewards."""
        return unrescale(outputs, RESCALING) if self._algorithm.value_rescaling else outputs

    def _munchausen_term(self, chunk: Chunk) -> Tensor:
        """The scaled log-policy of the target network in s, which is added to the rewards."""
        algorithm, fractions = self._algorithm, chunk.next_fractions[:, : self._method.policy_samples]
        extra_inputs = ExtraInputs.from_buffers(fractions, chunk.next_noise)
        q = self._method.values(self._unscaled(self._target.forward(chunk.blocks, 0, extra_inputs).outputs))
        alpha, tau, lower = algorithm.munchausen_alpha, algorithm.munchausen_temperature, algorithm.munchausen_floor
        return munchausen_reward(q, chunk.action_one_hot, alpha=alpha, temperature=tau, lower=lower)
