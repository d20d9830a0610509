"""Which parts of the DQN family make sense together, or alone. Every "no" is a `ConfigError` with one sentence."""

from __future__ import annotations

import math

from shared.config.run_schedule import WEIGHT_QUANTUM, largest_weight, sizes_of
from shared.config.settings import Config, Explore, Extend
from shared.errors import ConfigError
from shared.network_spec import MOST_ATOMS, RESCALING, atoms_of
from shared.text import shown

MOST_RAW_ERROR = 1e7
"""An error of this size is taken for possible where rewards are not clipped: ten times the greatest score of
published.json, 978,200 in Atlantis."""


def check(config: Config) -> None:
    """Refuse parts that make no sense together, or alone."""
    extend = config.extend
    _check_munchausen(extend)
    _check_distribution(extend)
    _check_exploration(config.explore, noisy=extend.noisy)
    if config.learn.network != "impala" and (extend.width > 1 or extend.spectral_norm or extend.pooling):
        raise ConfigError("--width, --pooling and --spectral-norm are for --network impala.")
    if extend.importance_start > extend.importance_end:
        raise ConfigError(
            f"--importance-start {extend.importance_start} is more than --importance-end {extend.importance_end}."
        )
    _check_priorities(config)
    sizes = sizes_of(config)
    played_ticks = sizes.first_learning_round * sizes.round_ticks
    if extend.n_step > played_ticks:
        raise ConfigError(
            f"--n-step {extend.n_step} is more than the {played_ticks} steps that each of --envs {config.play.envs} "
            f"has made when learning starts; --learning-starts {extend.n_step * config.play.envs:_} is enough."
        )


def _check_munchausen(extend: Extend) -> None:
    if extend.munchausen and extend.double:
        raise ConfigError(
            "--munchausen learns the soft value of a state, which no single action has that --double could choose: "
            "omit one of them."
        )
    if extend.munchausen and extend.method == "c51":
        raise ConfigError(
            "--munchausen averages over actions, which probabilities of fixed atoms do not survive: say --method dqn, "
            "qr-dqn or iqn."
        )


def _check_distribution(extend: Extend) -> None:
    """Outputs of an action, and what c51's support must hold."""
    if extend.method in ("c51", "qr-dqn") and extend.atoms is not None and not 2 <= extend.atoms <= MOST_ATOMS:
        raise ConfigError(f"--atoms {shown(extend.atoms)} must be 2 to {MOST_ATOMS:_} with --method {extend.method}.")
    if extend.method in ("dqn", "iqn") and extend.atoms not in (None, 1):
        raise ConfigError(
            f"--atoms {shown(extend.atoms)} is for --method c51 and qr-dqn; {extend.method} has one output an action."
        )
    if extend.method != "c51":
        return
    if extend.value_rescaling:
        raise ConfigError(
            "--value-rescaling changes the scale of returns, and c51 has fixed atoms: choose --v-min and --v-max, or "
            "say --method dqn, qr-dqn or iqn."
        )
    if not extend.v_min < extend.v_max:
        raise ConfigError(f"--v-min {extend.v_min} must be below --v-max {extend.v_max}.")
    if not extend.v_min <= 0 <= extend.v_max:
        raise ConfigError(
            f"--v-min {extend.v_min} to --v-max {extend.v_max} must hold 0, the return after an episode's end."
        )


def _check_priorities(config: Config) -> None:
    """Refuse an exponent with which priorities may reach the largest that there is, beyond which all are the same."""
    extend, transitions = config.extend, sizes_of(config).priorities
    if not transitions or extend.method == "c51":  # whose priority is a divergence of probabilities
        return
    error = _greatest_error(config)
    largest = largest_weight(transitions) * WEIGHT_QUANTUM
    if error**extend.priority_exponent <= largest:
        return
    most = math.floor(100 * math.log(largest) / math.log(error)) / 100
    clip = "" if config.learn.clip_rewards else ", or clip rewards"
    raise ConfigError(
        f"--priority-exponent {extend.priority_exponent:g} is too much for errors of up to {error:.2g}, which these "
        f"settings allow: with --replay-size {config.learn.replay_size:_} all priorities beyond {largest:,.0f} would "
        f"be the same. Say --priority-exponent {most:g} or less{clip}."
    )


def _greatest_error(config: Config) -> float:
    """The greatest error of a transition, summed over its quantiles, as far as the values are those of some policy."""
    learn, extend = config.learn, config.extend
    error = MOST_RAW_ERROR
    if learn.clip_rewards and learn.discount < 1:
        reward = 1.0 + (-extend.munchausen_alpha * extend.munchausen_floor if extend.munchausen else 0.0)
        error = min(error, 2 * reward / (1 - learn.discount))
    if extend.value_rescaling:
        error = math.sqrt(error + 1) - 1 + RESCALING * error
    outputs = {"qr-dqn": atoms_of(extend), "iqn": extend.iqn_samples}
    return error * outputs.get(extend.method, 1)


def _check_exploration(explore: Explore, *, noisy: bool) -> None:
    if explore.epsilon_start == 0 and not noisy:
        raise ConfigError("Nothing would be explored: --epsilon-start is 0, and the network is not --noisy.")
    if explore.epsilon_ladder and explore.epsilon_start == explore.epsilon_end == 0:
        raise ConfigError("--epsilon-ladder has no effect with an epsilon of 0.")
