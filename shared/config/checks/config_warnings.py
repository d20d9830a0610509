"""Warnings before a run: one sentence for each setting that is possible but looks like a mistake."""

from __future__ import annotations

from shared.config.method_declaration import C51Settings, method_declaration
from shared.config.presets import PRESETS
from shared.config.run_schedule import make_run_schedule
from shared.config.sections import Algorithm, Learn
from shared.config.settings import Config
from shared.text import flag_of

_PARTS = {
    "prioritized": ("priority_exponent", "importance_start", "importance_end", "importance_steps"),
    "noisy": ("noisy_std",),
    "munchausen": ("munchausen_alpha", "munchausen_temperature", "munchausen_floor"),
}
_ATARI = "ALE/"
"""Beginning of the ids of ale-py's games."""
_KNOWN = [Algorithm(), *(preset.algorithm for preset in PRESETS.values())]
_PUBLISHED_SUPPORTS = {(-10.0, 10.0)}
"""Ends of the support in papers, for clipped rewards."""


def config_warnings(config: Config) -> list[str]:
    """Sentences about settings that a user may not have meant."""
    algorithm = config.algorithm
    found = []
    for part, names in _PARTS.items():
        if not getattr(algorithm, part):
            said = [_said(algorithm, name) for name in _changed(algorithm, names)]
            found += [f"{words} has no effect without --{part}." for words in said]
    run_schedule = make_run_schedule(config)
    if not run_schedule.updates_before(run_schedule.rounds):
        found.append(
            f"Nothing will be learned: rounds have {run_schedule.round_steps:_} steps, updates begin with round "
            f"{run_schedule.first_learning_round + 1}, and there are {run_schedule.rounds}. More --total-steps, or "
            "fewer --learning-starts or --round-steps, would change that."
        )
    elif (whole := run_schedule.rounds * run_schedule.round_steps) > 1.5 * config.learn.total_steps:
        found.append(
            f"The run will play {whole:_} steps, not --total-steps {config.learn.total_steps:_}: it ends with a round, "
            f"and rounds have {run_schedule.round_steps:_} steps."
        )
    moves = algorithm.prioritized and algorithm.importance_start != algorithm.importance_end
    if moves and algorithm.importance_steps > config.learn.total_steps:
        end = algorithm.importance_at(config.learn.total_steps)
        found.append(
            f"The exponent of importance weights will only come from {algorithm.importance_start:g} to {end:.2g} in "
            f"{config.learn.total_steps:_} steps; --importance-steps {config.learn.total_steps:_} would bring it to "
            f"{algorithm.importance_end:g}."
        )
    found += _learning_rate_off_its_line(config.learn)
    found += _numbers_of_another_optimizer(config.learn)
    if run_schedule.method.has_epsilon and run_schedule.updates_before(run_schedule.rounds):
        found += _short_exploration(config)
    if config.play.env is not None and config.play.env.startswith(_ATARI):
        found.append(
            f"{config.play.env} plays by the rules of Gymnasium, which papers' scores do not follow; --game NAME plays "
            "faster, and by --protocol."
        )
    published = config.learn.publish_every_updates
    if config.learn.schedule != "free" and published != Learn().publish_every_updates:
        found.append(f"--publish-every-updates {published:_} has no effect without --schedule free.")
    if config.explore.epsilon_ladder and config.play.emulators == 1:
        found.append(f"--epsilon-ladder {config.explore.epsilon_ladder:g} has no effect with one emulator.")
    if isinstance(algorithm.settings, C51Settings):
        found += _narrow_support(config, algorithm.settings)
    return found


def _numbers_of_another_optimizer(learn: Learn) -> list[str]:
    """Adam with the numbers of RMSProp of 2015, which are the defaults."""
    default = Learn()
    numbers = (learn.optimizer_decay, learn.optimizer_epsilon)
    if learn.optimizer not in ("adam", "radam") or numbers != (default.optimizer_decay, default.optimizer_epsilon):
        return []
    return [
        f"--optimizer {learn.optimizer} keeps RMSProp's --optimizer-decay {numbers[0]:g} and --optimizer-epsilon "
        f"{numbers[1]:g}; usual are 0.999 and 1e-8 to 1.5e-4."
    ]


def _narrow_support(config: Config, support: C51Settings) -> list[str]:
    """A support of c51 that returns may leave."""
    ends = f"--v-min {support.v_min:g} or --v-max {support.v_max:g}"
    found = []
    if not config.learn.clip_rewards and (support.v_min, support.v_max) in _PUBLISHED_SUPPORTS:
        found.append(f"Rewards are not clipped: returns beyond {ends} would count as the support's end.")
    reach = sum(config.learn.discount**i for i in range(config.algorithm.n_step))
    if config.learn.clip_rewards and not (support.v_min <= -reach and reach <= support.v_max):
        found.append(
            f"The clipped rewards of one transition alone reach from {-reach:.4g} to {reach:.4g}, beyond {ends}; what "
            "is beyond counts as the support's end."
        )
    return found


def _learning_rate_off_its_line(learn: Learn) -> list[str]:
    """A run that ends before an annealed learning rate does, or continues when it is 0."""
    if learn.learning_rate_end is None or learn.anneal_steps == learn.total_steps:
        return []
    if learn.anneal_steps < learn.total_steps:
        left = learn.total_steps - learn.anneal_steps
        after = f"The learning rate is 0 after --anneal-steps {learn.anneal_steps:_}"
        return [f"{after}: the last {left:_} steps learn nothing."] if learn.learning_rate_end == 0 else []
    done = learn.total_steps / learn.anneal_steps
    end = learn.learning_rate + done * (learn.learning_rate_end - learn.learning_rate)
    return [
        f"The learning rate will only come from {learn.learning_rate:g} to {end:.2g} in {learn.total_steps:_} steps; "
        f"--anneal-steps {learn.total_steps:_} would bring it to {learn.learning_rate_end:g}."
    ]


def _short_exploration(config: Config) -> list[str]:
    """A run that ends in the first half of the way from the first epsilon to the last."""
    explore, learn = config.explore, config.learn
    waits = not method_declaration(config.algorithm.method).on_policy
    left = learn.total_steps - waits * learn.learning_starts
    if explore.epsilon_start == explore.epsilon_end or not 0 < left < explore.epsilon_steps / 2:
        return []
    end = explore.epsilon_start + left / explore.epsilon_steps * (explore.epsilon_end - explore.epsilon_start)
    return [
        f"The chance of a random action will only come from {explore.epsilon_start:g} to {end:.2g} in "
        f"{learn.total_steps:_} steps; --epsilon-steps {left:_} would bring it to {explore.epsilon_end:g}."
    ]


def _changed(algorithm: Algorithm, names: tuple[str, ...]) -> list[str]:
    """Settings of `names` that have the value of no preset, so a user must have given them."""
    return [name for name in names if all(getattr(algorithm, name) != getattr(known, name) for known in _KNOWN)]


def _said(algorithm: Algorithm, name: str) -> str:
    value = getattr(algorithm, name)
    return f"{flag_of(name)} {value:_}" if isinstance(value, int) else f"{flag_of(name)} {value:g}"
