"""The bottleneck of a run: the role that limits its speed, and the distance from that limit.

A `RoleStatus` is the status of one process over an interval, and a `RoleGroup` that of all processes of a kind.

Load is measured between two samples of the board. The observer samples it for the display, the scribe for its records
and the summary. A process is *busy* while it waits for no other process of the run. That is wall-clock time: a process
that lost its core, or waits for a disk or a GPU, is busy. Its CPU time, in `cores`, tells the difference. Much less CPU
time than busy time means that something outside the run slows the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shared.machine.contention import contention_sentences
from shared.memory.board import COUNTED_WORDS, GATEWAY_WORDS, MOMENT_WORDS, SAMPLES, Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.text import readable

LEARNING, NEWEST = range(SAMPLES)
"""Rows of the samples that the scribe keeps on the board: from the start of learning (or of a resumed run), and from
the newest record."""


class Sample:
    """The monotonic counters of the board at one moment.

    Attributes:
        words: i8[MOMENT_WORDS + COUNTED_WORDS * processes + GATEWAY_WORDS * gateways], all of it, as on the board.
        at: CLOCK_MONOTONIC in nanoseconds.
        steps: played by all envs.
        updates: of the learner.
        evaluation_waited: nanoseconds for which the learner waited for a slot in the queue of evaluations.
        contention_at, others, stolen: `shared.memory.board.CONTENTION`.
        busy, waited, cpu: i8[processes], nanoseconds.
        transfer, sent, received: i8[gateways], nanoseconds and bytes.
    """

    def __init__(self, memory: Memory, words: NDArray[np.int64]) -> None:
        """A copy of the words of a sample of the run."""
        self.words = words.copy()
        moment = (int(word) for word in self.words[:MOMENT_WORDS])
        self.at, self.steps, self.updates, self.evaluation_waited, self.contention_at, self.others, self.stolen = moment
        of_gateways = len(self.words) - GATEWAY_WORDS * memory.plan.elsewhere.actors
        self.busy, self.waited, self.cpu = self.words[MOMENT_WORDS:of_gateways].reshape(COUNTED_WORDS, -1)
        self.transfer, self.sent, self.received = self.words[of_gateways:].reshape(GATEWAY_WORDS, -1)

    @classmethod
    def take(cls, memory: Memory, at: int) -> Sample:
        """Sample at `at` ns. Time since a heartbeat, not counted yet, is attributed by the phase of the process."""
        board = memory.board
        since = np.maximum(at - board.heartbeat, 0)
        phase = board.phase.copy()  # `isin` reads twice, and fails if a word changes in between
        busy = board.busy_ns + since * np.isin(phase, (Phase.WORKING, Phase.REPLAYING))
        waited = board.waited_ns + since * (phase == Phase.WAITING)
        steps = int(board.lane_done.values.sum()) * memory.run_schedule.lane_envs
        moment = [at, steps, int(board.updates[0]), int(board.evaluation_wait_ns[0]), *board.contention]
        counted, reports = [np.array(moment, np.int64), busy, waited, board.cpu_ns], memory.gateways
        if reports is not None:
            counted += [reports.transfer_ns, reports.sent_bytes, reports.received_bytes]
        return cls(memory, np.concatenate(counted))


def roles_between(memory: Memory, old: Sample, new: Sample) -> tuple[RoleStatus, ...]:
    """Every process of the run."""
    board, roles = memory.board, memory.plan.roles
    # A death may take back time attributed to work; a difference is never negative.
    busy, waited = np.maximum(new.busy - old.busy, 0), np.maximum(new.waited - old.waited, 0)
    cores = np.maximum(new.cpu - old.cpu, 0) / (new.at - old.at) if new.at > old.at else None
    return tuple(
        RoleStatus(
            name=memory.plan.processes.name_of(process),
            state=Phase(int(board.phase[process])).name.lower(),
            busy=float(busy[process] / counted) if (counted := busy[process] + waited[process]) else None,
            cores=float(cores[process]) if cores is not None else None,
            restarts=int(board.restarts[process]),
            node=_node(memory, process, old, new),
        )
        for process in range(len(board.phase))
        if memory.plan.processes.role_of(process) in roles
    )


def _node(memory: Memory, process: int, old: Sample, new: Sample) -> NodeStatus | None:
    """The node of a process; None if it is no gateway."""
    plan, reports = memory.plan, memory.gateways
    role, actor = plan.processes.role_of(process), plan.processes.number_of(process)
    if reports is None or role is not Role.ACTOR or actor < plan.config.machine.actors:
        return None
    gateway, ns = actor - plan.config.machine.actors, max(1, new.at - old.at)
    moved = {each: getattr(new, each) - getattr(old, each) for each in ("transfer", "sent", "received")}
    transfer, sent, received = (max(0, int(counted[gateway])) / ns for counted in moved.values())
    lanes = int(np.count_nonzero(memory.board.lane_owner == actor))
    losses = int(reports.losses[gateway])
    return NodeStatus(reports.name(gateway), lanes, losses, transfer, 1e9 * sent, 1e9 * received)


def load_between(memory: Memory, old: Sample, new: Sample) -> Load:
    """Load between two samples, several rounds apart: within a round the load of every role varies.

    `memory` of the run has the names, phases and restarts of its processes.
    """
    ns, others, stolen = new.at - old.at, None, None
    if 0 < old.contention_at < new.contention_at:
        measured = new.contention_at - old.contention_at
        others, stolen = (max(0, taken) / measured for taken in (new.others - old.others, new.stolen - old.stolen))

    def rate(counted: int) -> float | None:
        """Counted per nanosecond; a replaying lane counts backwards for a moment."""
        return max(0, counted) / ns if ns > 0 else None

    return Load(
        roles_between(memory, old, new),
        learning=new.updates > 0,
        alternates=memory.run_schedule.takes_turns,
        seconds=ns / 1e9,
        steps_per_second=rate(10**9 * (new.steps - old.steps)),
        updates_per_second=rate(10**9 * (new.updates - old.updates)),
        evaluation_wait=rate(new.evaluation_waited - old.evaluation_waited) or 0.0,
        others=others,
        stolen=stolen,
    )


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
        """`actors`, `workers`, `members` or `nodes` for all of them, else the name."""
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


SATURATED = 0.9
"""Busy share from which a role counts as the bottleneck."""
CORES_IN_USE = 0.9
"""Share of the usable cores from which they count as all in use."""
EVALUATION_WAIT = 0.1
"""Share of the time spent waiting for a slot in the queue of evaluations, from which evaluation is the bottleneck."""
TRANSFERRING = 0.3
"""Share of the time for which a node waits for parameters, from which the network counts as the bottleneck."""


@dataclass(frozen=True)
class Load:
    """Load of a run's processes over an interval of several rounds."""

    roles: tuple[RoleStatus, ...]
    learning: bool
    """True if updates have begun; before, the learner waits by design."""
    alternates: bool = False
    """True if playing and learning take turns."""
    seconds: float = 0.0
    steps_per_second: float | None = None
    """None: not known, as of an empty interval."""
    updates_per_second: float | None = None
    evaluation_wait: float = 0.0
    """Share of the time in which the learner waited for a slot in the queue of evaluations."""
    others: float | None = None
    """Cores that other programs used; None: not known."""
    stolen: float | None = None
    """Cores that the hypervisor took; None: not known."""

    @cached_property
    def groups(self) -> dict[str, RoleGroup]:
        """Groups by name. Processes whose busy share is not known, and gateways without a node, are left out."""
        members: dict[str, list[RoleStatus]] = {}
        for role in self.roles:
            if role.busy is not None and (role.node is None or role.node.name):
                members.setdefault(role.group, []).append(role)
        return {name: RoleGroup(tuple(group)) for name, group in members.items()}

    @property
    def learner_busy(self) -> float:
        """Busy share of the learner; 0 before it learns."""
        return self.groups["learner"].busy if self.learning and "learner" in self.groups else 0.0

    @cached_property
    def slowest(self) -> RoleStatus:
        """The busiest process that plays, which the others wait for at the end of a round."""
        players = (role for group in self.groups.values() for role in group.roles if role.is_player)
        return max(players, key=lambda role: role.busy or 0.0)

    @property
    def slowest_busy(self) -> float:
        """Busy share of `slowest`."""
        return self.slowest.busy or 0.0

    def limited_by(self, kind: str, role: str, opening: str, share: float | None = None) -> Bottleneck:
        """A bottleneck whose sentence has no end yet; `share`: of its limit, by default the busy share of the role.

        The sentence tells busy shares, the greatest first. A mean does not hide a process that hardly waits, nor that
        the limiting role had a core for much less time.
        """
        clauses = []
        for name, group in sorted(self.groups.items(), key=lambda each: -each[1].busy):
            clause = f"{name} {group.busy:.0%}"
            if name == role and role != "nodes" and group.lacks_cores:
                clause += f" with a core for {group.cores / len(group.roles) / group.busy:.0%} of that"
            if self.slowest in group.roles and group.busy < SATURATED <= self.slowest_busy:
                clause += f" ({self.slowest.name} {self.slowest_busy:.0%})"
            if name == role or (group.busy >= 0.05 and (self.learning or name != "learner")):
                clauses.append(clause)
        sentence = f"{opening} (busy: {', '.join(clauses)})"
        return Bottleneck(kind, sentence, role, self.groups[role].busy if share is None else share)


@dataclass(frozen=True)
class Bottleneck:
    """The limiting role of a run, and the distance from its limit."""

    kind: str
    """starting, cores, learner, emulation, network, node, inference, scribe, evaluation, turns, workers or none."""
    sentence: str
    role: str | None = None
    """Group at the limit: learner, actors, nodes, inference, scribe, evaluator. For `cores` the group that uses most of
    them, for `turns` and `none` the busiest. None: not known yet."""
    share: float | None = None
    """Share of the limit reached, in [0, 1]: the busy share of `role`. For `cores` the share in use; for `evaluation`
    1, because an evaluation is always pending; for `turns` the busy shares of learning and playing together."""
    steps_per_second: float | None = None
    """The limit: speed if `role` never waited, or if the run used all cores, with everything else equal."""


_SUBJECTS = {"cores": "all cores", "turns": "turns without waiting", "inference": "inference"}
"""Words for what would allow the limit; for other kinds the role."""


def find_bottleneck(run: Load, usable_cores: int) -> Bottleneck:
    """Find the role that limits the run, and the share of its limit that the run reaches.

    `usable_cores`: those that the run may use.

    If all cores are in use, every role seems busy, if only with waiting for a core. Then the cores are the bottleneck,
    and the sentence names the group that uses most of them. Cores of other programs count if a busy group lacks them.

    Otherwise a role that hardly waits limits the roles that do. Learner and actors wait for each other at the end of a
    round; actors wait for inference at every step. A role with busy share b would allow 1/b of the speed, since it does
    the same work for each step. For actors b is the mean, as if lanes were evenly shared; the slowest actor decides
    whether the others wait. If no role is saturated, and the learner waits a tenth of the time for a free slot in the
    queue of evaluations, evaluation is the bottleneck. Where they take turns the learner waits while lanes play, and
    they wait while it learns. So the limit of both is a run in which one of them always works.

    A node's busy time includes the transfer of parameters. So where nodes hardly wait, that share decides between the
    network and the nodes. If one node is busy and the others wait, it is the bottleneck.

    Limits of the method: a busy role may wait for a core that another program has, or for a device. The sentence names
    cores that other programs or a hypervisor take. On a GPU, learner and inference are busy while they wait for it. If
    the limiting role had a core for much less time than it was busy, the sentence says so. A hyper-thread counts as a
    core, and threads that spin count as work.
    """
    if "workers" not in run.groups and not run.groups.keys() >= {"actors", "inference"}:  # no shares are known yet
        return Bottleneck("starting", _startup_sentence(run.roles))
    found, speed = next(_limits(run, usable_cores)), run.steps_per_second
    if found.share and speed:
        limit, subject = speed / found.share, _SUBJECTS.get(found.kind, f"the {found.role}")
        distance = f"; {readable(speed)} of about {readable(limit)} steps/s that {subject} would allow"
        found = replace(found, steps_per_second=limit, sentence=f"{found.sentence}{distance} ({found.share:.0%})")
    contention = contention_sentences(run.others, run.stolen, usable_cores)
    return replace(found, sentence=" ".join([f"{found.sentence}.", *contention]))


def _limits(run: Load, usable_cores: int) -> Iterator[Bottleneck]:
    """Everything that limits the run, in the order of the rules; the first one is the bottleneck."""
    yield from _cores(run, usable_cores)
    has_workers = "workers" in run.groups  # which wait for nothing but each other, the scribe and evaluations
    if not has_workers:
        yield from _saturated(run)
    # Evaluations are always pending; the evaluator's waits for inference are part of its work.
    if run.evaluation_wait >= EVALUATION_WAIT and (has_workers or run.groups["inference"].busy < SATURATED):
        waiting = "the first process of the workers" if has_workers else "the learner"
        wait = f"{waiting} waits {run.evaluation_wait:.0%} of the time for a free slot in the queue of evaluations"
        yield Bottleneck("evaluation", f"Evaluation limits the run: {wait}", "evaluator", 1.0)
    if has_workers:
        yield run.limited_by("workers", "workers", "The workers limit the run")
    else:
        yield from _unsaturated(run)


def _cores(run: Load, usable_cores: int) -> Iterator[Bottleneck]:
    taken = (run.others or 0.0) + (run.stolen or 0.0)
    own = [group for name, group in run.groups.items() if name != "nodes"]
    if not any(group.busy >= 0.5 and group.lacks_cores for group in own):
        taken = 0.0  # no process of the run waits for the cores of other programs
    used = {name: group.cores for name, group in run.groups.items()}
    if sum(used.values()) + taken >= CORES_IN_USE * usable_cores:
        most, *others = sorted(used, key=lambda name: -used[name])
        sentence = f"All cores are in use ({usable_cores}" + (f", {taken:.1f} by others" if taken >= 0.05 else "")
        sentence += f"): {'of this run ' if taken >= 0.05 else ''}{most} "
        sentence += f"{'take' if most.endswith('s') else 'takes'} the most, {used[most]:.1f}"
        rest = ", ".join(f"{name} {used[name]:.1f}" for name in others if used[name] >= 0.05)
        sentence += f", then {rest}" if rest else ""
        yield Bottleneck("cores", sentence, most, min(1.0, sum(used.values()) / usable_cores))


def _saturated(run: Load) -> Iterator[Bottleneck]:
    """A role that hardly waits: the learner, players or the scribe."""
    if run.learner_busy >= max(SATURATED, run.slowest_busy):
        yield run.limited_by("learner", "learner", "The learner limits the run")
    if run.slowest_busy >= SATURATED:
        yield run.limited_by(*_players(run))
    if "scribe" in run.groups and run.groups["scribe"].busy >= SATURATED:
        yield run.limited_by("scribe", "scribe", "Recording limits the run")


def _players(run: Load) -> tuple[str, str, str]:
    """Actors; or nodes, where it may be the network, one of them, or all."""
    roles, node = run.groups[run.slowest.group].roles, run.slowest.node
    others = [role.busy or 0.0 for role in roles if role is not run.slowest]
    reports = [role.node for role in roles if role.node is not None]
    if node is not None and (transfer := sum(each.transfer for each in reports) / len(reports)) >= TRANSFERRING:
        rate = sum(each.sent for each in reports) / 1e6
        waits = f"the nodes wait {transfer:.0%} of the time for parameters, {rate:,.1f} MB/s"
        return "network", "nodes", f"The network limits the run: {waits}"
    if node is not None and others and sum(others) / len(others) < SATURATED:
        return "node", "nodes", f"Node {node.name} limits the run"
    return "emulation", run.slowest.group, "Emulation limits the run"


def _unsaturated(run: Load) -> Iterator[Bottleneck]:
    """Turns of learner and players, inference, which players wait for at every step, or no single role."""
    players, inference = run.slowest.group, run.groups["inference"].busy
    busy = {players: run.groups[players].busy, "inference": inference}
    busy |= {"learner": run.learner_busy} if "learner" in run.groups else {}
    role = max(busy, key=lambda name: (busy[name], name))
    if run.alternates and run.learner_busy:
        share = min(1.0, run.learner_busy + max(run.slowest_busy, inference))
        yield run.limited_by("turns", role, "Playing and learning take turns", share)
    if inference >= max(0.5, *busy.values()):
        yield run.limited_by("inference", "inference", "Inference limits the run")
    yield run.limited_by("none", role, "No role limits the run by itself: they wait for one another", busy[role])


def _startup_sentence(roles: Sequence[RoleStatus]) -> str:
    """Name the processes that have not started; of more than four, the first and the number of the others."""
    names = [role.name for role in roles if role.state == "starting"]
    if not names:
        return "All processes have started; the first steps are being played."
    listed = ", ".join(names) if len(names) <= 4 else f"{names[0]} and {len(names) - 1} more processes"
    return f"Starting: waits for {listed}."
