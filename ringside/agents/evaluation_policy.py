"""Trained networks as evaluations query them: in batches of a fixed size, with the rules of a protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ringside.agents.stored_weights import method_of
from shared.checkpoint.weights_file import StoredWeights
from shared.config.protocols import EvalRules
from shared.config.resolve import device_of, precision_of
from shared.config.sections import Precision
from shared.process.library_env import choose_workspace
from shared.process.signals import killed_by_interrupt

if TYPE_CHECKING:
    from learner.networks.policy import Policy

ROWS = 8
"""Emulators of an evaluation, which is also the batch of its network. Episode `i` is in row `i % ROWS`, so that its
numbers do not depend on the number of episodes."""


@dataclass(frozen=True)
class EvaluationPolicy:
    """A network for evaluations, and its arithmetic."""

    policy: Policy
    device: str
    precision: str
    threads: int
    has_policy: bool = False
    """True if the values of the network are the logits of a policy."""

    def choose(self, values: NDArray[np.float32], draws: NDArray[np.float64], rules: EvalRules) -> NDArray[np.int64]:
        """Actions int64[n] for values [n, actions] by the rules of an evaluation: greedy, or sampled at the draws."""
        from learner.networks.categorical import sample_at
        from learner.networks.policy import greedy

        return sample_at(values, draws)[0].astype(np.int64) if rules.actions == "sample" else greedy(values)

    def shown(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Numbers that a viewer sees for values [n, actions]: the probabilities of a policy, or Q-values."""
        from learner.networks.categorical import probabilities

        return probabilities(values) if self.has_policy else values


def load_libraries() -> None:
    """Load PyTorch and the networks, for a command that uses them next: Ctrl-C kills it meanwhile."""
    with killed_by_interrupt():
        import torch  # noqa: F401

        from learner.networks import policy  # noqa: F401


def make_evaluation_policy(
    weights: StoredWeights,
    device: str,
    rows: int = ROWS,
    *,
    captured: bool = True,
    wanted: Precision = "auto",
) -> EvaluationPolicy:
    """Network for batches of `rows` stacks. Configures torch for this process.

    Args:
        captured: see `Policy`.
        wanted: precision, as --precision.
    """
    import torch

    from learner.engine.device import prepare_torch
    from learner.networks.policy import Policy

    name = device_of(device)
    precision = precision_of(wanted, name)
    threads = 1  # a batch of eight is too small for several threads: they were four times slower
    choose_workspace()
    prepare_torch(torch.device(name), precision, threads)
    policy = Policy(weights.network, torch.device(name), precision, rows, captured=captured)
    policy.load(weights.flat)
    return EvaluationPolicy(policy, name, precision, threads, method_of(weights.network).samples_actions)
