"""Gateways of a run: how many, and how many CPUs each group has."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ringside.cluster.connection import connect, disconnect, nodes_with_cpus
from ringside.cluster.groups.gateway import CLUSTER, CORES, MIXED, NUMERICS
from ringside.cluster.numerics import numerics
from shared.errors import ConfigError
from shared.memory.run_memory import Plan
from shared.text import count, flag_of


def with_gateways(plan: Plan, address: str, nodes: int | None, *, insecure: bool, mixed: bool) -> Plan:
    """The plan with a gateway for each node, and the cluster's address in the environment of its processes.

    Args:
        address: "auto" or HOST:PORT.
        nodes: number of groups; None: one for each node that has CPUs.
        insecure: accept a cluster without a token.
        mixed: accept nodes that compute other bits than this machine.

    Raises:
        ConfigError: the cluster is refused, or the run cannot be played on it. RunFailed: this machine cannot compute
            the network.
    """
    schedule = plan.config.learn.schedule
    if schedule != "concurrent":
        raise ConfigError(f"--schedule {schedule} cannot be played on other nodes: omit --ray.")
    device = plan.config.machine.acts_on
    if device != "cpu":
        raise ConfigError(
            f"Nodes play on their CPUs, and the inference server is on {device}: say --acting-device cpu."
        )
    with ThreadPoolExecutor(max_workers=1) as thread:
        own = thread.submit(numerics, plan)  # takes seconds, as the connection does
        found = connect(address, insecure=insecure)
        try:
            cpus = [node.cpus for node in nodes_with_cpus()]
        finally:
            disconnect()
    if not cpus:
        raise ConfigError(f"No node of the cluster at {found} has CPUs: join one with `ray start --address {found}`.")
    gateways = len(cpus) if nodes is None else nodes
    if gateways < 1:
        raise ConfigError(f"--nodes {nodes} must be at least 1.")
    placed = replace(plan, gateways=gateways)
    _require_cells(placed)
    os.environ |= {CLUSTER: found, CORES: str(min(cpus)), NUMERICS: own.result(), MIXED: "1" if mixed else ""}
    return placed


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
