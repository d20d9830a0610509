"""Comparison of runs: their grouping by configuration, and the scores that may be compared.

Runs whose settings differ only in game, seed and settings without influence form one *arm*. The arm's runs of one game
are its seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.records.scores import REFERENCE, human_normalized
from ringside.records.totals import MEAN_OVER
from ringside.report.aggregate import STATISTICS, Estimate, estimate
from ringside.report.records import Records, RecordsError, newest, number
from shared.config.digest import ARITHMETIC, MAY_CHANGE_ON_RESUME
from shared.config.presets import PRESETS
from shared.config.protocols import acting_in_words
from shared.config.sections import FRAME_SKIP, INEXACT_SCHEDULES, Evaluate
from shared.text import count, flags_of

IGNORED_SETTINGS = (
    (MAY_CHANGE_ON_RESUME - {"total_steps"})
    | (ARITHMETIC - {"precision"})
    | {"game", "env", "seed"}
    | set(vars(Evaluate()))
)
"""Settings in which the runs of one arm may differ."""
NAMED_DIFFERENCES = 4
"""Most settings that an arm's label names."""


@dataclass(frozen=True)
class EvaluationRules:
    """Rules of the episodes behind a score."""

    episodes: float
    epsilon: float
    max_frames: float
    """Emulator frames after which an episode ended; for an environment that is no game, four per step."""
    actions: str
    """sample or greedy."""
    steps: float
    """Steps that the episodes had to fill; NaN: their number was given."""

    @classmethod
    def read(cls, found: Mapping[str, Any], episodes: float) -> EvaluationRules:
        """Rules in a file of an evaluation, or in the settings of a run."""
        epsilon, frames, steps = (number(found.get(f"eval_{name}")) for name in ("epsilon", "max_frames", "steps"))
        return cls(episodes, epsilon, frames, str(found.get("eval_actions")), steps)

    def in_words(self, run: Records) -> str:
        """ "30 episodes of at most 18,000 frames with greedy actions and epsilon 0.05"."""
        episodes = "episodes" if math.isnan(self.episodes) else count(int(self.episodes), "episode")
        if not math.isnan(self.steps):
            episodes += f", as many as fill {self.steps:,.0f} steps,"
        most = f"{self.max_frames:,.0f} frames" if run.env is None else f"{self.max_frames / FRAME_SKIP:,.0f} steps"
        return f"{episodes} of at most {most} with {acting_in_words(self.actions, self.epsilon)}"


@dataclass(frozen=True)
class Measure:
    """Definition of a run's score."""

    name: str
    explanation: str
    of: Callable[[Records], float]
    """Score of a run; NaN if it has none."""
    rules: Callable[[Records], EvaluationRules] | None
    """Rules of the run's evaluation; None: the score comes from no evaluation."""


MEASURES = (
    Measure(
        "final evaluation",
        "mean return of the final weights, in an evaluation of their own",
        lambda run: float(run.by_protocol["final"]["mean"]) if "final" in run.by_protocol else math.nan,
        lambda run: EvaluationRules.read(run.by_protocol["final"], run.by_protocol["final"]["episodes"]),
    ),
    Measure(
        "last evaluation beside training",
        "mean return in the last evaluation beside training",
        lambda run: newest(run.evaluations["mean_return"]),
        lambda run: EvaluationRules.read(run.settings, newest(run.evaluations["episodes"])),
    ),
    Measure(
        f"last {MEAN_OVER} training episodes",
        f"mean return of the last {MEAN_OVER} training episodes, with exploration: no evaluation, so a comparison with "
        "published evaluations is only a hint",
        lambda run: newest(run.rounds["mean_return_100"]),
        None,
    ),
)
"""In order of preference; a report uses the first that all its runs have."""


@dataclass(frozen=True)
class Arm:
    """One configuration, with runs of one or more games and seeds."""

    label: str
    """The preset, and what of it was changed in this arm and not in all: at most `NAMED_DIFFERENCES`, those of the
    algorithm first."""
    changes: str
    """The other options that differ from the preset, in learning or from another arm."""
    runs: tuple[Records, ...]

    def of(self, game: str) -> list[Records]:
        """Runs of a game, by seed."""
        return sorted((run for run in self.runs if run.game == game), key=lambda run: run.seed)

    @property
    def games(self) -> list[str]:
        """Games in alphabetical order."""
        return sorted({run.game for run in self.runs})


@dataclass(frozen=True)
class Comparison:
    """Contents of a report."""

    protocol: str
    arms: tuple[Arm, ...]
    measure: Measure
    left_out: tuple[str, ...]
    """Sentences about omitted runs, with reasons."""

    @cached_property
    def runs(self) -> list[Records]:
        """Runs of all arms."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def evaluation_rules(self) -> str | None:
        """Rules of the evaluations behind the scores, as text; None: the scores come from no evaluation."""
        rules = self.measure.rules
        return None if rules is None else "; ".join(dict.fromkeys(rules(run).in_words(run) for run in self.runs))

    @cached_property
    def games(self) -> list[str]:
        """Games of all arms, in alphabetical order."""
        return sorted({run.game for run in self.runs})

    def scores(self, arm: Arm, game: str) -> NDArray[np.float64]:
        """Raw scores of an arm on a game, for the seeds that have one."""
        found = np.array([self.measure.of(run) for run in arm.of(game)])
        return found[np.isfinite(found)]

    @cached_property
    def aggregated_games(self) -> list[str]:
        """Games with reference scores and with scores in every arm: aggregates of arms cover the same games."""
        return [
            game for game in self.games if game in REFERENCE and all(len(self.scores(arm, game)) for arm in self.arms)
        ]

    def aggregates(self, arm: Arm) -> dict[str, Estimate]:
        """Statistics of Agarwal et al. 2021 over the aggregated games; empty without such games."""
        scores = {
            game: np.array([human_normalized(game, score) for score in self.scores(arm, game).tolist()], np.float64)
            for game in self.aggregated_games
        }
        return {name: estimate(scores, statistic) for name, statistic in STATISTICS.items()} if scores else {}


def compare(runs: Sequence[Records], left_out: Sequence[str] = ()) -> Comparison:
    """Group runs into arms.

    Raises:
        RecordsError: there are none, or their protocols differ.
    """
    if not runs:
        raise RecordsError(" ".join(left_out))
    protocols = {run.protocol: run for run in runs}
    if len(protocols) > 1:
        named = " and ".join(f"{name} ({run.path})" for name, run in sorted(protocols.items()))
        raise RecordsError(
            f"The runs have different protocols, {named}, and scores under different rules cannot be compared: make a "
            "report for each."
        )
    refused = list(left_out)
    groups: dict[str, list[Records]] = {_identity(run): [] for run in runs}
    kept: dict[tuple[str, ...], Records] = {}
    for run in sorted(runs, key=lambda run: (run.steps, run.summary is not None), reverse=True):
        twin = kept.setdefault((_identity(run), run.game, str(run.seed), _history(run)), run)
        if twin is run:
            groups[_identity(run)].append(run)
        else:
            refused.append(
                f"{run.path} is left out: it repeats the experiment and seed of {twin.path}, and adds no information."
            )
    names = _names([group[0] for group in groups.values()])
    arms = tuple(Arm(*name, tuple(group)) for name, group in zip(names, groups.values(), strict=True))
    known = (each for each in MEASURES if all(math.isfinite(each.of(run)) for run in kept.values()))
    return Comparison(runs[0].protocol, arms, next(known, MEASURES[-1]), tuple(refused))


def _history(run: Records) -> str:
    """Key that two runs of one experiment and seed share if one repeats the other.

    With an inexact schedule, or nondeterministic kernels, no two runs share it; else runs of equal arithmetic do.
    """
    inexact = run.settings.get("schedule") in INEXACT_SCHEDULES or run.settings.get("deterministic") == "off"
    if inexact or not (run.summary or {}).get("exact", True):
        return str(run.path)
    return json.dumps({name: value for name, value in run.settings.items() if name in ARITHMETIC}, sort_keys=True)


def differences(runs: Sequence[Records], ignored: Iterable[str] = ()) -> dict[str, list[Any]]:
    """Settings in which runs differ, except `ignored`: values by run, None if a run lacks the setting."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in set(ignored))
    rows = {name: [run.settings.get(name) for run in runs] for name in names}
    return {name: values for name, values in rows.items() if len({json.dumps(value) for value in values}) > 1}


def _identity(run: Records) -> str:
    """Key that the runs of one arm share."""
    return json.dumps(
        {name: value for name, value in run.settings.items() if name not in IGNORED_SETTINGS}, sort_keys=True
    )


def _names(firsts: Sequence[Records]) -> list[tuple[str, str]]:
    """Label and other changes of each arm; its first run stands for it."""
    rows = differences(firsts, IGNORED_SETTINGS)
    found: dict[str, str] = {}
    for run in firsts:
        preset, changes = run.preset
        usual = PRESETS[preset].to_flat() if preset in PRESETS else {}
        apart = {name: value for name, value in run.settings.items() if name in rows and value != usual.get(name)}
        told = sorted(apart, key=lambda name: name not in run.config.get("algorithm", {}))[:NAMED_DIFFERENCES]
        more = f" and {len(apart) - len(told)} more" if len(apart) > len(told) else ""
        label = " ".join([preset, *(_option(name, _brief(apart[name])) for name in told)]) + more
        options = dict.fromkeys([*(_option(name, value) for name, value in apart.items()), *changes])
        rest = options.keys() - {_option(name, apart[name]) for name in told}
        twins = sum(label == other.partition(" (")[0] for other in found)
        found[f"{label} ({twins + 1})" if twins else label] = " ".join(each for each in options if each in rest)
    return list(found.items())


def _option(name: str, value: object) -> str:
    """A setting as typed on the command line."""
    return " ".join(flags_of({name: value}))


def _brief(value: object) -> object:
    """A setting with few digits: a search for settings tries numbers with many."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
