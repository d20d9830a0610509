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
from learner.networks.make_model import make_model
from learner.networks.model import Model
from learner.networks.sharded import Ranks, ShardedModel
from learner.replay.replay_source import ReplaySource
from learner.rollout.on_policy_method import OnPolicyMethod
from learner.rollout.rollout_source import RolloutSource
from learner.rollout.sequence_source import SequenceSource
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.machine.facts import usable_cores
from shared.memory.parts.ring import Ring
from shared.network_spec import Network


def make_engine(
    config: Config,
    network: Network,
    ring: Ring,
    heartbeat: Callable[[], None] = lambda: None,
    ranks: Ranks | None = None,
) -> Engine[Any]:
    """The engine of a resolved configuration, which is to be initialized or loaded.

    Args:
        heartbeat: called during the preparation of a round that may take long.
        ranks: processes that share every minibatch; None: this one computes it alone.

    Raises:
        ConfigError: the arithmetic is wrong on this device, the replay does not fit where it was asked for, or the
            class of the method has another base than its declaration says.
    """
    if ranks is not None:  # a gather between two updates is in no graph yet
        config = config.with_settings(graph_updates=0)
    device, precision, batch = torch.device(config.machine.device), config.machine.precision, config.learn.batch_size
    run_schedule, declaration = ring.run_schedule, ring.run_schedule.method
    shards = config.machine.learner_shards or 1
    check_arithmetic(network, device, precision, -(-batch // shards), learns=True)
    online = make_model(network, device, precision)
    model: Model = online
    if shards > 1:
        size = 1 if ranks is None else ranks.size
        threads = max(1, min(shards, usable_cores()) // size) if device.type == "cpu" else 0
        model = ShardedModel(online, shards, threads, ranks)
    method = make_method(network, config.algorithm, device, declaration)
    if declaration.on_policy and isinstance(method, OnPolicyMethod):
        source_class = SequenceSource if run_schedule.recurrent_units else RolloutSource
        rollout = source_class(ring, config, model, method, heartbeat)
        return Engine(config, run_schedule, model, rollout, method, declaration.metrics)
    if declaration.on_policy or not isinstance(method, ValueMethod):
        base = OnPolicyMethod if declaration.on_policy else ValueMethod
        raise ConfigError(
            f"The method {declaration.name} is declared with {declaration.implementation}, not a {base.__name__}."
        )
    if not declaration.has_target_network:
        raise ConfigError(
            f"The method {declaration.name} is declared without a target network, from which {type(method).__name__} "
            "learns: declare has_target_network=True."
        )
    if network.plain:  # the target network's batch; with other networks that would take seconds
        check_arithmetic(network, device, precision, CHUNK_UPDATES * batch, learns=False)
    learning = TDLearning(model, make_model(network, device, precision), method)
    source = ReplaySource(ring, config, learning)
    return Engine(config, run_schedule, model, source, learning, declaration.metrics)
