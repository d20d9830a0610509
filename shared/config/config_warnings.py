"""Settings that are possible and yet look like a mistake: each doubt is a sentence, shown as a warning before a run."""

from __future__ import annotations

from shared.config.presets import PRESETS
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Algorithm, Config
from shared.text import flag_of

_PARTS = {
    "prioritized": ("priority_exponent", "importance_start", "importance_end", "importance_steps"),
    "noisy": ("noisy_std",),
    "munchausen": ("munchausen_alpha", "munchausen_temperature", "munchausen_floor"),
}
_METHODS = {"c51": ("v_min", "v_max"), "iqn": ("iqn_samples", "iqn_policy_samples")}
_KNOWN = [Algorithm(), *(preset.algorithm for preset in PRESETS.values())]


def config_warnings(config: Config) -> list[str]:
    """What a user may not have meant."""
    algorithm = config.algorithm
    found = []
    parts = [(f"--{part}", getattr(algorithm, part), names) for part, names in _PARTS.items()]
    parts += [(f"--method {method}", algorithm.method == method, names) for method, names in _METHODS.items()]
    for words, there, names in parts:
        if not there:
            found += [f"{_said(algorithm, name)} has no effect without {words}." for name in _changed(algorithm, names)]
    run_schedule = make_run_schedule(config)
    if not run_schedule.updates_before(run_schedule.rounds):
        found.append(
            f"Nothing will be learned: rounds have {run_schedule.round_steps:_} steps, updates begin with round "
            f"{run_schedule.first_learning_round + 1}, and there are {run_schedule.rounds}. More --total-steps, or "
            "fewer --learning-starts or --round-steps, would change that."
        )
    elif (whole := run_schedule.rounds * run_schedule.round_steps) > 1.5 * config.learn.total_steps:
        span = run_schedule.snapshot_rounds * run_schedule.round_steps
        found.append(
            f"The run will play {whole:_} steps, not --total-steps {config.learn.total_steps:_}: it ends where a state "
            f"is kept, every {span:_} steps."
        )
    moves = algorithm.prioritized and algorithm.importance_start != algorithm.importance_end
    if moves and algorithm.importance_steps > config.learn.total_steps:
        end = algorithm.importance_at(config.learn.total_steps)
        found.append(
            f"The exponent of importance weights will only come from {algorithm.importance_start:g} to {end:.2g} in "
            f"{config.learn.total_steps:_} steps; --importance-steps {config.learn.total_steps:_} would bring it to "
            f"{algorithm.importance_end:g}."
        )
    if run_schedule.updates_before(run_schedule.rounds):
        found += _short_exploration(config)
    if config.explore.epsilon_ladder and config.play.envs == 1:
        found.append(f"--epsilon-ladder {config.explore.epsilon_ladder:g} has no effect with one emulator.")
    if algorithm.method == "c51" and not config.learn.clip_rewards and not _changed(algorithm, ("v_min", "v_max")):
        found.append(
            f"Rewards are not clipped: returns beyond --v-min {algorithm.v_min:g} or --v-max {algorithm.v_max:g} would "
            "count as the support's end."
        )
    reach = sum(config.learn.discount**i for i in range(algorithm.n_step))
    if (
        config.learn.clip_rewards
        and algorithm.method == "c51"
        and not (algorithm.v_min <= -reach and reach <= algorithm.v_max)
    ):
        found.append(
            f"The clipped rewards of one transition alone reach from {-reach:.4g} to {reach:.4g}, beyond --v-min "
            f"{algorithm.v_min:g} or --v-max {algorithm.v_max:g}; what is beyond counts as the support's end."
        )
    return found


def _short_exploration(config: Config) -> list[str]:
    """A run that ends in the first half of the way from the first epsilon to the last."""
    explore, learn = config.explore, config.learn
    left = learn.total_steps - learn.learning_starts
    if explore.epsilon_start == explore.epsilon_end or not 0 < left < explore.epsilon_steps / 2:
        return []
    end = explore.epsilon_start + left / explore.epsilon_steps * (explore.epsilon_end - explore.epsilon_start)
    return [
        f"The chance of a random action will only come from {explore.epsilon_start:g} to {end:.2g} in "
        f"{learn.total_steps:_} steps; --epsilon-steps {left:_} would bring it to {explore.epsilon_end:g}."
    ]


def _changed(algorithm: Algorithm, names: tuple[str, ...]) -> list[str]:
    """Those that somebody must have said: their values are of no preset."""
    return [name for name in names if all(getattr(algorithm, name) != getattr(known, name) for known in _KNOWN)]


def _said(algorithm: Algorithm, name: str) -> str:
    value = getattr(algorithm, name)
    return f"{flag_of(name)} {value:_}" if isinstance(value, int) else f"{flag_of(name)} {value:g}"
