"""Place of a run in a cluster: the number of its gateways, the CPUs of each group, and what gateways must know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ringside.cluster.connection import cluster_address, connected, nodes_with_cpus
from ringside.cluster.group_host import group_actors
from ringside.cluster.node_object import numerics
from shared.errors import ConfigError
from shared.memory.plan import Elsewhere, Plan
from shared.text import count, flag_of


def with_gateways(
    plan: Plan, address: str, nodes: int | None, *, head_plays: bool, insecure: bool, mixed: bool
) -> Plan:
    """The plan with a gateway for each node.

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
    if nodes is not None and nodes < 1:
        raise ConfigError(f"--nodes {nodes} must be at least 1.")
    cluster_address(address)  # which is refused before seconds of work
    with ThreadPoolExecutor(max_workers=1) as thread:
        own = thread.submit(numerics, plan)  # takes seconds, as the connection does
        with connected(address, insecure=insecure) as found:
            cpus = [node.cpus for node in nodes_with_cpus()]
    if not cpus:
        raise ConfigError(f"No node of the cluster at {found} has CPUs: join one with `ray start --address {found}`.")
    share = plan.config.machine.actors / group_actors(plan, min(cpus)) if head_plays else 0.0
    gateways = len(cpus) if nodes is None else nodes
    require_cells(plan, gateways, head_plays=head_plays)
    settings = {"address": found, "cores": min(cpus), "numerics": own.result(), "mixed": mixed, "head_share": share}
    return replace(plan, elsewhere=Elsewhere(gateways, "ringside.cluster.gateway", settings))


def _require_playable(plan: Plan) -> None:
    """Raise `ConfigError` if nodes cannot play for this run."""
    schedule, device = plan.config.learn.schedule, plan.config.machine.acts_on
    if schedule != "concurrent":
        raise ConfigError(f"--schedule {schedule} cannot be played on other nodes: omit --ray.")
    if device != "cpu":
        raise ConfigError(
            f"Nodes play on their CPUs, and the inference server is on {device}: pass --acting-device cpu."
        )
    if not plan.env_repeats:
        raise ConfigError(f"--ray cannot play {plan.config.play.env}, which does not repeat itself: omit --ray.")


def require_cells(plan: Plan, gateways: int, *, head_plays: bool) -> None:
    """Raise `ConfigError` unless every gateway can have a cell, and this machine where it is to play."""
    cells, batch = plan.run_schedule.lanes // plan.cell_lanes, plan.config.machine.inference_batch
    most = cells - head_plays
    if most < gateways:
        fewer = f"pass --nodes {most}, or an" if most else "pass an"
        raise ConfigError(
            f"{count(cells, 'cell')} of {count(plan.cell_lanes * plan.config.play.lane_envs, 'env')} cannot occupy "
            f"{count(gateways, 'node')}{' and this machine' if head_plays else ''}: {fewer} "
            f"{flag_of('inference_batch')} below {batch}, which changes the last bits."
        )
