"""Status of a run at one moment, for displays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringside.records.bottleneck import Bottleneck
from ringside.records.role_status import RoleStatus
from ringside.records.totals import EvaluationStatus
from shared.config.presets import nearest_preset
from shared.config.run_schedule import RunSchedule
from shared.config.sections import Schedule
from shared.config.settings import Config
from shared.files.strict_json import read_object
from shared.process.ownership import SUITE_FILE


def suite_place(run_dir: Path) -> str:
    """Place of a run in its suite: "run 2 of 4"; empty: it is in none."""
    runs = read_object(run_dir.absolute().parent / SUITE_FILE).get("runs")
    if not isinstance(runs, list) or run_dir.name not in runs:
        return ""
    return f"run {runs.index(run_dir.name) + 1} of {len(runs)}"


@dataclass(frozen=True)
class CheckpointStatus:
    """Newest checkpoint since the last start."""

    steps: int
    """Step of its boundary."""
    bytes: int
    """Size including the replay."""
    seconds: float
    """Time to write it, in parallel to training."""


@dataclass(frozen=True)
class Status:
    """A run at one moment. Values not known yet are None."""

    game: str
    protocol: str
    schedule: Schedule
    run_dir: Path
    total_steps: int
    rounds: int
    workers: int = 0
    """0: a learner learns."""
    preset: str = ""
    """Nearest preset."""
    changes: tuple[str, ...] = ()
    """Options of learning that differ from it."""
    suite_place: str = ""
    """As `suite_place`."""
    stop_at: float | None = None
    """As --stop-at."""
    steps: int = 0
    """Ticks x envs of all ticks played, including the current round."""
    committed: int = 0
    """Rounds committed."""
    elapsed: float | None = None
    """Seconds of the run, as its records count them; None: it has not begun."""
    stops_at: int | None = None
    """Step at which a requested stop ends the run; None: none is requested."""
    stopping_for: float | None = None
    """Seconds since that request."""
    time_left: float | None = None
    """Seconds to the end at the current speed."""
    time_left_at_least: bool = False
    """True until the speed covers a whole round with learning."""
    steps_per_second: float | None = None
    updates: int = 0
    updates_per_second: float | None = None
    can_be_saved: bool = False
    """True once a stop can save a boundary, or a resumed run has a saved one."""
    learning: bool = False
    """True if updates have begun."""
    learning_begins: int | None = None
    """Step of the first update; None: the run has none."""
    epsilon: float | None = None
    """None: the method has none; displays omit it."""
    episodes: int = 0
    mean_return_100: float | None = None
    best_return: float | None = None
    running_return: float | None = None
    """Mean return so far of the episodes in play; None: an episode has ended, or no step is played."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """The method's metrics that screens show, by name, in the order of its declaration."""
    evaluation: EvaluationStatus | None = None
    checkpoint: CheckpointStatus | None = None
    roles: tuple[RoleStatus, ...] = ()
    usable_cores: int = 0
    """Cores that the run may use."""
    others: float | None = None
    """Cores among them that other programs used."""
    stolen: float | None = None
    """Cores among them that a hypervisor took."""
    bottleneck: Bottleneck | None = None
    warnings: tuple[str, ...] = ()

    @property
    def only_evaluates(self) -> bool:
        """True if training is over, and an evaluation beside it is not."""
        evaluating = any(role.name == "evaluator" and role.state == "working" for role in self.roles)
        return evaluating and self.committed >= self.rounds


def planned(config: Config, run_schedule: RunSchedule, run_dir: Path) -> Status:
    """Status of a run of which only the configuration is known."""
    preset, changes = nearest_preset(config)
    return Status(
        game=config.play.played,
        protocol=config.play.protocol,
        schedule=config.learn.schedule,
        run_dir=run_dir,
        total_steps=run_schedule.rounds * run_schedule.round_steps,
        rounds=run_schedule.rounds,
        workers=run_schedule.workers,
        preset=preset,
        changes=tuple(changes),
        suite_place=suite_place(run_dir),
        stop_at=config.run.stop_at,
        learning_begins=run_schedule.learning_begins if run_schedule.updates_before(run_schedule.rounds) else None,
    )
