"""What a person is told about a run: one frozen `Status`, and the sentence that says what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared.config import Schedule

Limit = Literal["starting", "cores", "learner", "emulation", "inference", "none"]

SATURATED = 0.9
"""Busy share from which a role counts as the one that limits the run."""
CORES_IN_USE = 0.9
"""Share of the usable cores from which they count as all in use."""


@dataclass(frozen=True)
class RoleStatus:
    """One process."""

    name: str
    """As in `ps`: learner, inference, scribe, evaluator, actor 3."""
    state: str
    """What it does: starting, working, waiting, redoing, done, ended."""
    busy: float | None = None
    """Share of the last seconds in which it did not wait for others, in [0, 1]; None: not known yet."""
    cores: float | None = None
    """Cores that it used in the last seconds; None: not known."""
    restarts: int = 0

    @property
    def is_actor(self) -> bool:
        """Whether it plays for training."""
        return self.name == "actor" or self.name.startswith("actor ")


@dataclass(frozen=True)
class EvaluationStatus:
    """The newest evaluation."""

    steps: int
    """Of the version that was evaluated."""
    episodes: int
    mean_return: float
    best_mean: float
    """The best mean so far."""


@dataclass(frozen=True)
class Verdict:
    """What limits a run."""

    limit: Limit
    sentence: str


@dataclass(frozen=True)
class Status:
    """A run at one moment. What is not known yet is None."""

    game: str
    protocol: str
    schedule: Schedule
    run_dir: Path
    total_steps: int
    rounds: int
    samples_asked: float
    """Transitions sampled for each step, as configured: batch size / train_every."""
    steps: int = 0
    """The clock: ticks x envs, of all ticks played, the round under way included."""
    frames: int = 0
    """Emulator frames."""
    committed: int = 0
    """Rounds committed."""
    elapsed: float = 0.0
    """Seconds since this command began."""
    time_left: float | None = None
    """Seconds to the end at the present pace."""
    steps_per_second: float | None = None
    frames_per_second: float | None = None
    updates: int = 0
    updates_per_second: float | None = None
    samples_per_step: float | None = None
    """Achieved since learning began."""
    learning: bool = False
    """Whether updates have begun."""
    epsilon: float | None = None
    episodes: int = 0
    mean_return_100: float | None = None
    best_return: float | None = None
    loss: float | None = None
    mean_q: float | None = None
    evaluation: EvaluationStatus | None = None
    roles: tuple[RoleStatus, ...] = ()
    verdict: Verdict | None = None
    warnings: tuple[str, ...] = ()


def verdict(roles: Sequence[RoleStatus], *, learning: bool, usable_cores: int, barrier: float | None = None) -> Verdict:
    """Say which role limits the run.

    Where the cores are all in use, everybody seems busy, if only with waiting for a core: then the cores are the limit,
    and who takes most of them is said. Otherwise a role that hardly waits limits those that do: learner and actors
    wait for each other at the end of a round, and the actors for inference at every step.

    Args:
        roles: with their busy shares and, where known, the cores that they use.
        learning: whether updates have begun; before, the learner waits by design.
        usable_cores: how many cores the run may use.
        barrier: share of the learner's time in which it waited for the end of a round, in [0, 1], where known.
    """
    groups: dict[str, list[RoleStatus]] = {}
    for role in roles:
        if role.busy is not None:
            groups.setdefault("actors" if role.is_actor else role.name, []).append(role)
    if "actors" not in groups or "inference" not in groups:
        return Verdict("starting", "The processes are starting.")
    busy = {name: sum(role.busy or 0.0 for role in group) / len(group) for name, group in groups.items()}
    used = {name: sum(role.cores or 0.0 for role in group) for name, group in groups.items()}
    if sum(used.values()) >= CORES_IN_USE * usable_cores:
        most, *others = sorted(used, key=lambda name: -used[name])
        takes = "take" if most == "actors" else "takes"
        rest = ", ".join(f"{name} {used[name]:.1f}" for name in others if used[name] >= 0.05)
        sentence = f"All cores are in use ({usable_cores}): {most} {takes} the most, {used[most]:.1f}"
        return Verdict("cores", sentence + (f", then {rest}." if rest else "."))
    emulation, inference = busy["actors"], busy["inference"]
    learner = busy.get("learner", 0.0) if learning else 0.0
    actors_wait = f"the actors wait {1 - emulation:.0%} of the time"
    if learner >= SATURATED and learner >= emulation:
        return Verdict("learner", f"The learner limits the run: it is busy {learner:.0%}, and {actors_wait}.")
    if emulation >= SATURATED:
        reason = f"the actors are busy {emulation:.0%}"
        if learning and barrier is not None:
            reason += f", and the learner waits for them {barrier:.0%} of its time"
        return Verdict("emulation", f"Emulation limits the run: {reason}.")
    if inference >= max(0.5, emulation, learner):
        return Verdict("inference", f"Inference limits the run: it is busy {inference:.0%}, and {actors_wait}.")
    said = f"actors busy {emulation:.0%}, inference {inference:.0%}"
    said += f", learner {learner:.0%}" if learning else ", learning has not begun"
    return Verdict("none", f"No role limits the run by itself ({said}): they wait for one another.")
