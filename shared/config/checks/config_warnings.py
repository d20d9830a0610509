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
            found += [f"{words} has no effect: --{part} is off." for words in said]
    run_schedule = make_run_schedule(config)
    resumes = config.run.resume is not None  # then no note advises what a resume refuses
    if not run_schedule.updates_before(run_schedule.rounds):
        others = "" if resumes else ", or fewer --learning-starts or --round-steps,"
        found.append(
            f"Nothing will be learned: rounds have {run_schedule.round_steps:_} steps, updates begin with round "
            f"{run_schedule.first_learning_round + 1}, and there are {run_schedule.rounds}. More --total-steps{others} "
            "would change that."
        )
    elif (whole := run_schedule.rounds * run_schedule.round_steps) > 1.5 * config.learn.total_steps:
        found.append(
            f"The run will play {whole:_} steps, not --total-steps {config.learn.total_steps:_}: it ends with a round, "
            f"and rounds have {run_schedule.round_steps:_} steps."
        )
    found += _learning_rate_at_its_end(config.learn)
    if not resumes and run_schedule.updates_before(run_schedule.rounds):
        found += _lines_cut_short(config)
    found += _numbers_of_another_optimizer(config.learn)
    if not resumes and config.play.env is not None and config.play.env.startswith(_ATARI):
        found.append(
            f"{config.play.env} plays by the rules of Gymnasium, which papers' scores do not follow; --game NAME plays "
            "faster, and by --protocol."
        )
    published = config.learn.publish_every_updates
    if config.learn.schedule != "free" and published != Learn().publish_every_updates:
        found.append(f"--publish-every-updates {published:_} has no effect: --schedule is not free.")
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


def _learning_rate_at_its_end(learn: Learn) -> list[str]:
    """A run that continues when its learning rate is 0."""
    left = learn.total_steps - learn.anneal_steps
    if learn.learning_rate_end != 0 or left <= 0:
        return []
    return [
        f"The learning rate is 0 after --anneal-steps {learn.anneal_steps:_}: the last {left:_} steps learn nothing."
    ]


def _lines_cut_short(config: Config) -> list[str]:
    """Values that move in a straight line, whose end the run does not reach."""
    learn, algorithm, explore = config.learn, config.algorithm, config.explore
    method, total = method_declaration(algorithm.method), learn.total_steps
    found = []
    if algorithm.prioritized:
        ends = (algorithm.importance_start, algorithm.importance_end)
        share = total / algorithm.importance_steps
        found += _cut_short("exponent of importance weights", *ends, share, total, f"--importance-steps {total:_}")
    if learn.learning_rate_end is not None:
        ends = (learn.learning_rate, learn.learning_rate_end)
        found += _cut_short("learning rate", *ends, total / learn.anneal_steps, total, f"--anneal-steps {total:_}")
    left = total - (0 if method.on_policy else learn.learning_starts)
    if method.has_epsilon and 0 < left < explore.epsilon_steps / 2:  # to explore for half of a run is common
        ends = (explore.epsilon_start, explore.epsilon_end)
        share = left / explore.epsilon_steps
        found += _cut_short("chance of a random action", *ends, share, total, f"--epsilon-steps {left:_}")
    return found


def _cut_short(what: str, start: float, end: float, share: float, total: int, advice: str) -> list[str]:
    """Sentence that a run of `total` steps has a share of the way from `start` to `end`; none for all or none of it."""
    reached = f"{start + share * (end - start):.2g}"
    if share >= 1 or float(reached) == start:
        return []
    return [
        f"The {what} will only come from {start:g} to {reached} in {total:_} steps; {advice} would bring it to {end:g}."
    ]


def _changed(algorithm: Algorithm, names: tuple[str, ...]) -> list[str]:
    """Settings of `names` that have the value of no preset, so a user must have given them."""
    return [name for name in names if all(getattr(algorithm, name) != getattr(known, name) for known in _KNOWN)]


def _said(algorithm: Algorithm, name: str) -> str:
    value = getattr(algorithm, name)
    return f"{flag_of(name)} {value:_}" if isinstance(value, int) else f"{flag_of(name)} {value:g}"
