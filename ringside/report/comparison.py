"""Runs beside one another: which of them are one configuration, which of their scores may be compared, and how.

Runs whose settings differ in nothing but game, seed and what cannot matter are one *arm*: its runs of one game are its
seeds there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.recording.scores import REFERENCE, human_normalised
from ringside.recording.totals import MEAN_OVER
from ringside.report.aggregate import STATISTICS, Estimate, estimate
from ringside.report.figures import setting
from ringside.report.records import Records, RecordsError, newest
from ringside.report.rules import EvaluationRules, of_final_evaluation, of_last_evaluation
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Evaluate

ASIDE = (
    (MAY_CHANGE_ON_RESUME - {"total_steps"})
    | (ARITHMETIC - {"precision"})
    | {"game", "env", "seed"}
    | set(vars(Evaluate()))
)
"""Settings in which the runs of one arm may differ."""
SAID = 4
"""Differences that an arm's meaning names."""


@dataclass(frozen=True)
class Measure:
    """The definition of a run's score."""

    name: str
    explanation: str
    of: Callable[[Records], float]
    """NaN where a run has none."""
    rules: Callable[[Records], EvaluationRules] | None
    """Rules of the evaluation of a run that has one; None: the score comes from no evaluation."""


MEASURES = (
    Measure(
        "final evaluation",
        "mean return of the final weights, in an evaluation of their own",
        lambda run: float(run.judged["final"]["mean"]) if "final" in run.judged else math.nan,
        of_final_evaluation,
    ),
    Measure(
        "last evaluation beside training",
        "mean return in the last evaluation beside training",
        lambda run: newest(run.evaluations["mean_return"]),
        of_last_evaluation,
    ),
    Measure(
        f"last {MEAN_OVER} training episodes",
        f"mean return of the last {MEAN_OVER} episodes of training, with its exploration: no evaluation, so it stands "
        "beside published evaluations only as a hint",
        lambda run: newest(run.rounds["mean_return_100"]),
        None,
    ),
)
"""From the best to the least; a report uses the first that all its runs have, so that all are judged alike."""


@dataclass(frozen=True)
class Arm:
    """One configuration, played with one or more games and seeds."""

    label: str
    """A letter, or `Ringside` where there is but one."""
    meaning: str
    """In what it differs from the other arms, first of all in the parts of its algorithm; as many as are soon said."""
    runs: tuple[Records, ...]

    def of(self, game: str) -> list[Records]:
        """Its runs of a game, by seed."""
        return sorted((run for run in self.runs if run.game == game), key=lambda run: run.seed)

    @property
    def games(self) -> list[str]:
        """In alphabetical order."""
        return sorted({run.game for run in self.runs})


@dataclass(frozen=True)
class Comparison:
    """All that a report compares."""

    protocol: str
    arms: tuple[Arm, ...]
    measure: Measure
    left_out: tuple[str, ...]
    """Sentences: which runs are not in it, and why."""

    @property
    def runs(self) -> list[Records]:
        """Runs of all arms."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def judged_by(self) -> str | None:
        """The rules of the evaluations behind the scores, in words; None: the scores are of no evaluation."""
        rules = self.measure.rules
        return None if rules is None else "; ".join(dict.fromkeys(rules(run).in_words(run) for run in self.runs))

    @property
    def games(self) -> list[str]:
        """Games of all arms, in alphabetical order."""
        return sorted({run.game for run in self.runs})

    def scores(self, arm: Arm, game: str) -> NDArray[np.float64]:
        """Raw scores of an arm's seeds of a game that have one."""
        found = np.array([self.measure.of(run) for run in arm.of(game)])
        return found[np.isfinite(found)]

    @property
    def aggregated_games(self) -> list[str]:
        """The games with reference scores and with scores in every arm: arms are compared over the same games only."""
        return [
            game for game in self.games if game in REFERENCE and all(len(self.scores(arm, game)) for arm in self.arms)
        ]

    def normalized(self, arm: Arm, game: str) -> NDArray[np.float64]:
        """Human-normalized scores of an arm's seeds of a game of `REFERENCE`."""
        return np.array([human_normalised(game, float(score)) for score in self.scores(arm, game)], np.float64)

    def aggregates(self, arm: Arm) -> dict[str, Estimate]:
        """The statistics of Agarwal et al. 2021 over the aggregated games; empty where there are none."""
        scores = {game: self.normalized(arm, game) for game in self.aggregated_games}
        return {name: estimate(scores, statistic) for name, statistic in STATISTICS.items()} if scores else {}


def compare(runs: Iterable[Records], left_out: Sequence[str] = ()) -> Comparison:
    """Sort runs into arms.

    Raises:
        RecordsError: there are none, or they were played under different protocols.
    """
    found = list(runs)
    if not found:
        raise RecordsError(" ".join(left_out) or "There is no run to report.")
    protocols = {run.protocol: run for run in found}
    if len(protocols) > 1:
        named = " and ".join(f"{name} ({run.path})" for name, run in sorted(protocols.items()))
        raise RecordsError(
            f"The runs were played under different protocols, {named}, and scores under different rules cannot be "
            "compared: make a report for each."
        )
    refused = list(left_out)
    groups: dict[str, dict[tuple[str, int, str], Records]] = {}
    for run in sorted(found, key=lambda run: (run.steps, run.summary is not None), reverse=True):
        group = groups.setdefault(_identity(run), {})
        twin = group.setdefault((run.game, run.seed, _history(run)), run)
        if twin is not run:
            refused.append(
                f"{run.path} is left out: it is the same experiment with the same seed as {twin.path}, and tells "
                "nothing new."
            )
    order = {id(run): i for i, run in enumerate(found)}
    arms = [tuple(group.values()) for group in groups.values()]
    arms.sort(key=lambda arm: min(order[id(run)] for run in arm))
    kept = [run for arm in arms for run in arm]
    measure = next((each for each in MEASURES if all(math.isfinite(each.of(run)) for run in kept)), MEASURES[-1])
    names = _names([arm[0] for arm in arms])
    return Comparison(
        protocol=kept[0].protocol,
        arms=tuple(Arm(*name, arm) for name, arm in zip(names, arms, strict=True)),
        measure=measure,
        left_out=tuple(refused),
    )


def _history(run: Records) -> str:
    """Settings that two runs of one experiment and seed share if their results must be equal.

    They are the settings of arithmetic. With the schedule `free`, or kernels that are not deterministic, no two runs
    share them.
    """
    free = run.settings.get("schedule") == "free" or run.settings.get("deterministic") == "off"
    if free or not (run.summary or {}).get("exact", True):
        return str(run.path)
    return json.dumps({name: value for name, value in run.settings.items() if name in ARITHMETIC}, sort_keys=True)


def differences(runs: Sequence[Records], aside: Iterable[str] = ()) -> dict[str, list[Any]]:
    """The settings in which runs differ, but those `aside`: their values run by run, None where a run knows none."""
    settings = [run.settings for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    rows = {name: [each.get(name) for each in settings] for name in names if name not in set(aside)}
    return {name: values for name, values in rows.items() if len({json.dumps(value) for value in values}) > 1}


def _identity(run: Records) -> str:
    """Settings that all runs of one arm share, and no run of another arm."""
    return json.dumps({name: value for name, value in run.settings.items() if name not in ASIDE}, sort_keys=True)


def _names(firsts: Sequence[Records]) -> list[tuple[str, str]]:
    """A label and a meaning for each arm."""
    if len(firsts) == 1:
        return [("Ringside", "")]
    rows = differences(firsts, ASIDE)
    telling = sorted(rows, key=lambda name: name not in firsts[0].config.get("algorithm", {}))[:SAID]
    more = f" and {len(rows) - SAID} more" if len(rows) > SAID else ""
    return [
        (_letter(i), ", ".join(f"{name} {setting(rows[name][i])}" for name in telling) + more)
        for i in range(len(firsts))
    ]


def _letter(i: int) -> str:
    """A to Z, then A1 to Z1, ..."""
    return chr(ord("A") + i % 26) + (str(i // 26) if i >= 26 else "")
