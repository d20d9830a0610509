"""The rules by which runs were played and judged, in words, as the runs recorded them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ringside.report.records import Records, newest, number
from shared.config.protocols import LONGEST_EPISODE_STEPS, PROTOCOLS
from shared.config.settings import FRAME_SKIP
from shared.text import count

UNRECORDED = "not recorded"


@dataclass(frozen=True)
class EvaluationRules:
    """Rules of the episodes behind a score. NaN: not recorded."""

    episodes: float
    epsilon: float
    max_frames: float
    """Emulator frames after which an episode was cut; of another environment than a game, four for each step."""
    steps: float = math.nan
    """Steps that the episodes were to fill; NaN: their number was given."""

    def in_words(self, run: Records) -> str:
        """ "30 episodes of at most 18,000 frames with epsilon 0.05"."""
        episodes = "episodes" if math.isnan(self.episodes) else count(int(self.episodes), "episode")
        if not math.isnan(self.steps):
            episodes += f", as many as fill {self.steps:,.0f} steps,"
        longest = f"length {UNRECORDED}"
        if not math.isnan(self.max_frames):
            cut = f"{self.max_frames:,.0f} frames" if run.env is None else f"{self.max_frames / FRAME_SKIP:,.0f} steps"
            longest = f"at most {cut}"
        epsilon = UNRECORDED if math.isnan(self.epsilon) else f"{self.epsilon:g}"
        return f"{episodes} of {longest} with epsilon {epsilon}"


def of_final_evaluation(run: Records) -> EvaluationRules:
    """The rules of `evaluation-final.json`, as it says them itself."""
    found = run.judged["final"]
    epsilon = found.get("eval_epsilon", found.get("epsilon"))  # as it was called before
    return EvaluationRules(
        number(found["episodes"]),
        number(epsilon),
        number(found.get("eval_max_frames")),
        number(found.get("eval_steps")),
    )


def of_last_evaluation(run: Records) -> EvaluationRules:
    """The rules of the last evaluation beside training, as its record and the settings of its run say them."""
    settings = run.settings
    return EvaluationRules(
        newest(run.evaluations["episodes"]),
        number(settings.get("eval_epsilon")),
        number(settings.get("eval_max_frames")),
    )


def training_rules(runs: Iterable[Records]) -> list[tuple[str, str]]:
    """By what name, and in which words: the rules by which the runs were trained, each once."""
    return list(dict.fromkeys((run.env or f"Protocol {run.protocol}", _of_training(run)) for run in runs))


def _of_training(run: Records) -> str:
    if run.env is not None:
        return (
            "an environment of its own: an action is one step of it, starts and ends are its own, and episodes are cut "
            f"after {LONGEST_EPISODE_STEPS:,} steps; nothing of a protocol of Atari applies"
        )
    rules = PROTOCOLS.get(run.protocol)
    if rules is None:
        return "not known to this version"
    sticky = f"sticky actions {rules.sticky:g}" if rules.sticky else "no sticky actions"
    starts = f"1 to {rules.noop_max} no-ops at the start" if rules.noop_max else "no no-ops"
    fire = ", then FIRE" if rules.fire_on_reset else ""
    most = rules.longest_episode_frames
    longest = f"training episodes of at most {most:,} frames" if most else "training episodes of any length"
    return f"{sticky}, {starts}{fire}, {rules.action_set} action set, {FRAME_SKIP} frames a step, {longest}"
