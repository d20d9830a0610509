"""What updates move to: the target network's word on what follows."""

from __future__ import annotations

from torch import Tensor

from learner.losses.method import Method, NextState
from learner.losses.scalar_loss import greedy_policy, munchausen_reward, rescale, soft_policy, unrescale
from learner.networks.model import ExtraInputs, Model
from learner.replay.chunk import Chunk
from learner.replay.sampling import second_stack
from shared.network_spec import RESCALING


class Targets:
    """Target values, for a chunk as far as they do not depend on the online network, then for every update."""

    def __init__(self, target: Model, online: Model, method: Method, n_step: int) -> None:
        self._target, self._online, self._method = target, online, method
        self._extend, self._second = method.algorithm, second_stack(n_step)

    def prepare(self, chunk: Chunk) -> None:
        """Ask the target network about a whole chunk."""
        algorithm, method = self._extend, self._method
        extra_inputs = ExtraInputs.of(chunk.next_fractions, chunk.next_noise)
        answer = self._target.forward(chunk.blocks, self._second, extra_inputs)
        outputs = self.unscaled(answer.outputs)
        choosing = outputs[:, :, : method.policy_samples] if method.policy_samples else outputs
        outputs = outputs[:, :, method.policy_samples :]
        if algorithm.double:
            chunk.next_state.copy_(outputs)
            return
        q, bonus = method.values(choosing), None
        if algorithm.munchausen:
            log_policy, policy = soft_policy(q, algorithm.munchausen_temperature)
            bonus = log_policy.mul(-algorithm.munchausen_temperature)
            chunk.reward.add_(self._munchausen(chunk))
        else:
            policy = greedy_policy(q)
        chunk.y.copy_(self._of(NextState(outputs, policy, bonus, chunk.reward, chunk.discount)))

    def of(self, chunk: Chunk, part: slice, noise: slice) -> Tensor:
        """Targets of the transitions `part` of a chunk, whose noise is `noise`: what the next update moves to.

        With Double DQN r + gamma Q^(s', argmax_a' Q(s', a')), Q being the online network as it is now, Q^ the target
        network (van Hasselt et al. 2016, section "Double DQN").
        """
        if not self._extend.double:
            return chunk.y[part]
        samples = self._method.policy_samples
        extra_inputs = ExtraInputs.of(chunk.next_fractions[part, :samples], chunk.noise[noise])
        answer = self._online.forward(chunk.blocks[part], self._second, extra_inputs)
        policy = greedy_policy(self._method.values(self.unscaled(answer.outputs)))
        next_state = NextState(chunk.next_state[part], policy, None, chunk.reward[part], chunk.discount[part])
        chunk.y[part] = self._of(next_state)
        return chunk.y[part]

    def _of(self, next_state: NextState) -> Tensor:
        y = self._method.target(next_state)
        return rescale(y, RESCALING) if self._extend.value_rescaling else y

    def unscaled(self, outputs: Tensor) -> Tensor:
        """Outputs on the scale of rewards."""
        return unrescale(outputs, RESCALING) if self._extend.value_rescaling else outputs

    def _munchausen(self, chunk: Chunk) -> Tensor:
        """What the target network's policy in s adds to the rewards."""
        algorithm = self._extend
        extra_inputs = ExtraInputs.of(chunk.next_fractions[:, : self._method.policy_samples], chunk.next_noise)
        q = self._method.values(self.unscaled(self._target.forward(chunk.blocks, 0, extra_inputs).outputs))
        return munchausen_reward(
            q,
            chunk.chosen,
            alpha=algorithm.munchausen_alpha,
            temperature=algorithm.munchausen_temperature,
            lower=algorithm.munchausen_floor,
        )
