"""Comparison of runs: their grouping by configuration, and the scores that may be compared.

Runs whose settings differ only in game, seed and settings without influence form one *arm*. The arm's runs of one game
are its seeds.

Aggregates of scores have intervals: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (arXiv:2108.13264). Their scores are human-normalized, float64[runs], one array for each game; games may have
different numbers of runs. The bootstrap is *stratified*: each replicate draws, with replacement, as many runs of every
game as the game has.

Published scores and learning curves, with their sources and rules, come from `published.json` and
`published_curves.json`, which also say how their numbers were copied and checked. A score or a curve belongs to its
rules. Agents with another chance of sticky actions than a run are never compared with it, and those of Atari 100k only
with its runs; pictures of the zoo name the chance beside a curve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.records.metrics import MEAN_OVER
from ringside.records.scores import REFERENCE, human_normalized
from ringside.report.records import Records, newest, number
from shared.config.presets import PRESETS
from shared.config.protocols import PROTOCOLS, acting_in_words
from shared.config.sections import FRAME_SKIP, INEXACT_SCHEDULES, Evaluate
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME
from shared.errors import ConfigError
from shared.files.strict_json import read_json
from shared.text import count, flags_of

FRAMES = 200_000_000
"""Training frames of the agents with scores, but for those of the protocol `ATARI_100K`."""
ATARI_100K, GAMES_OF_ATARI_100K = "atari100k", 26


@dataclass(frozen=True)
class Published:
    """Scores of one agent of the literature."""

    name: str
    sticky: float
    """Probability of a sticky action in its evaluation."""
    source: str
    protocol: str
    """Other rules of its evaluation, as text."""
    scores: Mapping[str, float]
    """Mean return by game; games without a published score are missing."""
    frames: int
    """Frames of its training."""
    aggregates: Mapping[str, float]
    """Statistics that the source prints, over all games of its benchmark."""

    def normalized(self, games: Sequence[str]) -> list[NDArray[np.float64]]:
        """Human-normalized scores, one for each game; empty if one has no published score."""
        found = [human_normalized(game, self.scores[game]) for game in games if game in self.scores]
        return [np.array([score], np.float64) for score in found] if len(found) == len(games) else []


@dataclass(frozen=True)
class PublishedCurve:
    """Learning curve of one agent of the literature on one game."""

    name: str
    """Publisher."""
    agent: str
    game: str
    sticky: float
    """Probability of a sticky action in training and evaluation."""
    runs: int | None
    """Number of runs of which it is the mean; None: the source does not say."""
    source: str
    """Source of the data."""
    protocol: str
    """Rules, including sticky actions and the episodes of a mean return, as text."""
    steps: NDArray[np.float64]
    """Position of each return, [points], in agent steps of `FRAME_SKIP` frames, ascending: the middle of the steps
    whose training episodes it averages, or the step of the evaluation."""
    returns: NDArray[np.float64]
    """Mean raw returns, [points]."""

    @property
    def label(self) -> str:
        """Label in a legend."""
        rules = f"sticky {self.sticky:g}" if self.sticky else "not sticky"
        return f"{self.agent} ({self.name}), {rules}" + (f", {self.runs} runs" if self.runs else "")


@cache
def published() -> tuple[tuple[Published, ...], str]:
    """All agents with scores, and a text on how their scores were checked."""
    found = read_json(Path(__file__).parent / "published.json")
    return tuple(Published(**agent) for agent in found["agents"]), found["checked"]


def comparable_agents(protocol: str) -> tuple[Published, ...]:
    """Agents evaluated with the same probability of sticky actions as a protocol, after as many frames."""
    same = (agent for agent in published()[0] if (agent.frames < FRAMES) == (protocol == ATARI_100K))
    return tuple(agent for agent in same if _has_sticky(protocol, agent.sticky))


@cache
def published_curves() -> tuple[tuple[PublishedCurve, ...], str]:
    """All curves in the order of the file, and a text on how they were copied and checked."""
    found = read_json(Path(__file__).parent / "published_curves.json")
    curves = []
    for source in found["sources"]:
        told = {name: source[name] for name in ("name", "sticky", "source", "protocol")}
        for curve in source["curves"]:
            returns = np.array(curve["returns"], np.float64)
            frames = source["first_frame"] + source["frames_between"] * np.arange(len(returns), dtype=np.float64)
            curves.append(PublishedCurve(**told, **curve | {"steps": frames / FRAME_SKIP, "returns": returns}))
    return tuple(curves), found["checked"]


def comparable_curves(protocol: str, game: str) -> tuple[PublishedCurve, ...]:
    """Curves of a game, trained with the same probability of sticky actions as a protocol."""
    return tuple(each for each in published_curves()[0] if each.game == game and _has_sticky(protocol, each.sticky))


def _has_sticky(protocol: str, sticky: float) -> bool:
    return protocol in PROTOCOLS and PROTOCOLS[protocol].sticky == sticky


Drawn = Sequence[NDArray[np.float64]]
"""Scores of each game, float64[replicates, runs]."""
Statistic = Callable[[Drawn], NDArray[np.float64]]
"""Function of scores that returns one figure, or a curve, per replicate."""

REPLICATES, CURVE_REPLICATES = 10_000, 2_000
CONFIDENCE = 0.95
FEWEST_RUNS = 3
"""Runs of each game from which a report has intervals: those from fewer are too narrow (figure 6)."""
THRESHOLDS = np.linspace(0.0, 2.0, 101)
"""Scores over which performance profiles are drawn."""


def iqm(drawn: Drawn) -> NDArray[np.float64]:
    """Interquartile mean: mean of all runs without the lowest and the highest quarter (rounded down)."""
    runs = np.sort(np.concatenate(drawn, axis=1), axis=1)
    cut = runs.shape[1] // 4
    return np.asarray(runs[:, cut : runs.shape[1] - cut].mean(axis=1))


def median(drawn: Drawn) -> NDArray[np.float64]:
    """Median over games of the mean over runs."""
    return np.asarray(np.median([runs.mean(axis=1) for runs in drawn], axis=0))


def mean(drawn: Drawn) -> NDArray[np.float64]:
    """Mean over games of the mean over runs."""
    return np.asarray(np.mean([runs.mean(axis=1) for runs in drawn], axis=0))


def optimality_gap(drawn: Drawn) -> NDArray[np.float64]:
    """Mean shortfall of runs from 1, the human; less is better."""
    return np.asarray(np.maximum(1.0 - np.concatenate(drawn, axis=1), 0.0).mean(axis=1))


def profile(drawn: Drawn) -> NDArray[np.float64]:
    """Performance profile (equation 1): share of all runs above each of `THRESHOLDS`, [replicates, thresholds]."""
    runs = np.concatenate(drawn, axis=1)
    return np.stack([(runs > threshold).mean(axis=1) for threshold in THRESHOLDS], axis=1)


def improvement(drawn: Drawn) -> NDArray[np.float64]:
    """Probability of improvement (equation A.2) of the runs in the first half of `drawn` over those of the same games
    in the second: P(X > Y) + P(X = Y) / 2 for a run of each, mean over games."""
    pairs = zip(drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :], strict=True)
    return np.mean([np.sign(x[:, :, None] - y[:, None]).mean(axis=(1, 2)) for x, y in pairs], axis=0) / 2 + 0.5


STATISTICS: dict[str, Statistic] = {"IQM": iqm, "Median": median, "Mean": mean, "Optimality gap": optimality_gap}


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval."""

    value: float
    low: float | None = None
    """None, like `high`, if games have too few runs to know their spread."""
    high: float | None = None


def bootstrap(games: Sequence[NDArray[np.float64]], statistic: Statistic, replicates: int) -> NDArray[np.float64]:
    """Statistic of the scores of games, and both ends of its percentile interval by the stratified bootstrap, [3, ...].

    The same scores always give the same interval.
    """
    generator, tail = np.random.default_rng(0), (1 - CONFIDENCE) / 2
    drawn = [runs[generator.integers(len(runs), size=(replicates, len(runs)))] for runs in games]
    value = statistic([runs[None, :] for runs in games])[0]
    return np.stack([value, *np.quantile(statistic(drawn), (tail, 1 - tail), axis=0)])


IGNORED_SETTINGS = {"game", "env", "seed", *MAY_CHANGE_ON_RESUME, *ARITHMETIC, *vars(Evaluate())}
IGNORED_SETTINGS -= {"total_steps", "precision", "init_from"}
"""Settings in which the runs of one arm may differ."""


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
        "mean return of the final weights, evaluated after training",
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
    """The preset, and what of it was changed in this arm and not in all."""
    changes: str
    """The other options that differ from the preset."""
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
        known = (game for game in self.games if game in REFERENCE)
        return [game for game in known if all(len(self.scores(arm, game)) for arm in self.arms)]

    @cached_property
    def runs_a_game(self) -> int:
        """Fewest runs with a score of an arm in an aggregated game; 0: there is no such game."""
        return min((len(runs) for arm in self.arms for runs in self.normalized(arm)), default=0)

    def normalized(self, arm: Arm) -> list[NDArray[np.float64]]:
        """Human-normalized scores of an arm, for each aggregated game."""
        scores = ([human_normalized(game, each) for each in self.scores(arm, game)] for game in self.aggregated_games)
        return [np.array(runs, np.float64) for runs in scores]

    def aggregates(self, arm: Arm) -> dict[str, Estimate]:
        """Statistics of Agarwal et al. 2021 over the aggregated games; empty without such games."""
        games, enough = self.normalized(arm), self.runs_a_game >= FEWEST_RUNS
        replicates = REPLICATES if enough else 1  # whose interval is dropped
        found = {name: bootstrap(games, each, replicates) for name, each in STATISTICS.items()} if games else {}
        return {name: Estimate(*each.tolist()[: 3 if enough else 1]) for name, each in found.items()}

    def improvements(self, arm: Arm) -> dict[str, Estimate]:
        """Probability of improvement of an arm over every other and over published agents; empty with few runs.

        Of a published agent the mean return of a game counts as one run.
        """
        others = {other.label: self.normalized(other) for other in self.arms if other is not arm}
        others |= {agent.name: agent.normalized(self.aggregated_games) for agent in comparable_agents(self.protocol)}
        known = [(name, theirs) for name, theirs in others.items() if theirs and self.runs_a_game >= FEWEST_RUNS]
        games = {name: [*self.normalized(arm), *theirs] for name, theirs in known}
        return {name: Estimate(*bootstrap(games[name], improvement, CURVE_REPLICATES).tolist()) for name in games}

    def published_aggregates(self, agent: Published) -> dict[str, float]:
        """Statistics of a published agent: those of games that follow from its scores, and those that are printed."""
        scores, is_whole = agent.normalized(self.aggregated_games), len(self.aggregated_games) == GAMES_OF_ATARI_100K
        follow = {"Median": median, "Mean": mean} if scores else {}
        found = {name: float(statistic([runs[None] for runs in scores])[0]) for name, statistic in follow.items()}
        return (dict(agent.aggregates) if is_whole else {}) | found


def compare(runs: Sequence[Records], left_out: Sequence[str] = ()) -> Comparison:
    """Group runs into arms.

    Raises:
        ConfigError: there are none, or their protocols differ.
    """
    if not runs:
        raise ConfigError(" ".join(left_out))
    protocols = {run.protocol: run for run in runs}
    if len(protocols) > 1:
        named = " and ".join(f"{name} ({run.path})" for name, run in sorted(protocols.items()))
        raise ConfigError(
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
            refused.append(f"{run.path} is left out: it repeats the experiment and seed of {twin.path}.")
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
    kept = {name: value for name, value in run.settings.items() if name not in IGNORED_SETTINGS}
    return json.dumps(kept, sort_keys=True)


def _names(firsts: Sequence[Records]) -> list[tuple[str, str]]:
    """Label and other changes of each arm; its first run stands for it."""
    rows = differences(firsts, IGNORED_SETTINGS)
    found: dict[str, str] = {}
    for run in firsts:
        preset, changes = run.preset
        usual = PRESETS[preset].to_flat() if preset in PRESETS else {}
        apart = {name: value for name, value in run.settings.items() if name in rows and value != usual.get(name)}
        # Few digits: a search for settings tries numbers with many.
        brief = {name: float(f"{each:.4g}") if isinstance(each, float) else each for name, each in apart.items()}
        label = " ".join([preset, *flags_of(brief)])
        twins = sum(label == other.partition(" (")[0] for other in found)
        named = {" ".join(flags_of({name: value})) for name, value in apart.items()}
        found[f"{label} ({twins + 1})" if twins else label] = " ".join(each for each in changes if each not in named)
    return list(found.items())
