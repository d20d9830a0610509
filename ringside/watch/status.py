"""Status of a run at one moment, for displays.

It is shown as formatted numbers, as the line of the plain display, and as the sentences at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringside.records.bottleneck import Bottleneck, RoleStatus
from ringside.records.metric_names import metric_of
from ringside.records.metrics import EvaluationStatus, mean_name
from shared.config.presets import nearest_preset
from shared.config.run_schedule import RunSchedule
from shared.config.sections import Schedule
from shared.config.settings import Config
from shared.text import count, readable, short

UNKNOWN = "–"


def clock(seconds: float | None) -> str:
    """A span of time: 0:00:07, 12:34:56, 3 d 04:05."""
    if seconds is None:
        return UNKNOWN
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02}:{minute:02}" if days else f"{hour}:{minute:02}:{second:02}"


def number(value: float | None, digits: int = 1) -> str:
    """A number with separators and a fixed count of decimals: 1,234,567.5."""
    return UNKNOWN if value is None else f"{round(value, digits) + 0.0:,.{digits}f}"  # no -0.0


def kind(status: Status) -> str:
    """Preset, protocol and schedule of a run: ppo-quick, protocol nature, turns."""
    schedule = "turns" if status.schedule == "alternate" else status.schedule
    workers = count(status.workers, "worker") if status.workers else ""
    words = (status.preset, f"protocol {status.protocol}", schedule, workers)
    return ", ".join(filter(None, words))


def left(status: Status) -> str:
    """Time left and the bound that it is, or what is waited for after the last round."""
    if status.only_evaluates:
        return "the last evaluation"
    if status.time_left is None:
        return UNKNOWN
    if status.stop_at is None:
        bound = "at least " if status.time_left_at_least else ""
    else:  # the run may end before, and it may become slower
        bound = "about " if status.time_left_at_least else "at the latest "
    return f"{bound}{clock(status.time_left)}"


def figures(status: Status) -> list[tuple[str, str]]:
    """Labels and values of a run's figures, in the order of every display."""
    learning = f"{number(status.updates_per_second, 0)} updates/s"
    if not status.updates and status.learning_begins is not None:
        learning = f"from step {number(status.learning_begins, 0)} on"
    evaluated = saved = UNKNOWN
    if (found := status.evaluation) is not None:
        evaluated = f"{number(found.mean_return)} at {short(found.steps)} (best {number(found.best_mean)})"
    if (written := status.checkpoint) is not None:
        saved = f"at {short(written.steps)} ({written.bytes / 1e6:,.1f} MB in {written.seconds:.1f} s)"
    return [
        ("playing", f"{number(status.steps_per_second, 0)} steps/s"),
        ("return", _returned(status)),
        ("learning", learning),
        ("episodes", f"{number(status.episodes, 0)} (best {number(status.best_return, 1)})"),
        *((metric_of(name).label, _with_unit(name, value)) for name, value in status.metrics.items()),
        *([] if status.epsilon is None else [("epsilon", number(status.epsilon, 3))]),
        ("evaluated", evaluated),
        ("saved", saved),
        ("others", _cores_taken(status)),
    ]


def _with_unit(name: str, value: float | None) -> str:
    """A metric of the method in its unit."""
    return UNKNOWN if value is None else f"{readable(value)} {metric_of(name).unit}".rstrip()


def _returned(status: Status) -> str:
    """Mean return and its name, or the mean of the returns so far before the first episode has ended."""
    if status.running_return is not None:
        return f"{number(status.running_return)} so far, no end yet"
    if status.mean_return_100 is None:
        return UNKNOWN
    return f"{number(status.mean_return_100)} ({mean_name(status.episodes)})"


def _cores_taken(status: Status) -> str:
    """Cores that other programs and a hypervisor take: 0.9 of 2 cores; 0.9, 0.2 stolen, of 2."""
    if status.others is None:
        return UNKNOWN
    if status.stolen and status.stolen >= 0.05:
        return f"{status.others:.1f}, {status.stolen:.1f} stolen, of {status.usable_cores}"
    return f"{status.others:.1f} of {count(status.usable_cores, 'core')}"


def stopping_words(status: Status) -> str | None:
    """The step at which a requested stop ends the run, and for how long it waits; None: none is requested."""
    if status.stops_at is None or status.stopping_for is None:
        return None
    return f"stopping at step {number(status.stops_at, 0)}, {clock(status.stopping_for)} since the request"


def starting_sentence(status: Status) -> str | None:
    """Sentence about the processes for which a run waits at its start, when there are no figures yet."""
    limit = status.bottleneck
    if limit is None or limit.kind != "starting" or all(role.state != "starting" for role in status.roles):
        return None
    return limit.sentence


def line(status: Status) -> str:
    """The status in one line; the fields of one run have the same order every time."""
    limit = status.bottleneck
    if (sentence := starting_sentence(status)) is not None:
        return sentence
    parts = [clock(status.elapsed), f"{share(status):.1%}", f"{number(status.steps, 0)} steps"]
    parts += [f"{label} {value}" for label, value in figures(status)]
    if limit is not None and limit.share is not None:
        parts.append(f"limit {limit.kind} ({limit.share:.0%})")
    if nodes := [role.node for role in status.roles if role.node is not None]:
        parts.append(f"nodes {sum(bool(node.name) for node in nodes)} of {len(nodes)}")
    if restarts := sum(role.restarts for role in status.roles):
        parts.append(f"restarts {restarts}")
    parts.append(stopping_words(status) or f"left {left(status)}")
    if status.stop_at is not None:
        parts.append(f"--stop-at {status.stop_at:g}")
    return "  ".join(parts)


def ending(summary: Mapping[str, Any], run_dir: Path, evaluation: EvaluationStatus | None) -> list[str]:
    """Sentences about a run that has ended, from its `summary.json`.

    Args:
        evaluation: the newest one beside training; None: there is none.
    """
    mean = summary["mean_return_100"]
    said = [
        f"{'Finished' if summary['finished'] else 'Stopped'} after {summary['steps']:,} steps and "
        f"{summary['updates']:,} updates in {clock(summary['seconds'])}"
        + (f", mean return {mean:.2f} ({mean_name(summary['episodes'])})" if mean is not None else "")
        + f". Everything is in {run_dir}."
    ]
    if evaluation is not None:
        said.append(
            f"The evaluation at step {evaluation.steps:,} returned {evaluation.mean_return:,.2f} in the mean of "
            f"{count(evaluation.episodes, 'episode')}; the best one of the run {evaluation.best_mean:,.2f}."
        )
    return said


def share(status: Status) -> float:
    """Finished share of the run, in [0, 1]."""
    return min(1.0, status.steps / status.total_steps) if status.total_steps else 0.0


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
        stop_at=config.run.stop_at,
        learning_begins=run_schedule.learning_begins if run_schedule.updates_before(run_schedule.rounds) else None,
    )
