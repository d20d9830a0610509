"""Status of a run's processes over an interval, one by one and in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

RUNNING = 0.75
"""CPU share of a group's busy time below which the sentence mentions it."""


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
class RoleGroup:
    """The processes of one kind, at least one, with a busy share each."""

    roles: tuple[RoleStatus, ...]

    @cached_property
    def busy(self) -> float:
        """Mean busy share."""
        return sum(role.busy or 0.0 for role in self.roles) / len(self.roles)

    @cached_property
    def cores(self) -> float:
        """Cores that all of them use."""
        return sum(role.cores or 0.0 for role in self.roles)

    @property
    def lacks_cores(self) -> bool:
        """True if it had cores for much less time than it was busy."""
        return self.cores / len(self.roles) < RUNNING * self.busy

    @property
    def starves(self) -> bool:
        """True if it was busy most of the time, and lacks cores."""
        return self.busy >= 0.5 and self.lacks_cores

    @property
    def works(self) -> str:
        """Clause with the busy share, and the share of that with a core where it is much less."""
        plural = self.roles[0].group.endswith("s")
        share = f"{'work' if plural else 'works'} {self.busy:.0%} of the time"
        if not self.lacks_cores:
            return share
        part = self.cores / len(self.roles) / self.busy
        return f"{share} and {'have' if plural else 'has'} a core for {part:.0%} of that"


def groups_of(roles: Sequence[RoleStatus]) -> dict[str, RoleGroup]:
    """Groups by name. Processes whose busy share is not known, and gateways without a node, are left out."""
    members: dict[str, list[RoleStatus]] = {}
    for role in roles:
        if role.busy is not None and (role.node is None or role.node.name):
            members.setdefault(role.group, []).append(role)
    return {name: RoleGroup(tuple(group)) for name, group in members.items()}
