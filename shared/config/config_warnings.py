"""Warnings before a run: one sentence for each setting that is possible but looks like a mistake."""

from __future__ import annotations

from collections.abc import Iterator

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
_KNOWN = [Algorithm(), *(preset.algorithm for preset in PRESETS.values())]


def config_warnings(config: Config) -> list[str]:
    """Sentences about settings that a user may not have meant."""
    learn = config.learn
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
    return found


def _parts_that_are_off(algorithm: Algorithm) -> Iterator[str]:
    """Settings of a part that is off, with a value that no preset has, so a user must have given it."""
    for part, names in _PARTS.items():
        for name in names if not getattr(algorithm, part) else ():
            value = getattr(algorithm, name)
            if all(getattr(known, name) != value for known in _KNOWN):
                yield f"{flag_of(name)} {shown(value)} has no effect: --{part} is off."


def _length(config: Config) -> Iterator[str]:
    """A run that ends before it learns, or before exploration falls; resumed runs cannot follow such advice."""
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
    explore, left = config.explore, total - (0 if run_schedule.method.on_policy else config.learn.learning_starts)
    has_epsilon = run_schedule.method.has_epsilon and not resumes
    if has_epsilon and 0 < left < explore.epsilon_steps / 2:  # to explore for half of a run is common
        start, end = explore.epsilon_start, explore.epsilon_end
        reached = f"{start + left / explore.epsilon_steps * (end - start):.2g}"
        if float(reached) != start:
            yield (
                f"The chance of a random action will only come from {start:g} to {reached} in {total:_} steps; "
                f"--epsilon-steps {left:_} would bring it to {end:g}."
            )
