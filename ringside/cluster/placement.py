"""Places of a run in a cluster: how many gateways it has, how many CPUs each group has, and those of its ranks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from ringside.cluster.connection import cluster_address, connect, disconnect, nodes_with_cpus
from ringside.cluster.groups.gateway import CLUSTER, CORES, EXCHANGE, MIXED, NUMERICS
from ringside.cluster.groups.group_host import group_actors
from ringside.cluster.learner_place import HeldPlace, Place
from ringside.cluster.numerics import numerics
from shared.errors import ConfigError
from shared.memory.plan import Plan
from shared.text import count, flag_of


@contextmanager
def with_gateways(
    plan: Plan, address: str, nodes: int | None, *, head_plays: bool, insecure: bool, mixed: bool
) -> Iterator[tuple[Plan, Callable[[], str]]]:
    """The plan with a gateway for each node, and the cluster's address in the environment of its processes.

    During the block the cluster holds a place for a learner of several ranks. The function that comes with the plan is
    to be called often: it keeps that place, and returns a sentence where something has happened to it.

    Args:
        address: "auto" or HOST:PORT.
        nodes: number of groups; None: one for each node that has CPUs.
        head_plays: have this machine's actors play too, cells in proportion to their number.
        insecure: accept a cluster without a token.
        mixed: accept nodes that compute other bits than this machine.

    Raises:
        ConfigError: the cluster is refused, or the run cannot be played on it. RunFailed: this machine cannot compute
            the network.
    """
    _require_playable(plan)
    if not plan.env_repeats:
        raise ConfigError(f"--ray cannot play {plan.config.play.env}, which does not repeat itself: omit --ray.")
    if nodes is not None and nodes < 1:
        raise ConfigError(f"--nodes {nodes} must be at least 1.")
    cluster_address(address)  # which is refused before seconds of work
    with ThreadPoolExecutor(max_workers=1) as thread:
        own = thread.submit(numerics, plan)  # takes seconds, as the connection does
        found = connect(address, insecure=insecure)
        try:
            cluster_nodes = nodes_with_cpus()
        finally:
            disconnect()
    with _ranks_placed(plan, found) as (place, keep):
        cpus = [node.cpus - place.cpus if node.identity == place.node else node.cpus for node in cluster_nodes]
        cpus = [left for left in cpus if left]
        if not cpus:
            raise ConfigError(
                f"No node of the cluster at {found} has free CPUs: join one with `ray start --address {found}`."
            )
        gateways = len(cpus) if nodes is None else nodes
        share = plan.config.machine.actors / group_actors(plan, min(cpus)) if head_plays else 0.0
        placed = replace(plan, gateways=gateways, head_share=share)
        _require_cells(placed)
        os.environ |= {
            CLUSTER: found,
            CORES: str(min(cpus)),
            NUMERICS: own.result(),
            EXCHANGE: f"ringside-{secrets.token_hex(8)}",
            MIXED: "1" if mixed else "",
        }
        yield placed, keep


@contextmanager
def _ranks_placed(plan: Plan, address: str) -> Iterator[tuple[Place, Callable[[], str]]]:
    """The place of a learner of several ranks, and the function that keeps it; of one rank nothing is reserved."""
    machine = plan.config.machine
    if machine.learner_ranks == 1:
        yield Place(), str
        return
    with closing(HeldPlace(machine, address)) as held:
        if held.place.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held.place.gpus)
        yield held.place, held.keep


def _require_playable(plan: Plan) -> None:
    """Raise `ConfigError` if nodes cannot play for this run."""
    schedule, device = plan.config.learn.schedule, plan.config.machine.acts_on
    if schedule != "concurrent":
        raise ConfigError(f"--schedule {schedule} cannot be played on other nodes: omit --ray.")
    if device != "cpu":
        raise ConfigError(
            f"Nodes play on their CPUs, and the inference server is on {device}: pass --acting-device cpu."
        )


def _require_cells(plan: Plan) -> None:
    """Raise `ConfigError` unless every gateway can have a cell, and this machine where it is to play."""
    cells, batch = plan.run_schedule.lanes // plan.cell_lanes, plan.config.machine.inference_batch
    most = cells - 1 if plan.head_share else cells
    if most < plan.gateways:
        fewer = f"pass --nodes {most}, or an" if most else "pass an"
        raise ConfigError(
            f"{count(cells, 'cell')} of {count(plan.cell_lanes * plan.config.play.lane_envs, 'env')} cannot occupy "
            f"{count(plan.gateways, 'node')}{' and this machine' if plan.head_share else ''}: {fewer} "
            f"{flag_of('inference_batch')} below {batch}, which changes the last bits."
        )
