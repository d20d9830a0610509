"""The optimizers, on flat vectors: RMSProp, centered (Mnih et al. 2015) or not, Adam (Kingma & Ba 2015) and RAdam.

On a CPU a step is one compiled pass over memory. It reads the gradient (float32, or bfloat16 bits), moves parameters
and moments, and writes the bfloat16 copy that the next forward pass reads. PyTorch's operations would read and write
the vectors several times (docs/lab/2026-11-cpu-learner.md). On other devices a step is a few PyTorch operations. A
graph can capture them, because what changes is read from tensors: the number of the step, and a learning rate that is
annealed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.bf16 import bits_of, from_bf16, sum_of_squares, to_bf16
from learner.networks.model import Model
from learner.team.team import ALONE, Team
from shared.config.sections import Learn

ADAM_MEAN_DECAY = 0.9
"""beta1 of Adam and RAdam; beta2 is `Learn.optimizer_decay`."""
RADAM_LENGTH = 5.0
"""Length of the moving average from which on RAdam divides by its root, as in PyTorch and optax; the paper has 4."""
ADAM_FAMILY = ("adam", "radam")
"""Optimizers that correct both moments by the number of the step; values of their epsilon belong to mean gradients."""

Vectors = tuple[NDArray, NDArray, NDArray, NDArray, NDArray, NDArray]
"""Parameters, their copy in bfloat16, the gradient, its bits in bfloat16, and both moments of a part of the weights."""
_TINY = 1e-6
_ONE = np.float32(1.0)

# The loops below work on float32[P]. With bfloat16, `gradient_bf16` and `params_bf16` are uint16[P], the bits of the
# gradient and of the parameters' copy, and `gradient` is [0]; else these two are [0] and `gradient` is float32[P].


@njit(error_model="numpy", cache=True, nogil=True)
def _rmsprop(x, params_bf16, gradient, gradient_bf16, mean, square, scale, decay, rate, epsilon):  # type: ignore[no-untyped-def]
    """x -= rate * g / sqrt(E[g^2] - E[g]^2 + epsilon) (Graves 2013, equations 38 to 41, without momentum)."""
    is_bf16 = gradient_bf16.size > 0
    for i in range(x.size):
        g = scale * (from_bf16(gradient_bf16[i]) if is_bf16 else gradient[i])
        m = decay * mean[i] + (_ONE - decay) * g
        n = decay * square[i] + (_ONE - decay) * (g * g)
        mean[i] = m
        square[i] = n
        moved = x[i] - rate * g / np.sqrt(n - m * m + epsilon)
        x[i] = moved
        if is_bf16:
            params_bf16[i] = to_bf16(moved)


@njit(error_model="numpy", cache=True, nogil=True)
def _rms(x, params_bf16, gradient, gradient_bf16, mean, square, scale, decay, rate, epsilon):  # type: ignore[no-untyped-def]
    """x -= rate * g / sqrt(E[g^2] + epsilon) (Mnih et al. 2016, section 4); `mean` stays as it is.

    TensorFlow's RMSProp, with which IMPALA and OpenAI Baselines learned, differs in one point: its E[g^2] begins at 1.
    """
    is_bf16 = gradient_bf16.size > 0
    for i in range(x.size):
        g = scale * (from_bf16(gradient_bf16[i]) if is_bf16 else gradient[i])
        n = decay * square[i] + (_ONE - decay) * (g * g)
        square[i] = n
        moved = x[i] - rate * g / np.sqrt(n + epsilon)
        x[i] = moved
        if is_bf16:
            params_bf16[i] = to_bf16(moved)


@njit(error_model="numpy", cache=True, nogil=True)
def _adam(  # type: ignore[no-untyped-def]
    x, params_bf16, gradient, gradient_bf16, mean, square, scale, decay, rate, epsilon, mean_decay, correction
):
    """x -= rate * m / (sqrt(n * correction) + epsilon), where rate holds the correction of m."""
    is_bf16 = gradient_bf16.size > 0
    for i in range(x.size):
        g = scale * (from_bf16(gradient_bf16[i]) if is_bf16 else gradient[i])
        m = mean_decay * mean[i] + (_ONE - mean_decay) * g
        n = decay * square[i] + (_ONE - decay) * (g * g)
        mean[i] = m
        square[i] = n
        moved = x[i] - rate * m / (np.sqrt(n * correction) + epsilon)
        x[i] = moved
        if is_bf16:
            params_bf16[i] = to_bf16(moved)


class Optimizer:
    """Moments and steps for one set of weights.

    Attributes:
        gradient: float32[Q] or bfloat16[Q], in the dtype of `params_bf16` (learner/networks/model.py); `step` takes it.
        mean, square: float32[Q], moments of the gradient.
        gradient_scale: factor of the gradient that an update rule gives, to be applied before it comes here.
        mean_factor: the gradient that comes here is this multiple of the gradient of the batch's mean loss.
    """

    def __init__(
        self, weights: Model, learn: Learn, clip: float | None, *, mean_gradient: bool = False, team: Team = ALONE
    ) -> None:
        """Moments of zero.

        Args:
            clip: greatest norm of the gradient of the batch's mean loss; None: unbounded.
            mean_gradient: True if the update rule gives the gradient of a mean loss, False for that of a sum.
            team: processes that move the weights together, each some parts.
        """
        self._weights, self._learn, self._team = weights, learn, team
        size, device = len(weights.params), weights.params.device
        self.gradient = team.zeros(size, dtype=weights.params_bf16.dtype, device=device)
        self.mean, self.square = (team.zeros(size, device=device) for _ in range(2))
        # The epsilon of 2015 belongs to gradients summed over the batch (DeepMind's dqn_zoo, which averages, divides
        # it by 32 ** 2); the values of Adam's in use belong to averaged ones.
        summed = 1 if mean_gradient else learn.batch_size
        self.gradient_scale = 1.0 / summed if learn.optimizer in ADAM_FAMILY else 1.0
        self.mean_factor = self.gradient_scale * summed
        self._steps = torch.zeros((), device=device)
        self._rate = learn.learning_rate
        # The tensor that an annealed rate is read from where steps may be captured; a constant one needs no read.
        self._annealed = None if learn.learning_rate_end is None else torch.full_like(self._steps, self._rate)
        self._compiled = device.type == "cpu"
        # The bound, scaled as the gradient is, which may be that of a sum over the batch.
        self._bound = None if clip is None else clip * self.gradient_scale * summed
        self._squares = team.zeros(len(weights.parts), dtype=torch.float64)
        self._moved = {part: weights.parts[part] for part in team.written(len(weights.parts))}
        places = [place for part in self._moved.values() for place in part]
        self._vectors = [self._vectors_in(place) for place in places] if self._compiled else []

    def set_steps(self, steps: int) -> None:
        """Set the number of steps done before, by which Adam and RAdam correct their moments."""
        self._steps.fill_(steps)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the steps that follow; it differs from `Learn.learning_rate` only if annealed."""
        self._rate = rate
        if self._annealed is not None:
            self._annealed.fill_(rate)

    def step(self) -> None:
        """Move the weights by the gradient and update their copies in the arithmetic of the passes."""
        if self._learn.optimizer in ADAM_FAMILY:
            self._steps += 1
        if self._compiled:
            move = make_compiled_step(self._learn, self._rate, self._steps, self.scale().item())
            for vectors in self._vectors:
                move(vectors)
            self._team.sync()
            self._weights.refresh()
        else:
            self.torch_step()

    def norm(self) -> Tensor:
        """float32: the gradient's, before it is clipped. All members of the team call it together."""
        if not self._compiled:
            return torch.linalg.vector_norm(self.gradient, dtype=torch.float32)
        for part, places in self._moved.items():
            self._squares[part] = sum(sum_of_squares(self.gradient[place]) for place in places)
        self._team.sync()
        return torch.tensor(sum(self._squares.tolist()) ** 0.5, dtype=torch.float32)

    def scale(self) -> Tensor:
        """float32: factor that clips the gradient by its norm (Pascanu et al. 2013, algorithm 1)."""
        return torch.ones(()) if self._bound is None else (self._bound / (self.norm() + _TINY)).clamp_(max=1.0)

    def _vectors_in(self, part: slice) -> Vectors:
        """Views of a part of the weights that the compiled loops read and write."""
        gradient, bits = self.gradient[part], bits_of(self.gradient[part])
        floats = np.empty(0, np.float32) if gradient.dtype == torch.bfloat16 else gradient.numpy()
        params, copy = self._weights.params[part].numpy(), bits_of(self._weights.params_bf16[part])
        return params, copy, floats, bits, self.mean[part].numpy(), self.square[part].numpy()

    def torch_step(self) -> None:
        """The step in PyTorch's operations."""
        weights, learn = self._weights, self._learn
        gradient = self.gradient.float()
        if self._bound is not None:
            gradient = gradient * self.scale()
        decay = learn.optimizer_decay
        if learn.optimizer != "adam":
            self.square.mul_(decay).addcmul_(gradient, gradient, value=1.0 - decay)
        if learn.optimizer == "rmsprop":
            self.mean.lerp_(gradient, 1.0 - decay)
            root = torch.addcmul(self.square, self.mean, self.mean, value=-1.0).add_(learn.optimizer_epsilon).sqrt_()
            self._descend(gradient, root)
        elif learn.optimizer == "rms":
            root = self.square.add(learn.optimizer_epsilon).sqrt_()
            self._descend(gradient, root)
        elif learn.optimizer == "radam":
            self.mean.lerp_(gradient, 1.0 - ADAM_MEAN_DECAY)
            factor, correction, epsilon = _rectification(learn, self._steps)
            root = self.square.mul(correction).sqrt_().add_(epsilon)
            self._descend(self.mean * factor, root)
        else:
            vectors = [weights.params], [gradient], [self.mean], [self.square], list[Tensor](), [self._steps]
            settings: dict[str, Any] = {"beta1": ADAM_MEAN_DECAY, "beta2": decay, "eps": learn.optimizer_epsilon}
            settings |= {"lr": self._rate if self._annealed is None else self._annealed, "weight_decay": 0.0}
            torch._fused_adam_(*vectors, amsgrad=False, maximize=False, **settings)
        weights.sync_copy()

    def _descend(self, direction: Tensor, root: Tensor) -> None:
        """params -= rate * direction / root."""
        if self._annealed is None:
            self._weights.params.addcdiv_(direction, root, value=-self._rate)
        else:
            self._weights.params.addcdiv_(direction * self._annealed, root, value=-1.0)


def make_compiled_step(learn: Learn, rate: float, steps: Tensor, scale: float) -> Callable[[Vectors], None]:
    """A step as a function that moves a part of the weights, with the part's gradient and moments.

    Args:
        rate: learning rate.
        steps: float32[], number of the step, from 1, by which Adam and RAdam correct their moments.
        scale: factor of the gradient.
    """
    factor = np.float32(scale)
    epsilon, decay = learn.optimizer_epsilon, np.float32(learn.optimizer_decay)
    if learn.optimizer == "rmsprop":
        return lambda part: _rmsprop(*part, factor, decay, np.float32(rate), np.float32(epsilon))
    if learn.optimizer == "rms":
        return lambda part: _rms(*part, factor, decay, np.float32(rate), np.float32(epsilon))
    if learn.optimizer == "radam":
        rectified, correction, epsilon = (each.item() for each in _rectification(learn, steps))
        rate *= rectified
    else:
        t = steps.item()
        rate /= 1.0 - ADAM_MEAN_DECAY**t
        correction = 1.0 / (1.0 - learn.optimizer_decay**t)
    arguments = (factor, decay, *(np.float32(x) for x in (rate, epsilon, ADAM_MEAN_DECAY, correction)))
    return lambda part: _adam(*part, *arguments)


def _rectification(learn: Learn, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factor of E[g], factor of E[g^2] and epsilon of a step of RAdam, float64 (Liu et al. 2020, algorithm 2).

    In the first steps the variance of 1 / sqrt(E[g^2]) is infinite, and the step is that of E[g] alone: a factor of
    0 and an epsilon of 1 make the root 1. Epsilon stands beside the corrected root, as in optax; PyTorch adds it to
    the root before it is corrected.
    """
    decay, t = learn.optimizer_decay, steps.double()
    power, limit = decay**t, 2.0 / (1.0 - decay) - 1.0
    length = limit - 2.0 * t * power / (1.0 - power)
    divides = (length > RADAM_LENGTH).double()  # sums instead of a choice, which would copy constants to a GPU
    variance = (length - 4.0) * (length - 2.0) * limit / (((limit - 4.0) * (limit - 2.0) or 1.0) * length)
    factor = divides * variance.clamp(min=0.0).sqrt() + (1.0 - divides)
    epsilon = divides * learn.optimizer_epsilon + (1.0 - divides)
    return factor / (1.0 - ADAM_MEAN_DECAY**t), divides / (1.0 - power), epsilon
