"""Notes above a report: a sentence for everything that is missing, unequal or unusual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ringside.records.totals import MEAN_OVER
from ringside.report.comparison import IGNORED_SETTINGS, Comparison, EvaluationRules, differences
from ringside.report.records import Records, number, part
from shared.config.digest import ARITHMETIC
from shared.config.protocols import LONGEST_EPISODE_STEPS, PROTOCOLS
from shared.config.sections import FRAME_SKIP
from shared.frame_shape import FRAME_SIDE, STACK
from shared.machine.contention import WORTH_SAYING
from shared.text import flag_of, flags_of, shown

_NAMED = 4
"""Runs that a sentence names."""
_FRAMES = {"frame_size": FRAME_SIDE, "frame_color": "gray", "frame_stack": STACK}


def training_rules(runs: Iterable[Records]) -> list[tuple[str, str]]:
    """Names and texts of the training rules of the runs, without duplicates."""
    return list(dict.fromkeys((run.env or f"Protocol {run.protocol}", _rules_of_training(run)) for run in runs))


def _rules_of_training(run: Records) -> str:
    frames = {name: run.settings.get(name, usual) for name, usual in _FRAMES.items()}
    observations = f", with {' '.join(flags_of(frames))}" if frames != _FRAMES else ""
    if run.env is not None:
        return (
            "no game of ale-py: an action is one step, the environment defines starts and ends, and episodes end after "
            f"{LONGEST_EPISODE_STEPS:,} steps at the latest; no Atari protocol applies{observations}"
        )
    rules = PROTOCOLS.get(run.protocol)
    if rules is None:
        return "not known to this version"
    sticky = f"sticky actions {rules.sticky:g}" if rules.sticky else "no sticky actions"
    starts = f"1 to {rules.noop_max} no-ops at the start" if rules.noop_max else "no no-ops"
    fire = ", then FIRE" if rules.fire_on_reset else ""
    longest = f"training episodes of at most {rules.longest_episode_frames:,} frames"
    return (
        f"{sticky}, {starts}{fire}, {rules.action_set} action set, {FRAME_SKIP} frames a step, {longest}{observations}"
    )


def notes(comparison: Comparison, published_frames: int | None) -> list[str]:
    """Sentences, mostly about runs that are incomplete or differ in ways that a reader should know.

    Args:
        published_frames: training frames of the published agents in the report; None: there are none.
    """
    return [
        *comparison.left_out,
        *_lengths(comparison.runs, published_frames),
        *_seeds(comparison),
        *_episodes_behind(comparison),
        *_arithmetic(comparison),
    ]


def _named(runs: Sequence[Records]) -> str:
    """The paths of some runs."""
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return ", ".join(str(run.path) for run in runs[:_NAMED]) + more


def _lengths(runs: Sequence[Records], published_frames: int | None) -> Iterator[str]:
    if open_ends := [run for run in runs if run.state == "no end"]:
        yield f"Still running, or crashed, and reported up to their last round: {_named(open_ends)}."
    if stopped := [run for run in runs if run.state == "stopped"]:
        yield f"Stopped early, so the figures are those up to that point: {_named(stopped)}."
    steps = [run.steps for run in runs]
    if min(steps) < max(steps):
        yield f"The runs have unequal lengths, {min(steps):,} to {max(steps):,} steps."
    played = max((run.steps * FRAME_SKIP for run in runs if run.env is None), default=0)
    if published_frames is not None and played < 0.9 * published_frames:
        yield f"These runs saw at most {played:,} frames, the published agents {published_frames:,}."


def _seeds(comparison: Comparison) -> Iterator[str]:
    fewest = min(len(arm.of(game)) for arm in comparison.arms for game in arm.games)
    if fewest == 1:
        yield "Some game has one seed only, which has no interval."
    elif fewest == 2:
        yield "Some game has two seeds only: intervals from fewer than three are too narrow to be reliable."
    missing = [game for game in comparison.games if game not in comparison.aggregated_games]
    if missing and len(comparison.games) > 1:
        yield (
            "Not in the aggregates, because a reference score or a configuration's score is missing: "
            f"{', '.join(missing)}."
        )


def _episodes_behind(comparison: Comparison) -> Iterator[str]:
    """Unusual properties of the episodes behind the scores."""
    if own := dict.fromkeys(run.env for run in comparison.runs if run.env is not None):
        names = ", ".join(map(str, own))
        yield f"Not a game of ale-py: {names}. The environment defines steps, starts and ends, not the protocol."
    if comparison.measure.rules is None:
        if short := [run for run in comparison.runs if len(run.episodes["steps"]) < MEAN_OVER]:
            fewest = min(len(run.episodes["steps"]) for run in short)
            yield (
                f"Fewer than {MEAN_OVER} training episodes ended in {_named(short)}: the mean is of those that did, "
                f"{fewest:,} in the shortest run."
            )
        return
    rules = [(run, comparison.measure.rules(run)) for run in comparison.runs]
    words = dict.fromkeys(found.in_words(run) for run, found in rules)
    if len(words) > 1:
        yield f"The runs were evaluated under different rules: {'; '.join(words)}."
    yield from _against_protocol(comparison.protocol, rules)
    if comparison.measure.name == "final evaluation":
        yield from _final_evaluations(comparison.runs)


def _against_protocol(protocol: str, rules: Sequence[tuple[Records, EvaluationRules]]) -> Iterator[str]:
    usual = PROTOCOLS.get(protocol)
    if usual is None:
        return
    wanted = str(usual.eval_episodes)
    if usual.eval_steps is not None:
        wanted += f", and of finished weights as many as fill {usual.eval_steps:,} steps"
    if few := [each.episodes for _, each in rules if math.isnan(each.steps) and each.episodes < usual.eval_episodes]:
        noun = "episode" if max(few) == 1 else "episodes"
        yield f"Scores are means of {_range(few)} {noun} only, where the protocol has {wanted}."
    other = [found.epsilon for _, found in rules if found.actions != "sample" and found.epsilon != usual.eval_epsilon]
    if other:
        yield f"Evaluated with epsilon {_range(other)}; the protocol has {usual.eval_epsilon:g}."
    longest = [found.max_frames for run, found in rules if run.env is None]
    if cut := [frames for frames in longest if frames != usual.eval_max_frames]:
        yield (
            f"Episodes were evaluated up to {_range(cut)} frames; the protocol ends them after "
            f"{usual.eval_max_frames:,}."
        )


def _final_evaluations(runs: Sequence[Records]) -> Iterator[str]:
    """Evaluations of other weights than the last, or with different arithmetic."""
    found = [(run, run.by_protocol["final"]) for run in runs]
    versions = [(run, number(final.get("version")), number((run.summary or {}).get("rounds"))) for run, final in found]
    if old := [run for run, version, rounds in versions if 0 <= version < rounds]:
        yield f"The final evaluation is not of the last weights in {_named(old)}."
    computed = {(final.get("precision"), final.get("device")) for _, final in found}
    if len(computed) > 1:
        ways = sorted(f"{precision} on {device}" for precision, device in computed)
        yield f"Evaluations were computed differently: {', '.join(ways)}."


def _arithmetic(comparison: Comparison) -> Iterator[str]:
    """Runs that do not repeat bit for bit, were computed differently, or shared their cores with other programs."""
    if inexact := [run for run in comparison.runs if (run.summary or {}).get("exact") is False]:
        yield f"A repetition would not give the same bits: {_named(inexact)}."
    for arm in comparison.arms:
        rows = {name: values for name, values in differences(arm.runs).items() if name in ARITHMETIC}
        if rows:
            described = ", ".join(f"{flag_of(name)} {_distinct(values)}" for name, values in rows.items())
            yield f"Runs of {arm.label} were computed differently: {described}."
    between = differences([arm.runs[0] for arm in comparison.arms], IGNORED_SETTINGS)
    if set(between) == {"precision"}:
        yield f"The configurations differ in --precision alone: {_distinct(between['precision'])}."
    shared = {run: taken for run in comparison.runs if (taken := _shared_cores(run)) >= WORTH_SAYING}
    if shared:
        yield (
            f"Other programs, or other machines, used up to {max(shared.values()):.0%} of the cores of "
            f"{_named([*shared])}: their speeds are too low."
        )


def _distinct(values: Iterable[object]) -> str:
    return " and ".join(dict.fromkeys(map(shown, values)))


def _shared_cores(run: Records) -> float:
    """Share of the usable cores that other programs took; 0 if it is unknown."""
    limit = part(run.summary, "limit")
    taken = [number(limit.get(name)) for name in ("other_programs_cores", "stolen_cores")]
    usable = number(limit.get("usable_cores"))
    return sum(cores for cores in taken if math.isfinite(cores)) / usable if usable > 0 else 0.0


def _range(values: Sequence[float]) -> str:
    """One number, or the lowest and the highest."""
    found = [f"{value:,.0f}" if value >= 1 else f"{value:g}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(found))
