"""The engine of a run: the network, and the round source and update rule that the method declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from learner.engine.engine import Engine
from learner.engine.interfaces import CHUNK_UPDATES
from learner.losses.method import ValueMethod, make_method
from learner.losses.td_learning import TDLearning
from learner.networks.arithmetic_check import check_arithmetic
from learner.networks.divided import DividedModel
from learner.networks.fused import FusedModel
from learner.networks.model import Model
from learner.networks.module_model import make_model
from learner.networks.units import UnitsModel
from learner.replay.replay_source import ReplaySource
from learner.rollout.on_policy_method import OnPolicyMethod
from learner.rollout.rollout_source import RolloutSource
from learner.rollout.sequence_source import SequenceSource
from learner.team.team import ALONE, Team
from shared.config.method_declaration import MethodDeclaration
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.ring import Ring
from shared.network_spec import Network


def make_engine(
    config: Config,
    network: Network,
    ring: Ring,
    heartbeat: Callable[[], None] = lambda: None,
    team: Team = ALONE,
    wait_for_lanes: Callable[[int], None] | None = None,
) -> Engine[Any]:
    """The engine of a resolved configuration, which is to be loaded.

    Args:
        heartbeat: called during the preparation of a round that may take long.
        team: processes that make each update together.
        wait_for_lanes: waits until all ticks before a boundary are in the ring; None: those of every round are.

    Raises:
        ConfigError: the arithmetic is wrong on this device, the replay does not fit where it was asked for, or the
            class of the method has another base than its declaration says.
    """
    if team.size > 1:  # a gather between two updates is in no graph yet
        config = config.with_settings(graph_updates=0)
    device, declaration = torch.device(config.machine.device), ring.run_schedule.method
    model = _learning_model(config, network, device, team)
    method = make_method(network, config.algorithm, device, declaration)
    if declaration.on_policy and isinstance(method, OnPolicyMethod):
        source_class = SequenceSource if ring.run_schedule.recurrent_units else RolloutSource
        rollout = source_class(ring, config, model, method, heartbeat, team)
        return Engine(config, ring.run_schedule, model, rollout, method, team)
    if not declaration.on_policy and isinstance(method, ValueMethod):
        learning = TDLearning(model, _target_model(config, network, device, declaration, team), method)
        source = ReplaySource(ring, config, learning, team, wait_for_lanes)
        return Engine(config, ring.run_schedule, model, source, learning, team)
    base = OnPolicyMethod if declaration.on_policy else ValueMethod
    raise ConfigError(
        f"The method {declaration.name} is declared with {declaration.implementation}, not a {base.__name__}."
    )


def _learning_model(config: Config, network: Network, device: torch.device, team: Team) -> Model:
    """The network that learns, after a check of its arithmetic; its passes are divided into the configured parts."""
    precision, parts = config.machine.precision, config.machine.learner_parts or 1
    check_arithmetic(network, device, precision, -(-config.learn.batch_size // parts), learns=True)
    model = make_model(network, device, precision, team)
    if isinstance(model, FusedModel) and device.type == "cpu":
        return UnitsModel(model, parts, team)
    return model if parts == 1 else DividedModel(model, parts, team)


def _target_model(
    config: Config, network: Network, device: torch.device, declaration: MethodDeclaration, team: Team
) -> Model:
    """The target network, after a check of its arithmetic in batches of a whole chunk."""
    if not declaration.has_target_network:
        raise ConfigError(
            f"The method {declaration.name} learns from a target network, but is declared without one: declare "
            "has_target_network=True."
        )
    precision = config.machine.precision
    if network.plain:  # with other networks that would take seconds
        check_arithmetic(network, device, precision, CHUNK_UPDATES * config.learn.batch_size, learns=False)
    return make_model(network, device, precision, team)
