"""Rules for parts of methods that make no sense together, or alone. A refusal is a `ConfigError` of one sentence."""

from __future__ import annotations

import math

from shared.config.method_declaration import C51Settings, IqnSettings, QrDqnSettings, method_declaration
from shared.config.run_schedule import WEIGHT_QUANTUM, largest_weight, make_run_schedule
from shared.config.settings import Algorithm, Config, Explore
from shared.errors import ConfigError
from shared.network_spec import RESCALING
from shared.text import flag_of

MOST_RAW_ERROR = 1e7
"""Greatest error that is assumed where rewards are not clipped: ten times the greatest score of published.json, 978,200
in Atlantis."""


REPLAY_PARTS = ("double", "dueling", "noisy", "prioritized", "munchausen", "value_rescaling")
"""Parts of the DQN family that need action values, a replay or a target network."""


def check(config: Config) -> None:
    """Refuse parts that make no sense together, or alone."""
    algorithm = config.algorithm
    if config.learn.network != "impala" and (algorithm.width > 1 or algorithm.spectral_norm or algorithm.pooling):
        raise ConfigError("--width, --pooling and --spectral-norm are for --network impala.")
    if method_declaration(algorithm.method).on_policy:
        _check_on_policy(config)
        return
    _check_munchausen(algorithm)
    _check_distribution(algorithm)
    _check_exploration(config.explore, noisy=algorithm.noisy)
    if algorithm.importance_start > algorithm.importance_end:
        raise ConfigError(
            f"--importance-start {algorithm.importance_start} is more than --importance-end {algorithm.importance_end}."
        )
    _check_priorities(config)
    run_schedule = make_run_schedule(config)
    played_ticks = run_schedule.first_learning_round * run_schedule.round_ticks
    if algorithm.n_step > played_ticks:
        raise ConfigError(
            f"--n-step {algorithm.n_step} is more than the {played_ticks} steps that each of --envs {config.play.envs} "
            f"has made when learning starts; --learning-starts {algorithm.n_step * config.play.envs:_} is enough."
        )


def _check_on_policy(config: Config) -> None:
    """Refuse parts of the DQN family, and rounds that updates cannot divide."""
    algorithm, learn, envs = config.algorithm, config.learn, config.play.envs
    parts = [name for name in REPLAY_PARTS if getattr(algorithm, name)]
    if algorithm.n_step > 1:
        parts.append("n_step")
    if parts:
        raise ConfigError(
            f"--method {algorithm.method} learns from the round just played, by a policy of its own, so "
            f"{flag_of(parts[0])} has no effect: omit it."
        )
    if learn.schedule == "free":
        raise ConfigError(
            f"--method {algorithm.method} learns from whole rounds of one policy, which --schedule free does not keep: "
            "say alternate or concurrent."
        )
    if learn.round_steps % envs:
        nearest = max(1, round(learn.round_steps / envs)) * envs
        raise ConfigError(
            f"--round-steps {learn.round_steps:_} must be a multiple of --envs {envs} with --method "
            f"{algorithm.method}; the nearest is {nearest:_}."
        )
    if learn.round_steps % learn.batch_size:
        raise ConfigError(
            f"--round-steps {learn.round_steps:_} must be a multiple of --batch-size {learn.batch_size:_}, since every "
            f"step of a round is learned from with --method {algorithm.method}."
        )


def _check_munchausen(algorithm: Algorithm) -> None:
    if algorithm.munchausen and algorithm.double:
        raise ConfigError(
            "--munchausen learns the soft value of a state, which no single action has that --double could choose: "
            "omit one of them."
        )
    if algorithm.munchausen and algorithm.method == "c51":
        raise ConfigError(
            "--munchausen averages over actions, which probabilities of fixed atoms do not survive: say --method dqn, "
            "qr-dqn or iqn."
        )


def _check_distribution(algorithm: Algorithm) -> None:
    """Refuse a support of c51 that cannot hold returns."""
    support = algorithm.settings
    if not isinstance(support, C51Settings):
        return
    if algorithm.value_rescaling:
        raise ConfigError(
            "--value-rescaling changes the scale of returns, and c51 has fixed atoms: choose --v-min and --v-max, or "
            "say --method dqn, qr-dqn or iqn."
        )
    if not support.v_min < support.v_max:
        raise ConfigError(f"--v-min {support.v_min} must be below --v-max {support.v_max}.")
    if not support.v_min <= 0 <= support.v_max:
        raise ConfigError(
            f"--v-min {support.v_min} to --v-max {support.v_max} must hold 0, the return after an episode's end."
        )


def _check_priorities(config: Config) -> None:
    """Refuse an exponent with which priorities may reach the largest that there is, beyond which all are the same."""
    algorithm, transitions = config.algorithm, make_run_schedule(config).priorities
    if not transitions or algorithm.method == "c51":  # whose priority is a divergence of probabilities
        return
    error = _greatest_error(config)
    largest = largest_weight(transitions) * WEIGHT_QUANTUM
    if error**algorithm.priority_exponent <= largest:
        return
    most = math.floor(100 * math.log(largest) / math.log(error)) / 100
    clip = "" if config.learn.clip_rewards else ", or clip rewards"
    raise ConfigError(
        f"--priority-exponent {algorithm.priority_exponent:g} is too much for errors of up to {error:.2g}, which these "
        f"settings allow: with --replay-size {config.learn.replay_size:_} all priorities beyond {largest:,.0f} would "
        f"be the same. Say --priority-exponent {most:g} or less{clip}."
    )


def _greatest_error(config: Config) -> float:
    """The greatest error of a transition, summed over its quantiles, as far as the values are those of some policy."""
    learn, algorithm = config.learn, config.algorithm
    error = MOST_RAW_ERROR
    if learn.clip_rewards and learn.discount < 1:
        reward = 1.0 + (-algorithm.munchausen_alpha * algorithm.munchausen_floor if algorithm.munchausen else 0.0)
        error = min(error, 2 * reward / (1 - learn.discount))
    if algorithm.value_rescaling:
        error = math.sqrt(error + 1) - 1 + RESCALING * error
    settings = algorithm.settings
    if isinstance(settings, QrDqnSettings):
        return error * settings.atoms
    return error * settings.iqn_samples if isinstance(settings, IqnSettings) else error


def _check_exploration(explore: Explore, *, noisy: bool) -> None:
    if explore.epsilon_start == 0 and not noisy:
        raise ConfigError("Nothing would be explored: --epsilon-start is 0, and the network is not --noisy.")
    if explore.epsilon_ladder and explore.epsilon_start == explore.epsilon_end == 0:
        raise ConfigError("--epsilon-ladder has no effect with an epsilon of 0.")
