"""The bottleneck of a run: the role that limits its speed, and the distance from that limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shared.machine.contention import contention_sentences
from shared.text import readable

BottleneckKind = Literal[
    "starting",
    "cores",
    "learner",
    "emulation",
    "network",
    "node",
    "inference",
    "scribe",
    "evaluation",
    "turns",
    "workers",
    "none",
]


SATURATED = 0.9
"""Busy share from which a role counts as the bottleneck."""


CORES_IN_USE = 0.9
"""Share of the usable cores from which they count as all in use."""


RUNNING = 0.75
"""CPU share of a role's busy time below which the sentence mentions it."""


TRANSFERRING = 0.3
"""Share of the time for which a node waits for parameters, from which the network counts as the bottleneck."""


@dataclass(frozen=True)
class NodeStatus:
    """The node that plays the lanes of a gateway."""

    name: str
    """Empty: it has none at the moment."""
    lanes: int
    losses: int
    """Nodes that the gateway lost."""
    audits: int
    """Answers that the head computed again, and agreed with."""
    transfer: float
    """Share of the time in which parameters were on their way to it."""
    sent: float
    """Bytes of parameters a second to it."""
    received: float
    """Bytes of steps a second from it."""


@dataclass(frozen=True)
class RoleStatus:
    """One process."""

    name: str
    """Name in `ps`: learner, inference, scribe, evaluator, actor 3."""
    state: str
    """Phase: starting, working, waiting, replaying, done, ended."""
    busy: float | None = None
    """Share of the time in which it waited for no other process of the run, in [0, 1]; None: not known yet."""
    cores: float | None = None
    """Cores used: CPU seconds per second; None: not known yet."""
    restarts: int = 0
    node: NodeStatus | None = None
    """None: it is no gateway."""

    @property
    def is_player(self) -> bool:
        """True if the process plays for training."""
        return self.group in ("actors", "workers", "nodes")

    @property
    def group(self) -> str:
        """`actors`, `workers`, `ranks` or `nodes` for all of them, else the name."""
        if self.node is not None:
            return "nodes"
        role, _, number = self.name.partition(" ")
        return f"{role}s" if number else role


@dataclass(frozen=True)
class Bottleneck:
    """The limiting role of a run, and the distance from its limit."""

    kind: BottleneckKind
    sentence: str
    role: str | None = None
    """Group at the limit: learner, actors, nodes, inference, scribe, evaluator. For `cores` the group that uses most of
    them, for `turns` and `none` the busiest. None: not known yet."""
    share: float | None = None
    """Share of the limit reached, in [0, 1]: the busy share of `role`. For `cores` the share in use; for `evaluation`
    1, because an evaluation is always pending; for `turns` the busy shares of learning and playing together."""
    steps_per_second: float | None = None
    """The limit: speed if `role` never waited, or if the run used all cores, with everything else equal."""


_ALLOWED = {
    "learner": "the learner would allow",
    "actors": "the actors would allow",
    "nodes": "the nodes would allow",
    "workers": "the workers would allow",
    "inference": "inference would allow",
    "scribe": "the scribe would allow",
    "evaluator": "the evaluator would allow",
}


def busy_by_group(roles: Sequence[RoleStatus]) -> dict[str, float]:
    """Mean busy share of each group of roles whose share is known."""
    groups = _groups(roles)
    return {name: sum(role.busy or 0.0 for role in group) / len(group) for name, group in groups.items()}


def _groups(roles: Sequence[RoleStatus]) -> dict[str, list[RoleStatus]]:
    groups: dict[str, list[RoleStatus]] = {}
    for role in roles:
        if role.busy is not None and (role.node is None or role.node.name):
            groups.setdefault(role.group, []).append(role)
    return groups


def find_bottleneck(
    roles: Sequence[RoleStatus],
    *,
    learning: bool,
    usable_cores: int,
    alternates: bool = False,
    steps_per_second: float | None = None,
    evaluation_wait: float = 0.0,
    others: float | None = None,
    stolen: float | None = None,
) -> Bottleneck:
    """Find the role that limits the run, and the share of its limit that the run reaches.

    If all cores are in use, every role seems busy, if only with waiting for a core. Then the cores are the bottleneck,
    and the sentence names the group that uses most of them. Cores of other programs count if a busy group lacks them.

    Otherwise a role that hardly waits limits the roles that do. Learner and actors wait for each other at the end of a
    round; actors wait for inference at every step. A role with busy share b would allow 1/b of the speed, since it does
    the same work for each step. For actors b is the mean, as if lanes were evenly shared; the slowest actor decides
    whether the others wait. If no role is saturated, and the learner waits a tenth of the time for a free slot in the
    queue of evaluations, evaluation is the bottleneck. With `alternate` the learner waits while lanes play, and they
    wait while it learns. So the limit of both is a run in which one of them always works.

    A node's busy time includes the transfer of parameters. So where nodes hardly wait, that share decides between the
    network and the nodes. If one node is busy and the others wait, it is the bottleneck.

    Limits of the method: a busy role may wait for a core that another program has, or for a device. The sentence names
    cores that other programs or a hypervisor take. On a GPU, learner and inference are busy while they wait for it. If
    the limiting role had a core for much less time than it was busy, the sentence says so. A hyper-thread counts as a
    core, and threads that spin count as work.

    Args:
        roles: busy shares and cores over the same time.
        learning: True if updates have begun; before, the learner waits by design.
        usable_cores: how many cores the run may use.
        alternates: True if playing and learning take turns.
        steps_per_second: the speed over the same time, where known.
        evaluation_wait: share of the time in which the learner waited for a slot in the queue of evaluations.
        others, stolen: cores that other programs and a hypervisor took over the same time, if known.
    """
    found = _find(
        roles,
        learning=learning,
        usable_cores=usable_cores,
        alternates=alternates,
        steps_per_second=steps_per_second,
        evaluation_wait=evaluation_wait,
        taken=(others or 0.0) + (stolen or 0.0),
    )
    if found.kind == "starting":
        return found
    return replace(found, sentence=" ".join([found.sentence, *contention_sentences(others, stolen, usable_cores)]))


_PREPARES = {
    "scribe": "preparing the memory",
    "learner": "loading PyTorch and the network",
    "ranks": "loading PyTorch and the network",
    "inference": "loading PyTorch and the network",
    "evaluator": "loading emulators and the game",
    "actors": "loading emulators and the game",
    "nodes": "looking for a node",
    "workers": "loading PyTorch, emulators and the game",
}
"""Work of a role before its first step, by group."""


def _starting(roles: Sequence[RoleStatus]) -> str:
    """Sentence about the roles that a run waits for at its start."""
    awaited: dict[str, list[str]] = {}
    for role in roles:
        if role.state == "starting":
            awaited.setdefault(_PREPARES[role.group], []).append(role.name)
    if not awaited:
        return "All processes have started; the first steps are being played."
    told = [f"{_listed(names)} ({work})" for work, names in awaited.items()]
    return f"Starting: waits for {_listed(told)}."


def _listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"; of more than four, the first and the number of the others."""
    if len(words) > _MOST_LISTED:
        return f"{words[0]} and {len(words) - 1} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


_MOST_LISTED = 4


def _find(
    roles: Sequence[RoleStatus],
    *,
    learning: bool,
    usable_cores: int,
    alternates: bool,
    steps_per_second: float | None,
    evaluation_wait: float,
    taken: float,
) -> Bottleneck:
    """The bottleneck, without the sentences on other programs. `taken`: their cores."""
    groups, busy = _groups(roles), busy_by_group(roles)
    if "workers" not in groups and ("actors" not in groups or "inference" not in groups):
        return Bottleneck("starting", _starting(roles))
    used = {name: sum(role.cores or 0.0 for role in group) for name, group in groups.items()}
    if taken and not any(_starves(group) for name, group in groups.items() if name != "nodes"):
        taken = 0.0  # no process of the run waits for these cores
    if sum(used.values()) + taken >= CORES_IN_USE * usable_cores:
        return _cores_limit(used, taken, usable_cores, steps_per_second)
    if "workers" in groups:
        if evaluation_wait >= 1 - SATURATED:
            return _evaluation_limit("the first process of the workers", evaluation_wait, steps_per_second)
        return _workers_limit(groups["workers"], busy["workers"], steps_per_second)
    if not learning:
        busy["learner"] = 0.0
    return _role_limit(
        groups,
        busy,
        learning=learning,
        alternates=alternates,
        steps_per_second=steps_per_second,
        evaluation_wait=evaluation_wait,
    )


def _role_limit(
    groups: Mapping[str, Sequence[RoleStatus]],
    busy: Mapping[str, float],
    *,
    learning: bool,
    alternates: bool,
    steps_per_second: float | None,
    evaluation_wait: float,
) -> Bottleneck:
    """The bottleneck of a run with learner and inference that has cores to spare; `busy` by group of roles."""
    playing = [*groups["actors"], *groups.get("nodes", ())]
    slowest = max(playing, key=lambda role: role.busy or 0.0)
    players = slowest.group
    learner, emulation, inference = busy.get("learner", 0.0), busy[players], busy["inference"]
    slow = slowest.busy or 0.0
    actors_wait = f"the {players} wait {1 - emulation:.0%} of the time"
    kind: BottleneckKind
    if learner >= SATURATED and learner >= slow:
        kind, role = "learner", "learner"
        said = f"The learner limits the run: it is {_busy(groups['learner'])}, and {actors_wait}"
    elif slow >= SATURATED and players == "nodes":
        role = "nodes"
        kind, said = _nodes_limit(groups["nodes"], slowest)
        said += f", and the learner waits {1 - learner:.0%} of its time" if learning else ""
    elif slow >= SATURATED:
        kind, role = "emulation", "actors"
        said = f"Emulation limits the run: the actors are {_busy(groups['actors'])}"
        said += f", {slowest.name} {slow:.0%}" if emulation < SATURATED else ""
        said += f", and the learner waits {1 - learner:.0%} of its time" if learning else ""
    elif busy.get("scribe", 0.0) >= SATURATED:
        kind, role = "scribe", "scribe"
        said = f"Recording limits the run: the scribe is {_busy(groups['scribe'])}, and {actors_wait}"
    elif evaluation_wait >= 1 - SATURATED and inference < SATURATED:
        return _evaluation_limit("the learner", evaluation_wait, steps_per_second)
    elif alternates and learning and "learner" in groups:
        role = max(("learner", "actors", "inference"), key=lambda name: busy[name])
        said = f"Playing and learning take turns: the learner is {_busy(groups['learner'])}, the actors "
        said += f"{_busy(groups['actors'])} and inference {_busy(groups['inference'])}"
        turns = Bottleneck("turns", said, role, min(1.0, learner + max(slow, inference)))
        return _with_distance(turns, "turns without a wait would allow", steps_per_second)
    elif inference >= max(0.5, emulation, learner):
        kind, role = "inference", "inference"
        said = f"Inference limits the run: it is {_busy(groups['inference'])}, and {actors_wait}"
    else:
        kind, role = "none", max(busy.keys() & {"learner", players, "inference"}, key=lambda name: (busy[name], name))
        said = f"No role limits the run by itself ({players} busy {emulation:.0%}, inference {inference:.0%}, "
        said += f"learner {learner:.0%}" if learning else "learning has not begun"
        said += "): they wait for one another"
    return _with_distance(Bottleneck(kind, said, role, busy[role]), _ALLOWED[role], steps_per_second)


def _evaluation_limit(waiting: str, share: float, steps_per_second: float | None) -> Bottleneck:
    """The bottleneck of a run that waits for evaluations; the evaluator's waits for inference are part of its work."""
    said = f"Evaluation limits the run: {waiting} waits {share:.0%} of the time for a free slot in the queue of "
    found = Bottleneck("evaluation", f"{said}evaluations", "evaluator", share=1.0)
    return _with_distance(found, _ALLOWED["evaluator"], steps_per_second)


def _nodes_limit(group: Sequence[RoleStatus], slowest: RoleStatus) -> tuple[BottleneckKind, str]:
    """Kind of the limit where the nodes hardly wait, and the first half of its sentence."""
    found = [(role.node, role.busy or 0.0) for role in group if role.node is not None]
    transfer = sum(node.transfer for node, _ in found) / len(found)
    if transfer >= TRANSFERRING:
        rate = sum(node.sent for node, _ in found) / 1e6
        waits = f"the nodes wait {transfer:.0%} of the time for parameters ({rate:,.1f} MB/s)"
        return "network", f"The network limits the run: {waits}"
    others = [busy for role, (_, busy) in zip(group, found, strict=True) if role is not slowest]
    assert slowest.node is not None, "it is a node"
    if others and (mean := sum(others) / len(others)) < SATURATED:
        shares = f"it is busy {slowest.busy or 0.0:.0%}, the other nodes {mean:.0%}"
        return "node", f"Node {slowest.node.name} limits the run: {shares}"
    return "emulation", f"Emulation limits the run: the nodes are {_share_busy(group)}"


def _workers_limit(group: Sequence[RoleStatus], busy: float, steps_per_second: float | None) -> Bottleneck:
    """The bottleneck of a run of workers, which wait for nothing but each other, the scribe and evaluations."""
    said = f"The workers limit the run: their processes are {_busy(group)}, and wait for each other in the other time"
    return _with_distance(Bottleneck("workers", said, "workers", busy), _ALLOWED["workers"], steps_per_second)


def _shares(group: Sequence[RoleStatus]) -> tuple[float, float]:
    """Mean busy share of a group's roles, and mean share of the time on a core."""
    busy = sum(role.busy or 0.0 for role in group) / len(group)
    ran = sum(role.cores or 0.0 for role in group) / len(group)
    return busy, ran


def _starves(group: Sequence[RoleStatus]) -> bool:
    """True if a group was busy most of the time but had a core for much less of it."""
    busy, ran = _shares(group)
    return busy >= 0.5 and ran < RUNNING * busy


def _share_busy(group: Sequence[RoleStatus]) -> str:
    """Busy share of a group as text."""
    return f"busy {_shares(group)[0]:.0%}"


def _busy(group: Sequence[RoleStatus]) -> str:
    """Busy share of a group as text, with its share on a core where that is much less."""
    busy, ran = _shares(group)
    return _share_busy(group) + (f" (on a core {ran:.0%})" if ran < RUNNING * busy else "")


def _cores_limit(
    used: Mapping[str, float], taken: float, usable_cores: int, steps_per_second: float | None
) -> Bottleneck:
    """The bottleneck if all cores are in use; `used` by group of roles, `taken` by other programs."""
    most, *others = sorted(used, key=lambda name: -used[name])
    takes = "take" if most in ("actors", "workers", "ranks") else "takes"
    said = f"All cores are in use ({usable_cores}" + (f", {taken:.1f} by others" if taken >= 0.05 else "")
    said += f"): {'of this run ' if taken >= 0.05 else ''}{most} {takes} the most, {used[most]:.1f}"
    rest = ", ".join(f"{name} {used[name]:.1f}" for name in others if used[name] >= 0.05)
    said += f", then {rest}" if rest else ""
    share = min(1.0, sum(used.values()) / usable_cores)
    return _with_distance(Bottleneck("cores", said, most, share), "they allow", steps_per_second)


def _with_distance(found: Bottleneck, subject: str, steps_per_second: float | None) -> Bottleneck:
    """Complete a bottleneck with the speed at the limit and the end of the sentence."""
    if not found.share or not steps_per_second:
        return replace(found, sentence=f"{found.sentence}.")
    limit = steps_per_second / found.share
    far = f"{readable(steps_per_second)} of about {readable(limit)} steps/s that {subject} ({found.share:.0%})"
    return replace(found, sentence=f"{found.sentence}; {far}.", steps_per_second=limit)
