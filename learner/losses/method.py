"""Interface of a method: the meaning of the network's outputs, and their loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from learner.losses.distributional_loss import midpoints
from shared.config.method_declaration import MethodDeclaration, MethodSettings, method_declaration, method_names
from shared.config.sections import Algorithm
from shared.errors import ConfigError
from shared.network_spec import Network

_Settings = TypeVar("_Settings", bound=MethodSettings)


class NextState(NamedTuple):
    """The next states of n transitions, as the target network has them."""

    outputs: Tensor
    """float32[n, actions, atoms] in s'."""
    policy: Tensor
    """float32[n, actions]: how the outputs of the actions are mixed; one-hot of the best, or a soft policy."""
    bonus: Tensor | None
    """float32[n, actions], which is added to every output: the entropy of a soft policy; None: nothing."""
    reward: Tensor
    """float32[n]: R, of one step or more."""
    discount: Tensor
    """float32[n]: gamma^steps, or 0 where the return ended."""


class LossOutput(NamedTuple):
    """Losses of one batch, and their gradient."""

    loss: Tensor
    """float32[n]."""
    priority: Tensor
    """float32[n]: how wrong each was, for prioritized replay."""
    gradient: Tensor
    """float32[n, actions, atoms]: of the sum of the losses by the outputs."""


class Method(ABC):
    """Meaning of one network's outputs. A declaration names the class (shared/config/method_declaration.py).

    Attributes:
        annealed: values during this round of the settings `x` that have an end `x_end`, float32[] each.
    """

    policy_samples = 0
    """Fractions whose mean is an action's value, evenly spaced; 0: outputs have no fractions."""
    supports_soft_policy = True
    """True if the outputs of several actions may be averaged, as a soft policy does."""
    supports_value_rescaling = True
    """True if outputs are returns, which may be learned on another scale."""

    def __init__(self, network: Network, algorithm: Algorithm, device: torch.device) -> None:
        """`network` is one whose outputs mean what this method says. Annealed settings begin with their own values."""
        self.network, self.algorithm, self.device = network, algorithm, device
        values = vars(algorithm.settings)
        names = [name for name in values if f"{name}_end" in values]
        # Tensors, since graphs may capture what reads them.
        self.annealed = {name: torch.full((), values[name], device=device) for name in names}

    def anneal(self, value_between: Callable[[float, float | None], float]) -> None:
        """Set the annealed settings to their values during a round, or a worker's gradient.

        Args:
            value_between: function of the first and the last value of a setting, which is None if it is constant.
        """
        for name, value in self.annealed.items():
            settings = self.algorithm.settings
            value.fill_(value_between(getattr(settings, name), getattr(settings, f"{name}_end")))

    def settings_as(self, kind: type[_Settings]) -> _Settings:
        """The method's own settings, of the class that its declaration names."""
        settings = self.algorithm.settings
        assert isinstance(settings, kind), f"{type(self).__name__} is declared with other settings than {kind.__name__}"
        return settings

    def policy_fractions(self, n: int, more: int = 0) -> Tensor:
        """Fractions float32[n, policy_samples + more] that choose actions, the same in every row, and room for more."""
        fractions = torch.zeros(n, self.policy_samples + more, device=self.device)
        if self.policy_samples:
            fractions[:, : self.policy_samples] = midpoints(self.policy_samples)
        return fractions

    @abstractmethod
    def values(self, outputs: Tensor) -> Tensor:
        """Numbers float32[n, actions] that choose the action: Q(s, .) on the scale of the outputs, or logits.

        Args:
            outputs: float32[n, outputs, atoms] of the network.
        """


class ValueMethod(Method):
    """A method that learns the return of each action from TD targets (learner/losses/td_learning.py)."""

    samples = 0
    """Fractions sampled for the return and for its target each; 0: outputs have no fractions."""
    scalar_target = False
    """True if a transition's target is one number."""

    @abstractmethod
    def target(self, next_state: NextState) -> Tensor:
        """TD targets float32[n] or [n, atoms]."""

    @abstractmethod
    def loss(self, taken: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Loss and priority float32[n] each, of the outputs [n, atoms] of the action taken, at fractions [n, atoms]."""

    def loss_and_gradient(
        self, outputs: Tensor, action_one_hot: Tensor, target: Tensor, fractions: Tensor | None
    ) -> LossOutput:
        """Loss, priority and gradient of outputs [n, actions, atoms], with one-hot actions [n, actions]."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf = outputs.detach().clone().requires_grad_()
            taken = (leaf * action_one_hot[:, :, None]).sum(1)
            loss, priority = self.loss(taken, target.clone(), fractions)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return LossOutput(loss.detach(), priority.detach(), gradient)


def make_method(
    network: Network, algorithm: Algorithm, device: torch.device, declaration: MethodDeclaration | None = None
) -> Method:
    """Load the class that a network's method declares, and make it for this network.

    Args:
        declaration: of the method; default: the one that is registered in this process.

    Raises:
        ConfigError: no such method is registered, or it cannot do what `algorithm` asks for.
    """
    if declaration is None:
        if network.method not in method_names():  # a file may name any
            raise ConfigError(f"There is no method {network.method!r:.40} here: register it first (docs/extending.md).")
        declaration = method_declaration(network.method)
    if network.value_output != (declaration.head == "policy_value"):
        raise ConfigError(
            f"The method {declaration.name} is declared with the head {declaration.head}, and its network has "
            f"{'a' if network.value_output else 'no'} value of the state: declare the head that its settings give."
        )
    module, _, name = declaration.implementation.partition(":")
    method: type[Method] = getattr(import_module(module), name)
    for asked, may, flag in (
        (algorithm.munchausen, method.supports_soft_policy, "--munchausen"),
        (algorithm.value_rescaling, method.supports_value_rescaling, "--value-rescaling"),
    ):
        if asked and not may:
            raise ConfigError(f"{flag} makes no sense with --method {network.method} (docs/algorithms.md).")
    return method(network, algorithm, device)
