"""Gradient updates: the trainer of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.loss import bellman_target, clipped_error
from learner.network import forward, initial_parameters, views_of
from learner.replay import HostReplay
from shared.config import Learn
from shared.parameters import parameters_of
from shared.ring import Ring
from shared.sizes import Sizes

STATE_NAMES = ("online", "target", "moment1", "moment2")
"""The trainer's vectors float32[P]; moments of the gradient: mean and mean square."""

TARGET_CHUNK = 8
"""Updates whose target values are computed at once."""


class NonFiniteError(RuntimeError):
    """Loss, gradient or parameters are no longer finite. The message is a sentence saying where."""


class RoundMetrics(NamedTuple):
    """Means over the updates of a round."""

    updates: int
    loss: float
    max_q: float
    gradient_norm: float


class Trainer:
    """Parameters, target and optimiser, and the updates of one round after the other."""

    def __init__(
        self,
        *,
        ring: Ring,
        sizes: Sizes,
        learn: Learn,
        seed: int,
        actions: int,
        device: torch.device,
        precision: str,
    ) -> None:
        self._sizes, self._learn, self._seed, self._device = sizes, learn, seed, device
        self._spec = parameters_of(learn.network, actions)
        self._actions = actions
        self._bf16 = precision == "bf16"
        self._state = {name: torch.zeros(self._spec.count, device=device) for name in STATE_NAMES}
        self._online_views = views_of(self._state["online"].requires_grad_(), self._spec)
        self._target_views = views_of(self._state["target"], self._spec)
        self._replay = HostReplay(ring, learn.batch_size, learn.discount, seed)
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        # RMSProp's epsilon of 2015 belongs to gradients summed over the batch (dqn_zoo, which averages, divides it by
        # 32 ** 2); Adam's settings in use belong to averaged ones.
        self._scale = 1.0 if learn.optimizer == "rmsprop" else 1.0 / learn.batch_size
        self._round = self._done = self._planned = 0

    def initialise(self) -> None:
        """Fresh parameters from the seed, the target equal to them, moments zero."""
        with torch.no_grad():
            self._state["online"].copy_(torch.from_numpy(initial_parameters(self._spec, self._seed)))
            self._state["target"].copy_(self._state["online"])
            self._state["moment1"].zero_()
            self._state["moment2"].zero_()

    def load(self, state: dict[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of `STATE_NAMES`, float32[P] each."""
        with torch.no_grad():
            for name in STATE_NAMES:
                self._state[name].copy_(torch.from_numpy(np.asarray(state[name])))

    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write the vectors of `STATE_NAMES` into float32[P] arrays."""
        for name in STATE_NAMES:
            out[name][:] = self._state[name].detach().cpu().numpy()

    def online_into(self, out: NDArray[np.float32]) -> None:
        """Write the online parameters into float32[P]."""
        out[:] = self._state["online"].detach().cpu().numpy()

    def update_target(self) -> None:
        """The target network becomes the online one."""
        with torch.no_grad():
            self._state["target"].copy_(self._state["online"])

    def begin_round(self, round_: int, window_end: int) -> int:
        """Draw the transitions of all updates of round `round_` from ticks before `window_end`.

        Returns:
            The number of updates of the round.
        """
        self._round, self._done = round_, 0
        self._planned = self._sizes.updates_in(round_)
        self._sums.zero_()
        if self._planned:
            self._replay.begin_round(round_, window_end, self._planned)
        return self._planned

    def run(self, count: int) -> None:
        """The next `count` updates of the round, at most those that are left."""
        for _ in range(min(count, self._planned - self._done)):
            self._update()
            self._done += 1

    def end_round(self) -> RoundMetrics:
        """Means of the updates done since `begin_round`.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        loss, max_q, norm = (self._sums / max(1, self._done)).tolist()
        finite = bool(np.isfinite([loss, max_q, norm]).all()) and bool(torch.isfinite(self._state["online"]).all())
        if not finite:
            raise NonFiniteError(
                f"Round {self._round}: loss {loss}, maximal Q {max_q}, gradient norm {norm} after {self._done} updates; "
                "the parameters are not finite any more. A smaller --learning-rate may help."
            )
        return RoundMetrics(self._done, loss, max_q, norm)

    def _update(self) -> None:
        batch = self._replay.gather(self._done, self._done + 1)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
            with torch.no_grad():
                next_q = forward(self._target_views, self._learn.network, batch.frames[:, 1:]).float().amax(1)
            q = forward(self._online_views, self._learn.network, batch.frames[:, :-1]).float()
        one_hot = torch.nn.functional.one_hot(batch.action, self._actions).float()
        chosen = (q * one_hot).sum(1)
        y = bellman_target(batch.reward, batch.discount, next_q)
        loss, gradient = clipped_error(chosen.detach(), y)
        online = self._state["online"]
        (flat_gradient,) = torch.autograd.grad(chosen, online, gradient * self._scale)
        with torch.no_grad():
            self._step(flat_gradient)
            self._sums += torch.stack([loss.mean(), q.detach().amax(1).mean(), flat_gradient.norm()])

    def _step(self, gradient: Tensor) -> None:
        """One step of the optimiser on the flat vectors."""
        learn = self._learn
        online, mean, square = (self._state[name] for name in ("online", "moment1", "moment2"))
        if learn.optimizer == "rmsprop":
            mean.lerp_(gradient, 1.0 - learn.optimizer_decay)
            square.mul_(learn.optimizer_decay).addcmul_(gradient, gradient, value=1.0 - learn.optimizer_decay)
            root = (square - mean * mean + learn.optimizer_epsilon).sqrt_()
            online.addcdiv_(gradient, root, value=-learn.learning_rate)
            return
        step = self._sizes.updates_before(self._round) + self._done + 1
        mean.lerp_(gradient, 0.1)
        square.mul_(learn.optimizer_decay).addcmul_(gradient, gradient, value=1.0 - learn.optimizer_decay)
        root = (square / (1.0 - learn.optimizer_decay**step)).sqrt_().add_(learn.optimizer_epsilon)
        online.addcdiv_(mean, root, value=-learn.learning_rate / (1.0 - 0.9**step))
