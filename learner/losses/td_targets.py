"""What updates move to: the target network's word on what follows."""

from __future__ import annotations

from torch import Tensor

from learner.losses.method import Method, Successor
from learner.losses.scalar_loss import greedy_policy, munchausen_reward, rescale, soft_policy, unrescale
from learner.networks.model import Model, SideInputs
from learner.replay.chunk import Chunk
from learner.replay.sampling import second_stack
from shared.network_spec import RESCALING


class Targets:
    """Target values, for a chunk as far as they do not depend on the online network, then for every update."""

    def __init__(self, target: Model, online: Model, method: Method, n_step: int) -> None:
        self._target, self._online, self._method = target, online, method
        self._extend, self._second = method.extend, second_stack(n_step)

    def prepare(self, chunk: Chunk) -> None:
        """Ask the target network about a whole chunk."""
        extend, method = self._extend, self._method
        beside = SideInputs.of(chunk.successor_fractions, chunk.successor_noise)
        answer = self._target.forward(chunk.blocks, self._second, beside)
        outputs = self.unscaled(answer.outputs)
        choosing = outputs[:, :, : method.policy_samples] if method.policy_samples else outputs
        outputs = outputs[:, :, method.policy_samples :]
        if extend.double:
            chunk.successor.copy_(outputs)
            return
        q, bonus = method.values(choosing), None
        if extend.munchausen:
            log_policy, policy = soft_policy(q, extend.munchausen_temperature)
            bonus = log_policy.mul(-extend.munchausen_temperature)
            chunk.reward.add_(self._munchausen(chunk))
        else:
            policy = greedy_policy(q)
        chunk.y.copy_(self._of(Successor(outputs, policy, bonus, chunk.reward, chunk.discount)))

    def of(self, chunk: Chunk, part: slice, noise: slice) -> Tensor:
        """Targets of the transitions `part` of a chunk, whose noise is `noise`: what the next update moves to.

        With Double DQN r + gamma Q^(s', argmax_a' Q(s', a')), Q being the online network as it is now, Q^ the target
        network (van Hasselt et al. 2016, section "Double DQN").
        """
        if not self._extend.double:
            return chunk.y[part]
        samples = self._method.policy_samples
        beside = SideInputs.of(chunk.successor_fractions[part, :samples], chunk.noise[noise])
        answer = self._online.forward(chunk.blocks[part], self._second, beside)
        policy = greedy_policy(self._method.values(self.unscaled(answer.outputs)))
        successor = Successor(chunk.successor[part], policy, None, chunk.reward[part], chunk.discount[part])
        chunk.y[part] = self._of(successor)
        return chunk.y[part]

    def _of(self, successor: Successor) -> Tensor:
        y = self._method.target(successor)
        return rescale(y, RESCALING) if self._extend.value_rescaling else y

    def unscaled(self, outputs: Tensor) -> Tensor:
        """Outputs on the scale of rewards."""
        return unrescale(outputs, RESCALING) if self._extend.value_rescaling else outputs

    def _munchausen(self, chunk: Chunk) -> Tensor:
        """What the target network's policy in s adds to the rewards."""
        extend = self._extend
        beside = SideInputs.of(chunk.successor_fractions[:, : self._method.policy_samples], chunk.successor_noise)
        q = self._method.values(self.unscaled(self._target.forward(chunk.blocks, 0, beside).outputs))
        return munchausen_reward(
            q,
            chunk.chosen,
            alpha=extend.munchausen_alpha,
            temperature=extend.munchausen_temperature,
            lower=extend.munchausen_floor,
        )
