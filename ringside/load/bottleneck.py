"""The bottleneck of a run: which role holds it back, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shared.machine.contention import contention_sentences

Limit = Literal["starting", "cores", "learner", "emulation", "inference", "scribe", "evaluation", "none"]


SATURATED = 0.9
"""Busy share from which a role counts as the one that limits the run."""


CORES_IN_USE = 0.9
"""Share of the usable cores from which they count as all in use."""


RUNNING = 0.75
"""Share of its busy time below which a role's time on a core is worth a word."""


@dataclass(frozen=True)
class RoleStatus:
    """One process."""

    name: str
    """As in `ps`: learner, inference, scribe, evaluator, actor 3."""
    state: str
    """What it does: starting, working, waiting, replaying, done, ended."""
    busy: float | None = None
    """Share of the time in which it did not wait for other processes of the run, in [0, 1]; None: not known yet."""
    cores: float | None = None
    """Cores that it used: its CPU time a second; None: not known yet."""
    restarts: int = 0

    @property
    def is_actor(self) -> bool:
        """Whether it plays for training."""
        return self.name.startswith("actor ")

    @property
    def group(self) -> str:
        """`actors` for all of them, else the name."""
        return "actors" if self.is_actor else self.name


@dataclass(frozen=True)
class Bottleneck:
    """What limits a run, and how far the run is from there."""

    limit: Limit
    sentence: str
    role: str | None = None
    """The group at the limit: learner, actors, inference, scribe, evaluator. Of `cores` the one that takes most of
    them, of `none` the busiest. None: not known yet."""
    share: float | None = None
    """Share of the limit that is reached, in [0, 1]: the busy share of `role`; of `cores`, the share that worked; of
    `evaluation` 1, since there always is something to evaluate."""
    steps_per_second: float | None = None
    """The limit: what `role`, never waiting, beside the others as they are, or all cores with the same work allow."""


_ALLOWED = {
    "learner": "the learner would allow",
    "actors": "the actors would allow",
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
        if role.busy is not None:
            groups.setdefault(role.group, []).append(role)
    return groups


def verdict(
    roles: Sequence[RoleStatus],
    *,
    learning: bool,
    usable_cores: int,
    steps_per_second: float | None = None,
    evaluation_wait: float = 0.0,
    others: float | None = None,
    stolen: float | None = None,
) -> Bottleneck:
    """Say which role limits the run, and what share of its limit the run reaches.

    Where the cores are all in use, everybody seems busy, if only with waiting for a core: then the cores are the limit,
    and who takes most of them is said. Cores that others use count where a busy group of roles lacks them. Otherwise a
    role that hardly waits limits those that do: learner and actors wait for each other at the end of a round, and the
    actors for inference at every step. A role that is busy for the share b of the time would allow 1/b of the speed,
    with the others as they are, since it does the same work for each step either way; of the actors that is the mean,
    with their lanes evenly shared, and the slowest says whether the others wait for it. Where none is, and the learner
    waits a tenth of the time for a free place in the queue of evaluations, these are the limit.

    What these shares do not know: a busy role may wait for a core that another program has, or for a device. Cores that
    other programs use, or a hypervisor, are named where they are many. On a GPU the learner and inference are busy
    while they wait for it, be it with their own work or with the other's. Where the limiting role had a core for much
    less time than it was busy, the sentence says so. Of the cores, a hyper-thread counts as one, and threads that wait
    in a loop count as work.

    Args:
        roles: with their busy shares and the cores that they use, over the same time.
        learning: whether updates have begun; before, the learner waits by design.
        usable_cores: how many cores the run may use.
        steps_per_second: the speed over the same time, where known.
        evaluation_wait: share of the time in which the learner waited for a place in the queue of evaluations.
        others, stolen: cores that other programs used and that a hypervisor took, over the same time, where known.
    """
    found = _limit(
        roles,
        learning=learning,
        usable_cores=usable_cores,
        steps_per_second=steps_per_second,
        evaluation_wait=evaluation_wait,
        taken=(others or 0.0) + (stolen or 0.0),
    )
    if found.limit == "starting":
        return found
    return replace(found, sentence=" ".join([found.sentence, *contention_sentences(others, stolen, usable_cores)]))


def _limit(
    roles: Sequence[RoleStatus],
    *,
    learning: bool,
    usable_cores: int,
    steps_per_second: float | None,
    evaluation_wait: float,
    taken: float,
) -> Bottleneck:
    """The verdict but for the words on what others take; `taken`: cores."""
    groups, busy = _groups(roles), busy_by_group(roles)
    if "actors" not in groups or "inference" not in groups:
        return Bottleneck("starting", "The processes are starting.")
    used = {name: sum(role.cores or 0.0 for role in group) for name, group in groups.items()}
    if taken and not any(map(_starves, groups.values())):
        taken = 0.0  # nobody of the run waits for the cores that others use
    if sum(used.values()) + taken >= CORES_IN_USE * usable_cores:
        return _cores_limit(used, taken, usable_cores, steps_per_second)
    if not learning:
        busy["learner"] = 0.0
    learner, emulation, inference = busy.get("learner", 0.0), busy["actors"], busy["inference"]
    slowest = max(groups["actors"], key=lambda role: role.busy or 0.0)
    slow = slowest.busy or 0.0
    actors_wait = f"the actors wait {1 - emulation:.0%} of the time"
    limit: Limit
    if learner >= SATURATED and learner >= slow:
        limit, role = "learner", "learner"
        said = f"The learner limits the run: it is {_busy(groups['learner'])}, and {actors_wait}"
    elif slow >= SATURATED:
        limit, role = "emulation", "actors"
        said = f"Emulation limits the run: the actors are {_busy(groups['actors'])}"
        said += f", {slowest.name} {slow:.0%}" if emulation < SATURATED else ""
        said += f", and the learner waits {1 - learner:.0%} of its time" if learning else ""
    elif busy.get("scribe", 0.0) >= SATURATED:
        limit, role = "scribe", "scribe"
        said = f"What is written down limits the run: the scribe is {_busy(groups['scribe'])}, and {actors_wait}"
    elif evaluation_wait >= 1 - SATURATED and inference < SATURATED:
        limit, role = "evaluation", "evaluator"
        busy[role] = 1.0  # its waits for inference are part of its work
        said = f"Evaluation limits the run: the learner waits {evaluation_wait:.0%} of the time until one of those "
        said += "that are queued is played"
    elif inference >= max(0.5, emulation, learner):
        limit, role = "inference", "inference"
        said = f"Inference limits the run: it is {_busy(groups['inference'])}, and {actors_wait}"
    else:
        limit, role = "none", max(busy.keys() & {"learner", "actors", "inference"}, key=lambda name: (busy[name], name))
        said = f"No role limits the run by itself (actors busy {emulation:.0%}, inference {inference:.0%}, "
        said += f"learner {learner:.0%}" if learning else "learning has not begun"
        said += "): they wait for one another"
    return _with_distance(Bottleneck(limit, said, role, busy[role]), _ALLOWED[role], steps_per_second)


def _shares(group: Sequence[RoleStatus]) -> tuple[float, float]:
    """The mean shares of the time in which the roles of a group were busy, and in which they ran on a core."""
    busy = sum(role.busy or 0.0 for role in group) / len(group)
    ran = sum(role.cores or 0.0 for role in group) / len(group)
    return busy, ran


def _starves(group: Sequence[RoleStatus]) -> bool:
    """True if a group that is busy most of the time had a core for much less of it."""
    busy, ran = _shares(group)
    return busy >= 0.5 and ran < RUNNING * busy


def _busy(group: Sequence[RoleStatus]) -> str:
    """The mean busy share of a group in words, and its share on a core where that is much less."""
    busy, ran = _shares(group)
    return f"busy {busy:.0%}" + (f" (on a core {ran:.0%})" if ran < RUNNING * busy else "")


def _cores_limit(
    used: Mapping[str, float], taken: float, usable_cores: int, steps_per_second: float | None
) -> Bottleneck:
    """The verdict where all cores are in use; `used` by group of roles, `taken` by what is not of the run."""
    most, *others = sorted(used, key=lambda name: -used[name])
    takes = "take" if most == "actors" else "takes"
    said = f"All cores are in use ({usable_cores}" + (f", {taken:.1f} by others" if taken >= 0.05 else "")
    said += f"): {'of this run ' if taken >= 0.05 else ''}{most} {takes} the most, {used[most]:.1f}"
    rest = ", ".join(f"{name} {used[name]:.1f}" for name in others if used[name] >= 0.05)
    said += f", then {rest}" if rest else ""
    share = min(1.0, sum(used.values()) / usable_cores)
    return _with_distance(Bottleneck("cores", said, most, share), "they allow", steps_per_second)


def _with_distance(found: Bottleneck, subject: str, steps_per_second: float | None) -> Bottleneck:
    """The verdict with the speed at the limit and a sentence that ends with the way there."""
    if not found.share or not steps_per_second:
        return replace(found, sentence=f"{found.sentence}.")
    limit = steps_per_second / found.share
    far = f"{_speed(steps_per_second)} of about {_speed(limit)} steps/s that {subject} ({found.share:.0%})"
    return replace(found, sentence=f"{found.sentence}; {far}.", steps_per_second=limit)


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
