"""Declarations of methods with their settings: the needs of a method, described without torch.

The plan of a run carries the declaration of its method. Memory, lanes, scribe and observers read it. Only learner and
inference load the class that it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta

from shared.errors import ConfigError
from shared.text import require_name

MOST_ATOMS = 4096
"""Outputs for each action, and fractions of an implicit network."""
MOST_RETURN = 1e6
"""Amount of the least and of the greatest return that atoms stand for."""
MOST_EPOCHS = 1000
"""Passes over a round."""

SlotField = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a field of a ring's slot, as in `shared.memory.ring.SLOT_FIELDS`."""

RECORD_FIELDS = frozenset(
    {"kind", "round", "steps", "frames", "updates", "seconds", "valid_steps", "samples_per_step", "epsilon"}
    | {"learning_rate", "steps_per_second", "frames_per_second", "updates_per_second", "outside_support"}
    | {"learner_busy", "inference_busy", "actors_busy", "workers_busy", "episodes", "mean_return_100", "best_return"}
    | {"boundary", "committed_at"}
)
"""Fields of a round's record, and of the learner's row on the board, that every run has: no names for metrics."""

METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Names that metrics may have."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_IMPLEMENTATION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Need(Enum):
    """Need of a setting, without which it has no effect. The value describes a method that does not meet it.

    It stands in the type of the setting (shared/config/sections.py); one that every method uses has none.
    """

    REPLAY = "learns from the newest round and has no replay buffer"
    TD_TARGETS = "learns from no TD targets of a replay buffer"
    ACTION_VALUES = "learns a policy and no action values"
    EPSILON = "samples its actions from its policy"
    POLICY = "learns no policy from whole rounds"


@dataclass(frozen=True)
class MethodSettings:
    """Base class of the settings of one method; also the settings of a method that has none."""

    def network_fields(self) -> dict[str, Any]:
        """Return the fields of `shared.network_spec.Network` that these settings decide."""
        return {}


@dataclass(frozen=True)
class OnPolicySettings(MethodSettings):
    """Base class of settings with a number of passes over each round; a method without it does one pass."""

    epochs: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 1
    """Passes over each round."""


@dataclass(frozen=True)
class C51Settings(MethodSettings):
    """Support and priorities of C51 (Bellemare et al. 2017)."""

    atoms: Annotated[int, Meta(ge=2, le=MOST_ATOMS)] = 51
    """Atoms of the distribution; 51, as published."""
    v_min: Annotated[float, Meta(ge=-MOST_RETURN, le=MOST_RETURN)] = -10.0
    """Least return that an atom stands for."""
    v_max: Annotated[float, Meta(ge=-MOST_RETURN, le=MOST_RETURN)] = 10.0
    """Greatest return that an atom stands for."""
    c51_priority: Literal["divergence", "cross-entropy"] = "divergence"
    """With --prioritized: the error by which transitions are drawn. divergence: Kullback-Leibler (Hessel et al. 2018);
    cross-entropy: the divergence plus the target's entropy (Kaixhin/Rainbow, dqn_zoo, Dopamine); more even draws."""

    def network_fields(self) -> dict[str, Any]:
        """Outputs for each action, and the ends of the support."""
        return {"atoms": self.atoms, "v_min": self.v_min, "v_max": self.v_max}


@dataclass(frozen=True)
class QRDQNSettings(MethodSettings):
    """Quantiles of QR-DQN (Dabney et al. 2018a)."""

    atoms: Annotated[int, Meta(ge=2, le=MOST_ATOMS)] = 200
    """Quantiles of the distribution; 200, as published."""

    def network_fields(self) -> dict[str, Any]:
        """Outputs for each action."""
        return {"atoms": self.atoms}


@dataclass(frozen=True)
class IQNSettings(MethodSettings):
    """Quantile fractions of IQN (Dabney et al. 2018b)."""

    iqn_samples: Annotated[int, Meta(ge=1, le=MOST_ATOMS)] = 64
    """Quantile fractions sampled for a transition, of the return and of its target each (N, N')."""
    iqn_policy_samples: Annotated[int, Meta(ge=1, le=MOST_ATOMS)] = 32
    """Quantile fractions of which the mean chooses the action (K); they are evenly spaced."""

    def network_fields(self) -> dict[str, Any]:
        """Fractions at which the network acts."""
        return {"fractions": self.iqn_policy_samples}


@dataclass(frozen=True)
class ActorCriticSettings(OnPolicySettings):
    """Loss of an actor-critic (Mnih et al. 2016)."""

    trace: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Lambda of generalized advantages (Schulman et al. 2016); 1: returns up to the end of the round."""
    value_weight: Annotated[float, Meta(ge=0)] = 0.5
    """Weight of half the squared error of the value."""
    entropy_weight: Annotated[float, Meta(ge=0)] = 0.01
    """Weight of the policy's entropy, which the loss rewards."""
    entropy_weight_end: Annotated[float, Meta(ge=0)] | None = None
    """Weight of the entropy after --anneal-steps; default: it is constant."""

    def network_fields(self) -> dict[str, Any]:
        """One output beside those of the actions."""
        return {"value_output": True}


@dataclass(frozen=True)
class PPOSettings(ActorCriticSettings):
    """Loss of PPO (Schulman et al. 2017), with the defaults of CleanRL's ppo_atari."""

    epochs: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 4
    """Passes over each round."""
    trace: Annotated[float, Meta(ge=0, le=1)] = 0.95
    """Lambda of generalized advantages (Schulman et al. 2016); 1: returns up to the end of the round."""
    clip_ratio: Annotated[float, Meta(gt=0)] = 0.1
    """Distance from 1 beyond which the ratio of probabilities is clipped; with --clip-value, that of the value."""
    clip_ratio_end: Annotated[float, Meta(ge=0)] | None = None
    """The same after --anneal-steps; default: it is constant."""
    clip_value: bool = True
    """Clip the change of the value in its loss, too."""
    normalize_advantage: bool = True
    """Normalize advantages to mean 0 and standard deviation 1 in every update."""


@dataclass(frozen=True)
class VTraceSettings(ActorCriticSettings):
    """Targets of V-trace (Espeholt et al. 2018)."""

    rho_max: Annotated[float, Meta(gt=0)] = 1.0
    """Greatest importance of a step; with V-trace that of its TD error."""
    c_max: Annotated[float, Meta(ge=0)] = 1.0
    """Greatest importance with which later TD errors count; --trace scales it."""


@dataclass(frozen=True)
class A3CSettings(ActorCriticSettings):
    """Loss of A3C on batches, with the defaults of tensorpack."""

    value_weight: Annotated[float, Meta(ge=0)] = 1.0
    """Weight of half the squared error of the value."""
    rho_max: Annotated[float, Meta(gt=0)] = 10.0
    """Greatest importance of a step."""
    return_steps: Annotated[int, Meta(ge=1)] = 5
    """Most rewards in a return before the value is added (t_max)."""


@dataclass(frozen=True)
class PQNSettings(OnPolicySettings):
    """Targets of PQN (Gallici et al. 2024), with the defaults of its Atari runs."""

    epochs: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 2
    """Passes over each round."""
    trace: Annotated[float, Meta(ge=0, le=1)] = 0.65
    """Lambda of Q(lambda); 1: returns up to the end of the round."""


@dataclass(frozen=True)
class MethodDeclaration:
    """Needs of one method: its class, its settings, and its part of the shared memory."""

    name: str
    """Value of --method that chooses it: lower-case letters, digits and hyphens."""
    implementation: str
    """Its class as "module:Class"; only learner and inference import it."""
    settings: type[MethodSettings] = MethodSettings
    """Frozen dataclass of its own settings, as `C51Settings`; every field has a default and a docstring
    for --help. The learner finds an instance at `config.algorithm.settings`."""
    metrics: tuple[str, ...] = ("loss", "mean_q", "gradient_norm", "q_spread")
    """Means over the updates of a record, in the order of `Board.metrics`."""
    head: Literal["q", "policy_value"] = "q"
    """q: outputs for each action; policy_value: a logit for each action and one state value."""
    action_rule: Literal["epsilon_greedy", "categorical"] = "epsilon_greedy"
    """epsilon_greedy: the lane takes the best action or a random one; categorical: inference samples the policy."""
    has_target_network: bool = True
    """True if targets are bootstrapped from a target network."""
    on_policy: bool = False
    """True if updates use the newest round alone; such a method has no replay buffer."""
    by_workers: bool = False
    """True if the gradients are computed by workers alone, as those of an on-policy method with a target network."""
    also_uses: tuple[str, ...] = ()
    """Settings of every run that have an effect although the method lacks what they need of others, such as `n_step`
    of an on-policy method with bounded returns."""

    @property
    def has_epsilon(self) -> bool:
        """True if lanes take random actions with the chance epsilon."""
        return self.action_rule == "epsilon_greedy"

    @property
    def samples_actions(self) -> bool:
        """True if inference samples the actions from a policy."""
        return self.action_rule == "categorical"

    @property
    def slot_fields(self) -> tuple[SlotField, ...]:
        """Fields of a ring's slot beside those of every method: with a sampled action its `log_prob`."""
        return (("log_prob", "f4", ()),) if self.samples_actions else ()

    def provides(self, need: Need) -> bool:
        """True if the method has what some setting needs."""
        return {
            Need.REPLAY: not self.on_policy,
            Need.TD_TARGETS: self.has_target_network and not self.on_policy,
            Need.ACTION_VALUES: self.head == "q",
            Need.EPSILON: self.has_epsilon,
            Need.POLICY: self.on_policy and self.head == "policy_value" and self.samples_actions,
        }[need]

    def __post_init__(self) -> None:
        """Raise `ConfigError` for names that nothing can be called."""
        if not _NAME.fullmatch(self.name):
            allowed = "lower-case letters, digits and hyphens, 40 at most"
            raise ConfigError(f"A method cannot be called {self.name!r:.60}: use {allowed}.")
        if not _IMPLEMENTATION.fullmatch(self.implementation):
            wrong = f"the implementation {self.implementation!r:.120}"
            raise ConfigError(f"The method {self.name} has {wrong}: write module:Class.")
        for metric in self.metrics:
            if not METRIC_NAME.fullmatch(metric) or metric in RECORD_FIELDS or self.metrics.count(metric) > 1:
                allowed = "different names of lower-case letters, digits and underscores, and none of a record's fields"
                raise ConfigError(f"The method {self.name} has a metric {metric!r:.60}: use {allowed}.")


DQN = MethodDeclaration("dqn", "learner.methods.dqn:DQN")
C51 = MethodDeclaration("c51", "learner.methods.c51:C51", C51Settings)
QR_DQN = MethodDeclaration("qr-dqn", "learner.methods.qr_dqn:QRDQN", QRDQNSettings)
IQN = MethodDeclaration("iqn", "learner.methods.iqn:IQN", IQNSettings)

A2C = MethodDeclaration(
    "a2c",
    "learner.methods.a2c:A2C",
    ActorCriticSettings,
    metrics=("loss", "mean_value", "gradient_norm", "entropy", "kl", "explained_variance"),
    head="policy_value",
    action_rule="categorical",
    has_target_network=False,
    on_policy=True,
)
A3C = replace(A2C, name="a3c", implementation="learner.methods.a3c:A3C", settings=A3CSettings)
PPO = replace(
    A2C,
    name="ppo",
    implementation="learner.methods.ppo:PPO",
    settings=PPOSettings,
    metrics=(*A2C.metrics, "clip_fraction"),
)
VTRACE = replace(A2C, name="vtrace", implementation="learner.methods.vtrace:VTrace", settings=VTraceSettings)
PQN = MethodDeclaration(
    "pqn",
    "learner.methods.pqn:PQN",
    PQNSettings,
    has_target_network=False,
    on_policy=True,
)

N_STEP_Q = MethodDeclaration("n-step-q", "learner.methods.worker_values:NStepQ", on_policy=True, by_workers=True)
ONE_STEP_Q = replace(N_STEP_Q, name="one-step-q", implementation="learner.methods.worker_values:OneStepQ")
SARSA = replace(N_STEP_Q, name="sarsa", implementation="learner.methods.worker_values:Sarsa")

_REGISTRY = {
    each.name: each for each in (A2C, A3C, C51, DQN, IQN, N_STEP_Q, ONE_STEP_Q, PPO, PQN, QR_DQN, SARSA, VTRACE)
}


def add_method(declaration: MethodDeclaration) -> None:
    """Add a method to those that --method may name, whatever its settings are called (`register_method`).

    A second addition of an equal declaration has no effect.

    Raises:
        ConfigError: another method has the name.
    """
    if _REGISTRY.setdefault(declaration.name, declaration) != declaration:
        raise ConfigError(f"There is a method {declaration.name} already: register yours by another name.")


def method_names() -> list[str]:
    """Names of the registered methods, sorted."""
    return sorted(_REGISTRY)


def method_declaration(name: str) -> MethodDeclaration:
    """Return the declaration of a registered method.

    Raises:
        ConfigError: no method has the name.
    """
    require_name("--method", name, method_names())
    return _REGISTRY[name]


def methods_with(setting: str) -> list[str]:
    """Names of the methods that have a setting of their own of this name."""
    return [name for name in method_names() if setting in (item.name for item in fields(_REGISTRY[name].settings))]
