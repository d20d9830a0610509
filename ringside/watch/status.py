"""What a person is told about a run: one frozen `Status`, and the sentence that says what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringside.load.bottleneck import Bottleneck, RoleStatus
from ringside.recording.totals import EvaluationStatus
from shared.config.settings import Schedule


@dataclass(frozen=True)
class CheckpointStatus:
    """The newest checkpoint of this sitting."""

    steps: int
    """The clock of its boundary."""
    bytes: int
    """With its replay."""
    seconds: float
    """That writing it took, beside training."""


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
    frames: int | None = 0
    """Emulator frames; None: not known, of an environment that is no game."""
    committed: int = 0
    """Rounds committed."""
    elapsed: float = 0.0
    """Seconds since this command began."""
    time_left: float | None = None
    """Seconds to the end at the present pace."""
    time_left_at_least: bool = False
    """True while the pace is not that of a whole round with learning in it."""
    steps_per_second: float | None = None
    frames_per_second: float | None = None
    updates: int = 0
    updates_per_second: float | None = None
    samples_per_step: float | None = None
    """Achieved since learning began."""
    can_be_saved: bool = False
    """True once there is a boundary that a stop saves, or that was saved before a resume."""
    learning: bool = False
    """Whether updates have begun."""
    learning_begins: int | None = None
    """Steps played when updates begin; None: there are none in this run."""
    epsilon: float | None = None
    episodes: int = 0
    mean_return_100: float | None = None
    best_return: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """The method's metrics that screens show, by name, in the order of its declaration."""
    evaluation: EvaluationStatus | None = None
    checkpoint: CheckpointStatus | None = None
    roles: tuple[RoleStatus, ...] = ()
    usable_cores: int = 0
    """Cores that the run may use."""
    others: float | None = None
    """Of these, how many other programs used."""
    stolen: float | None = None
    """Of these, how many a hypervisor took."""
    verdict: Bottleneck | None = None
    warnings: tuple[str, ...] = ()
