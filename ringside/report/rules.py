"""Rules of training and evaluation as text, from the records of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ringside.report.records import Records, newest, number
from shared.config.protocols import LONGEST_EPISODE_STEPS, PROTOCOLS, acting_in_words
from shared.config.sections import FRAME_SKIP
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.text import count


@dataclass(frozen=True)
class EvaluationRules:
    """Rules of the episodes behind a score."""

    episodes: float
    epsilon: float
    max_frames: float
    """Emulator frames after which an episode ended; for an environment that is no game, four per step."""
    actions: str
    """sample or greedy."""
    steps: float = math.nan
    """Steps that the episodes had to fill; NaN: their number was given."""

    def in_words(self, run: Records) -> str:
        """ "30 episodes of at most 18,000 frames with greedy actions and epsilon 0.05"."""
        episodes = "episodes" if math.isnan(self.episodes) else count(int(self.episodes), "episode")
        if not math.isnan(self.steps):
            episodes += f", as many as fill {self.steps:,.0f} steps,"
        most = f"{self.max_frames:,.0f} frames" if run.env is None else f"{self.max_frames / FRAME_SKIP:,.0f} steps"
        return f"{episodes} of at most {most} with {acting_in_words(self.actions, self.epsilon)}"


def rules_of_final_evaluation(run: Records) -> EvaluationRules:
    """Rules of `evaluation-final.json`, from the file itself."""
    found = run.by_protocol["final"]
    return EvaluationRules(
        found["episodes"],
        found["eval_epsilon"],
        found["eval_max_frames"],
        str(found.get("eval_actions")),
        number(found.get("eval_steps")),
    )


def rules_of_last_evaluation(run: Records) -> EvaluationRules:
    """Rules of the last evaluation beside training, from its record and the settings of its run."""
    settings = run.settings
    return EvaluationRules(
        newest(run.evaluations["episodes"]),
        number(settings.get("eval_epsilon")),
        number(settings.get("eval_max_frames")),
        str(settings.get("eval_actions")),
    )


def training_rules(runs: Iterable[Records]) -> list[tuple[str, str]]:
    """Names and texts of the training rules of the runs, without duplicates."""
    return list(dict.fromkeys((run.env or f"Protocol {run.protocol}", _of_training(run)) for run in runs))


def _of_training(run: Records) -> str:
    settings = run.settings
    frames = FrameShape(
        settings["frame_size"], settings["frame_stack"], 1 if settings["frame_color"] == DEFAULT_FRAMES.color else 3
    )
    return _rules_of_episodes(run) + ("" if frames == DEFAULT_FRAMES else f", observations of {frames}")


def _rules_of_episodes(run: Records) -> str:
    if run.env is not None:
        return (
            "no game of ale-py: an action is one step, the environment defines starts and ends, and episodes end after "
            f"{LONGEST_EPISODE_STEPS:,} steps at the latest; no Atari protocol applies"
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
