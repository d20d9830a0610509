"""Settings that are possible and yet look like a mistake: each doubt is a sentence, shown as a warning before a run."""

from __future__ import annotations

from shared.config.presets import PRESETS
from shared.config.run_schedule import sizes_of
from shared.config.settings import Config, Extend
from shared.text import flag_of

_PARTS = {
    "prioritised": ("priority_exponent", "importance_start", "importance_end", "importance_steps"),
    "noisy": ("noisy_std",),
    "munchausen": ("munchausen_alpha", "munchausen_temperature", "munchausen_floor"),
}
_METHODS = {"c51": ("v_min", "v_max"), "iqn": ("iqn_samples", "iqn_policy_samples")}
_KNOWN = [Extend(), *(preset.extend for preset in PRESETS.values())]


def doubts(config: Config) -> list[str]:
    """What a user may not have meant."""
    extend = config.extend
    found = []
    parts = [(f"--{part}", getattr(extend, part), names) for part, names in _PARTS.items()]
    parts += [(f"--method {method}", extend.method == method, names) for method, names in _METHODS.items()]
    for words, there, names in parts:
        if not there:
            found += [f"{_said(extend, name)} has no effect without {words}." for name in _changed(extend, names)]
    sizes = sizes_of(config)
    if not sizes.updates_before(sizes.rounds):
        found.append(
            f"Nothing will be learned: rounds have {sizes.round_steps:_} steps, updates begin with round "
            f"{sizes.first_learning_round + 1}, and there are {sizes.rounds}. More --total-steps, or fewer "
            "--learning-starts or --round-steps, would change that."
        )
    elif (whole := sizes.rounds * sizes.round_steps) > 1.5 * config.learn.total_steps:
        span = sizes.snapshot_rounds * sizes.round_steps
        found.append(
            f"The run will play {whole:_} steps, not --total-steps {config.learn.total_steps:_}: it ends where a state "
            f"is kept, every {span:_} steps."
        )
    moves = extend.prioritised and extend.importance_start != extend.importance_end
    if moves and extend.importance_steps > config.learn.total_steps:
        end = extend.importance_at(config.learn.total_steps)
        found.append(
            f"The exponent of importance weights will only come from {extend.importance_start:g} to {end:.2g} in "
            f"{config.learn.total_steps:_} steps; --importance-steps {config.learn.total_steps:_} would bring it to "
            f"{extend.importance_end:g}."
        )
    if sizes.updates_before(sizes.rounds):
        found += _short_exploration(config)
    if config.explore.epsilon_ladder and config.play.envs == 1:
        found.append(f"--epsilon-ladder {config.explore.epsilon_ladder:g} has no effect with one emulator.")
    if extend.method == "c51" and not config.learn.clip_rewards and not _changed(extend, ("v_min", "v_max")):
        found.append(
            f"Rewards are not clipped: returns beyond --v-min {extend.v_min:g} or --v-max {extend.v_max:g} would count "
            "as the support's end."
        )
    reach = sum(config.learn.discount**i for i in range(extend.n_step))
    if config.learn.clip_rewards and extend.method == "c51" and not (extend.v_min <= -reach and reach <= extend.v_max):
        found.append(
            f"The clipped rewards of one transition alone reach from {-reach:.4g} to {reach:.4g}, beyond --v-min "
            f"{extend.v_min:g} or --v-max {extend.v_max:g}; what is beyond counts as the support's end."
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


def _changed(extend: Extend, names: tuple[str, ...]) -> list[str]:
    """Those that somebody must have said: their values are of no preset."""
    return [name for name in names if all(getattr(extend, name) != getattr(known, name) for known in _KNOWN)]


def _said(extend: Extend, name: str) -> str:
    value = getattr(extend, name)
    return f"{flag_of(name)} {value:_}" if isinstance(value, int) else f"{flag_of(name)} {value:g}"
