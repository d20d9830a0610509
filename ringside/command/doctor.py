"""The task `doctor`: can this machine do a run? examination and checks answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.command.arguments import Choices, config_of, parse_choices
from ringside.command.examination import examine, show, worst
from ringside.run.checks import Check, Color
from shared.errors import ConfigError
from shared.files.result_files import require_writable, write_result
from shared.machine import facts
from shared.memory.plan import Plan


@dataclass(frozen=True)
class Diagnosis(Choices):
    """Examine whether this machine can do a run: the one that these options of training describe."""

    json: Path | None = None
    """Write the findings to this file, too."""
    ray: str | None = None
    """auto or HOST:PORT: examine the nodes of this Ray cluster, too (docs/clusters.md)."""
    ray_insecure: bool = False
    """With --ray: accept a cluster without a token, on which any program that reaches it can run code."""


OPTIONS = Diagnosis


def main(arguments: Sequence[str]) -> int:
    """Examine the machine. Return 1 if a run cannot work on it."""
    options = parse_choices(Diagnosis, arguments, "doctor")
    if options.ray is not None:
        from ringside.cluster.connection import cluster_address

        cluster_address(options.ray)  # which is refused before minutes of work
    elif options.ray_insecure:
        raise ConfigError("--ray-insecure is for a cluster: pass --ray, too.")
    if options.json is not None:
        require_writable("--json", options.json)
    plan, answers = examine(config_of(options))
    if options.ray is not None:
        answers += _nodes(plan, options.ray, insecure=options.ray_insecure)
    show(answers)
    if options.json is not None:
        found = {"color": worst(answers), "checks": [answer._asdict() for answer in answers]}
        write_result("--json", options.json, found | {"machine": facts.describe()})
    return 1 if worst(answers) == "red" else 0


def _nodes(plan: Plan, address: str, *, insecure: bool) -> list[Check]:
    """Checks of the nodes of a cluster."""
    from ringside.cluster.survey import survey

    try:
        findings = survey(plan, address, insecure=insecure)
    except ConfigError as error:
        return [Check("nodes", "red", str(error))]
    if not findings:
        return [Check("nodes", "red", "No node of the cluster has CPUs.", "Join one with `ray start --address`.")]
    bad: Color = "yellow" if any(each.suits for each in findings) else "red"  # a run leaves such nodes out
    return [Check(f"node {each.node}", "green" if each.suits else bad, each.found) for each in findings]
