"""The engine of a run, put together: network, round source and update rule as the method asks for them."""

from __future__ import annotations

import torch

from learner.engine.engine import Engine
from learner.losses.method import make_method
from learner.losses.td_learning import TDLearning
from learner.networks.models import check_arithmetic, make_model
from learner.replay.chunk import Chunk
from learner.replay.replay_source import CHUNK_UPDATES, ReplaySource
from shared.config.settings import Config
from shared.memory.ring import Ring
from shared.network_spec import Network


def make_engine(config: Config, network: Network, ring: Ring) -> Engine[Chunk]:
    """The engine of a resolved configuration, which is to be initialized or loaded.

    Raises:
        ConfigError: the arithmetic is wrong on this device, or the replay does not fit where it was asked for.
    """
    device, precision, batch = torch.device(config.machine.device), config.machine.precision, config.learn.batch_size
    check_arithmetic(network, device, precision, batch, learns=True)
    if network.plain:  # the target network's batch; with networks of parts that would take seconds
        check_arithmetic(network, device, precision, CHUNK_UPDATES * batch, learns=False)
    online, target = (make_model(network, device, precision) for _ in range(2))
    rule = TDLearning(online, target, make_method(network, config.algorithm, device))
    source = ReplaySource(ring, config, rule)
    return Engine(config, ring.run_schedule, online, source, rule, ring.run_schedule.method.metrics)
