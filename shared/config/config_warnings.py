"""Warnings before a run: one sentence for each setting that is possible but looks like a mistake."""

from __future__ import annotations

from collections.abc import Iterator

from shared.config.method_declaration import C51Settings, method_declaration
from shared.config.presets import PRESETS
from shared.config.run_schedule import make_run_schedule
from shared.config.sections import Algorithm, Learn
from shared.config.settings import Config
from shared.text import flag_of, shown

_PARTS = {
    "prioritized": ("priority_exponent", "importance_start", "importance_end", "importance_steps"),
    "noisy": ("noisy_std",),
    "munchausen": ("munchausen_alpha", "munchausen_temperature", "munchausen_floor"),
}
_ATARI = "ALE/"
"""Beginning of the ids of ale-py's games."""
_KNOWN = [Algorithm(), *(preset.algorithm for preset in PRESETS.values())]
_PUBLISHED_SUPPORT = (-10.0, 10.0)
"""Ends of the support in papers, for clipped rewards."""


def config_warnings(config: Config) -> list[str]:
    """Sentences about settings that a user may not have meant."""
    play, learn, resumes = config.play, config.learn, config.run.resume is not None
    found = [*_parts_that_are_off(config.algorithm), *_length(config)]
    left = learn.total_steps - learn.anneal_steps
    if learn.learning_rate_end == 0 and left > 0:
        steps = f"--anneal-steps {learn.anneal_steps:_}"
        found.append(f"The learning rate is 0 after {steps}: the last {left:_} steps learn nothing.")
    numbers = (learn.optimizer_decay, learn.optimizer_epsilon)
    if learn.optimizer in ("adam", "radam") and numbers == (Learn().optimizer_decay, Learn().optimizer_epsilon):
        found.append(
            f"--optimizer {learn.optimizer} keeps RMSProp's --optimizer-decay {numbers[0]:g} and --optimizer-epsilon "
            f"{numbers[1]:g}; usual are 0.999 and 1e-8 to 1.5e-4."
        )
    if not resumes and play.env is not None and play.env.startswith(_ATARI):
        found.append(
            f"{play.env} plays by the rules of Gymnasium, which papers' scores do not follow; --game NAME plays "
            "faster, and by --protocol."
        )
    published = learn.publish_every_updates
    if learn.schedule != "free" and published != Learn().publish_every_updates:
        found.append(f"--publish-every-updates {published:_} has no effect: --schedule is not free.")
    if config.explore.epsilon_ladder and play.emulators == 1:
        found.append(f"--epsilon-ladder {config.explore.epsilon_ladder:g} has no effect with one emulator.")
    return [*found, *_narrow_support(config)]


def _parts_that_are_off(algorithm: Algorithm) -> Iterator[str]:
    """Settings of a part that is off, with a value that no preset has, so a user must have given it."""
    for part, names in _PARTS.items():
        for name in names if not getattr(algorithm, part) else ():
            value = getattr(algorithm, name)
            if all(getattr(known, name) != value for known in _KNOWN):
                yield f"{flag_of(name)} {shown(value)} has no effect: --{part} is off."


def _length(config: Config) -> Iterator[str]:
    """A run that ends before it learns, or too early for values that move; resumed runs cannot follow such advice."""
    run_schedule, total, resumes = make_run_schedule(config), config.learn.total_steps, config.run.resume is not None
    whole = run_schedule.rounds * run_schedule.round_steps
    if not run_schedule.updates_before(run_schedule.rounds):
        others = "" if resumes else ", or fewer --learning-starts or --round-steps,"
        yield (
            f"Nothing will be learned: rounds have {run_schedule.round_steps:_} steps, updates begin with round "
            f"{run_schedule.first_learning_round + 1}, and there are {run_schedule.rounds}. More --total-steps{others} "
            "would change that."
        )
        return
    if whole > 1.5 * total:
        yield (
            f"The run will play {whole:_} steps, not --total-steps {total:_}: it ends with a round, and rounds have "
            f"{run_schedule.round_steps:_} steps."
        )
    if not resumes:
        for what, start, end, steps, of_total, flag in _lines(config):
            reached = f"{start + of_total / steps * (end - start):.2g}" if of_total < steps else f"{start}"
            if float(reached) != start:
                yield (
                    f"The {what} will only come from {start:g} to {reached} in {total:_} steps; {flag} {of_total:_} "
                    f"would bring it to {end:g}."
                )


def _lines(config: Config) -> Iterator[tuple[str, float, float, int, int, str]]:
    """Values that move in a straight line: name, start, end, steps to the end, steps of the run, flag of the steps."""
    learn, algorithm, explore = config.learn, config.algorithm, config.explore
    method, total = method_declaration(algorithm.method), learn.total_steps
    if algorithm.prioritized:
        ends = (algorithm.importance_start, algorithm.importance_end)
        yield "exponent of importance weights", *ends, algorithm.importance_steps, total, "--importance-steps"
    if learn.learning_rate_end is not None:
        ends = (learn.learning_rate, learn.learning_rate_end)
        yield "learning rate", *ends, learn.anneal_steps, total, "--anneal-steps"
    left = total - (0 if method.on_policy else learn.learning_starts)
    if method.has_epsilon and 0 < left < explore.epsilon_steps / 2:  # to explore for half of a run is common
        ends = (explore.epsilon_start, explore.epsilon_end)
        yield "chance of a random action", *ends, explore.epsilon_steps, left, "--epsilon-steps"


def _narrow_support(config: Config) -> Iterator[str]:
    """A support of c51 that returns may leave."""
    support, clips = config.algorithm.settings, config.learn.clip_rewards
    if not isinstance(support, C51Settings):
        return
    ends = f"--v-min {support.v_min:g} or --v-max {support.v_max:g}"
    if not clips and (support.v_min, support.v_max) == _PUBLISHED_SUPPORT:
        yield f"Rewards are not clipped: returns beyond {ends} would count as the support's end."
    reach = sum(config.learn.discount**i for i in range(config.algorithm.n_step))
    if clips and not (support.v_min <= -reach and reach <= support.v_max):
        yield (
            f"The clipped rewards of one transition alone reach from {-reach:.4g} to {reach:.4g}, beyond {ends}; what "
            "is beyond counts as the support's end."
        )
