"""Places of a run in a cluster: how many gateways it has, how many CPUs each group has, and those of its ranks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from ringside.cluster.connection import connect, disconnect, nodes_with_cpus
from ringside.cluster.groups.gateway import CLUSTER, CORES, EXCHANGE, MIXED, NUMERICS
from ringside.cluster.learner_place import Place, learner_place
from ringside.cluster.numerics import numerics
from shared.errors import ConfigError
from shared.memory.run_memory import Plan
from shared.text import count, flag_of


@contextmanager
def with_gateways(plan: Plan, address: str, nodes: int | None, *, insecure: bool, mixed: bool) -> Iterator[Plan]:
    """The plan with a gateway for each node, and the cluster's address in the environment of its processes.

    During the block the cluster holds a place for a learner of several ranks.

    Args:
        address: "auto" or HOST:PORT.
        nodes: number of groups; None: one for each node that has CPUs.
        insecure: accept a cluster without a token.
        mixed: accept nodes that compute other bits than this machine.

    Raises:
        ConfigError: the cluster is refused, or the run cannot be played on it. RunFailed: this machine cannot compute
            the network.
    """
    _require_playable(plan)
    with ThreadPoolExecutor(max_workers=1) as thread:
        own = thread.submit(numerics, plan)  # takes seconds, as the connection does
        found = connect(address, insecure=insecure)
        try:
            cluster_nodes = nodes_with_cpus()
        finally:
            disconnect()
    with _ranks_placed(plan, found) as place:
        cpus = [node.cpus - place.cpus if node.identity == place.node else node.cpus for node in cluster_nodes]
        cpus = [left for left in cpus if left]
        if not cpus:
            raise ConfigError(
                f"No node of the cluster at {found} has free CPUs: join one with `ray start --address {found}`."
            )
        gateways = len(cpus) if nodes is None else nodes
        if gateways < 1:
            raise ConfigError(f"--nodes {nodes} must be at least 1.")
        placed = replace(plan, gateways=gateways)
        _require_cells(placed)
        os.environ |= {
            CLUSTER: found,
            CORES: str(min(cpus)),
            NUMERICS: own.result(),
            EXCHANGE: f"ringside-{secrets.token_hex(8)}",
            MIXED: "1" if mixed else "",
        }
        yield placed


@contextmanager
def _ranks_placed(plan: Plan, address: str) -> Iterator[Place]:
    """The place of a learner of several ranks; of one rank nothing is reserved."""
    machine = plan.config.machine
    if machine.learner_ranks == 1:
        yield Place()
        return
    with learner_place(machine, address) as place:
        if place.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
        yield place


def _require_playable(plan: Plan) -> None:
    """Raise `ConfigError` if nodes cannot play for this run."""
    schedule, device = plan.config.learn.schedule, plan.config.machine.acts_on
    if schedule != "concurrent":
        raise ConfigError(f"--schedule {schedule} cannot be played on other nodes: omit --ray.")
    if device != "cpu":
        raise ConfigError(
            f"Nodes play on their CPUs, and the inference server is on {device}: say --acting-device cpu."
        )


def _require_cells(plan: Plan) -> None:
    """Raise `ConfigError` unless every gateway can have a cell."""
    together = 1 if plan.partial_batches else plan.batch_lanes
    cells = plan.run_schedule.lanes // together
    if cells < plan.gateways:
        batch = plan.config.machine.inference_batch
        raise ConfigError(
            f"{count(cells, 'cell')} of {count(together * plan.config.play.lane_envs, 'env')} cannot occupy "
            f"{count(plan.gateways, 'node')}: say --nodes {cells}, or an {flag_of('inference_batch')} below {batch}, "
            "which changes the last bits."
        )
