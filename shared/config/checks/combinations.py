"""Rules for parts of methods that make no sense together, or alone. A refusal is a `ConfigError` of one sentence."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import replace

from shared.config.method_declaration import (
    C51Settings,
    IQNSettings,
    OnPolicySettings,
    QRDQNSettings,
    method_declaration,
)
from shared.config.protocols import eval_rules
from shared.config.run_schedule import WEIGHT_QUANTUM, largest_weight, make_run_schedule
from shared.config.sections import WORKER_SCHEDULES, Algorithm, Explore
from shared.config.settings import Config, unused_settings
from shared.errors import ConfigError
from shared.frame_shape import BLOCK, SCREEN_WIDTH
from shared.network_spec import RESCALING, least_frame_size, network_of
from shared.text import flag_of

MOST_RAW_ERROR = 1e7
"""Greatest error that is assumed where rewards are not clipped: ten times the greatest score of published.json, 978,200
in Atlantis."""


def check(config: Config) -> None:
    """Refuse parts that make no sense together, or alone."""
    algorithm = config.algorithm
    _check_used(config)
    eval_rules(config.play, config.evaluate, method_declaration(algorithm.method))  # which refuses what it cannot do
    if config.learn.network != "impala" and (algorithm.width > 1 or algorithm.spectral_norm or algorithm.pooling):
        raise ConfigError("--width, --pooling and --spectral-norm are for --network impala.")
    if config.learn.network == "impala" and algorithm.normalize == "all":
        raise ConfigError("--normalize all is for plain convolutions: pass --normalize last with --network impala.")
    _check_frames(config)
    _check_annealing(config)
    declaration = method_declaration(algorithm.method)
    if declaration.has_epsilon:
        _check_exploration(config.explore, noisy=algorithm.noisy)
    if config.play.workers or config.learn.schedule in WORKER_SCHEDULES:
        _check_workers(config)
        return
    _check_without_workers(config)
    check_shards(config)
    if declaration.by_workers:
        raise ConfigError(
            f"--method {algorithm.method} computes its gradients in workers: pass --schedule "
            f"{' or '.join(WORKER_SCHEDULES)}, with --workers."
        )
    if declaration.on_policy:
        _check_rounds(config)
        return
    _check_munchausen(algorithm)
    _check_distribution(algorithm)
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


def check_shards(config: Config) -> None:
    """Refuse minibatches that cannot be divided, and schedules whose updates are not shared."""
    learn, machine = config.learn, config.machine
    shards, ranks = machine.learner_shards, machine.learner_ranks
    if shards is not None and shards > learn.batch_size:
        raise ConfigError(f"--learner-shards {shards} is more than --batch-size {learn.batch_size:_}: pass fewer.")
    if ranks == 1:
        return
    if learn.schedule == "free":
        raise ConfigError(
            f"--learner-ranks {ranks} are for --schedule concurrent and alternate, not for {learn.schedule}: omit one "
            "of the two."
        )
    if shards is None:
        return
    if shards % ranks:
        price = ", which changes the last bits" if config.run.resume is not None else ""
        raise ConfigError(
            f"--learner-shards {shards} cannot be shared evenly by --learner-ranks {ranks}: pass a multiple of "
            f"{ranks}{price}."
        )
    if learn.batch_size % shards:
        raise ConfigError(
            f"--batch-size {learn.batch_size:_} must be a multiple of --learner-shards {shards} with --learner-ranks, "
            "so that all shards are of one size."
        )


def require_used(names: Iterable[str], method: str) -> None:
    """Refuse settings that a user gave although they have no effect with the method.

    Args:
        names: of the settings; `no_x` is the flag that turns `x` off.

    Raises:
        ConfigError: one of them has no effect.
    """
    unused = unused_settings(method_declaration(method))
    for name in names:
        need = unused.get(name) or unused.get(name.removeprefix("no_"))
        if need is not None:
            raise ConfigError(f"{flag_of(name)} has no effect with --method {method}, which {need.value}: omit it.")


def require_consistent(names: Container[str]) -> None:
    """Refuse settings that a user gave together although one leaves the other without meaning.

    Raises:
        ConfigError: two of them contradict each other.
    """
    if "env" not in names:
        return
    if "game" in names:
        raise ConfigError("--game and --env both name what is played: pass one of them.")
    if "protocol" in names:
        raise ConfigError(
            "--protocol is the rules of Atari games, and --env plays by its own: pass one of them (--eval-episodes and "
            "--eval-epsilon for evaluations)."
        )


def _check_used(config: Config) -> None:
    """Refuse settings that have no effect, where they are not the defaults."""
    given, usual = config.to_flat(), Config().to_flat()
    changed = [name for name, value in given.items() if value != usual.get(name)]
    require_used([f"no_{name}" if given[name] is False else name for name in changed], config.algorithm.method)


def _check_frames(config: Config) -> None:
    """Refuse frames that the network, or the emulator of a game, cannot have."""
    play, size = config.play, config.play.frame_size
    if size % BLOCK:
        nearest = max(1, round(size / BLOCK)) * BLOCK
        raise ConfigError(f"--frame-size {size} must be a multiple of {BLOCK}; the nearest is {nearest}.")
    if play.env is None and size > SCREEN_WIDTH:
        raise ConfigError(f"--frame-size {size} is more than an Atari screen has: pass {SCREEN_WIDTH} or less.")
    if play.env is None and play.frame_color != "gray":
        raise ConfigError(f"--frame-color {play.frame_color} is for --env: games of Atari are played in gray.")
    least = least_frame_size(network_of(config, actions=1))
    if size < least:
        network = config.learn.network
        raise ConfigError(f"--frame-size {size} is too small for --network {network}: {least} is the least.")


def _check_annealing(config: Config) -> None:
    """Refuse an end without the steps to it, and steps without an end.

    A method may have settings that are annealed, too: their ends have names in _end, and are None by default.
    """
    learn = config.learn
    values = vars(learn) | vars(config.algorithm.settings)
    ends = {name: end for name, end in values.items() if name.endswith("_end") and end is not None}
    for name, end in ends.items():
        if not learn.anneal_steps:
            raise ConfigError(f"{flag_of(name)} {end:g} needs --anneal-steps, the steps after which it is reached.")
    if learn.anneal_steps and not ends:
        raise ConfigError(
            f"--anneal-steps {learn.anneal_steps:_} has no effect, since no setting has an end: add "
            "--learning-rate-end, or omit it."
        )


def _check_rounds(config: Config) -> None:
    """Refuse rounds that an on-policy method cannot learn from."""
    algorithm, learn, envs = config.algorithm, config.learn, config.play.envs
    if learn.schedule == "free":
        raise ConfigError(
            f"--method {algorithm.method} learns from whole rounds of one policy, which --schedule free does not keep: "
            "pass alternate or concurrent."
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
    if algorithm.recurrent:
        _check_sequences(config)


def _check_sequences(config: Config) -> None:
    """Refuse minibatches and shards that do not hold whole sequences, as a recurrent network needs, and ranks."""
    ranks = config.machine.learner_ranks
    if ranks > 1:
        raise ConfigError(f"--recurrent is for a learner of one process: omit --learner-ranks {ranks}.")
    learn, envs, shards = config.learn, config.play.envs, config.machine.learner_shards
    ticks = learn.round_steps // envs
    if learn.batch_size % ticks:
        sizes = [ticks * count for count in range(1, envs + 1) if envs % count == 0]
        fits = min(sizes, key=lambda size: abs(size - learn.batch_size))
        raise ConfigError(
            f"--batch-size {learn.batch_size:_} must be a multiple of {ticks}, the ticks of a round of --round-steps "
            f"{learn.round_steps:_} with --envs {envs}, with --recurrent; the nearest that fits is {fits:_}."
        )
    sequences = learn.batch_size // ticks
    if shards is not None and shards > sequences:
        raise ConfigError(
            f"--learner-shards {shards} is more than the {sequences} envs whose rounds are one --batch-size "
            f"{learn.batch_size:_} with --recurrent: pass fewer."
        )


def _check_workers(config: Config) -> None:
    """Refuse what workers cannot do, and settings that have no effect with them."""
    play, learn, algorithm = config.play, config.learn, config.algorithm
    declaration, schedule = method_declaration(algorithm.method), f"--schedule {learn.schedule}"
    if learn.schedule not in WORKER_SCHEDULES:
        raise ConfigError(
            f"--workers {play.workers} is for --schedule {' and '.join(WORKER_SCHEDULES)}; with {schedule}, a learner "
            "does the updates: pass --envs."
        )
    if not play.workers:
        raise ConfigError(f"{schedule} needs --workers, the number of actor-learners: --preset a3c-async has 16.")
    if config.machine.device.startswith("cuda"):
        raise ConfigError(
            f"{schedule} computes on the CPU, not on --device {config.machine.device}: a GPU is for --preset ppo, "
            "impala or a3c."
        )
    if not replace(network_of(config, actions=1), recurrent=0).plain:
        raise ConfigError(
            f"{schedule} trains plain convolutions and linear layers: pass --network a3c or nature, without --dueling, "
            "--noisy, --normalize and --method iqn."
        )
    if isinstance(algorithm.settings, OnPolicySettings) and algorithm.settings.epochs > 1:
        raise ConfigError(
            f"--epochs {algorithm.settings.epochs} has no effect with {schedule}, where a step is used once: pass "
            "--epochs 1."
        )
    if not declaration.on_policy:
        _check_local_replay(config)
    usual = Config().to_flat()
    emulators = f"--workers {play.workers} times --lane-envs {play.lane_envs} emulators play"
    without_effect = {"envs": emulators, "train_every": "--t-max says it", "replay_size": "--local-replay says it"}
    if not learn.local_replay:
        without_effect["batch_size"] = f"a gradient is that of --t-max {learn.t_max} steps of a worker"
    if not declaration.has_target_network:
        without_effect["round_steps"] = f"a round has --t-max {learn.t_max} steps of every emulator"
    for name, why in without_effect.items():
        value = config.to_flat()[name]
        if value != usual[name] and (name, value) != ("envs", play.emulators):
            raise ConfigError(f"{flag_of(name)} {value:_} has no effect with {schedule}, since {why}: omit it.")


def _check_local_replay(config: Config) -> None:
    """Refuse a method with a replay buffer whose workers could not draw from theirs."""
    play, learn, algorithm = config.play, config.learn, config.algorithm
    if not learn.local_replay:
        raise ConfigError(
            f"--method {algorithm.method} learns from a replay buffer, which --schedule {learn.schedule} has for each "
            "worker alone: add --local-replay 10_000."
        )
    _check_munchausen(algorithm)
    _check_distribution(algorithm)
    if algorithm.prioritized:
        raise ConfigError(f"--prioritized makes no sense with --local-replay {learn.local_replay:_}: it is uniform.")
    least = max(learn.batch_size, (play.frame_stack + algorithm.n_step + learn.t_max) * play.lane_envs)
    if learn.local_replay < least:
        raise ConfigError(f"--local-replay {learn.local_replay:_} is too small to draw from; {least:_} is the least.")
    if not 0 < learn.learning_starts <= learn.total_steps:
        raise ConfigError(
            f"Nothing would be learned: --learning-starts {learn.learning_starts:_} must lie between 1 and "
            f"--total-steps {learn.total_steps:_}."
        )
    run_schedule = make_run_schedule(config)
    played_ticks = (run_schedule.first_learning_round + 1) * run_schedule.round_ticks
    if algorithm.n_step > played_ticks:
        enough = (algorithm.n_step - 1) * play.emulators
        raise ConfigError(
            f"--n-step {algorithm.n_step} is more than the {played_ticks} steps that each emulator has made when "
            f"learning starts; --learning-starts {enough:_} is enough."
        )


def _check_without_workers(config: Config) -> None:
    """Refuse settings that only workers have."""
    given, usual = config.to_flat(), Config().to_flat()
    for name in ("t_max", "local_replay", "epsilon_by_worker"):
        if given[name] != usual[name]:
            raise ConfigError(f"{flag_of(name)} is for --schedule {' and '.join(WORKER_SCHEDULES)}: omit it.")


def _check_munchausen(algorithm: Algorithm) -> None:
    if algorithm.munchausen and algorithm.double:
        raise ConfigError(
            "--munchausen learns the soft value of a state, which no single action has that --double could choose: "
            "omit one of them."
        )
    if algorithm.munchausen and algorithm.method == "c51":
        raise ConfigError(
            "--munchausen averages over actions, which probabilities of fixed atoms do not survive: pass --method dqn, "
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
            "pass --method dqn, qr-dqn or iqn."
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
    remedy = f"Pass --priority-exponent {most:g} or less" if most > 0 else "Pass a smaller --replay-size"
    raise ConfigError(
        f"--priority-exponent {algorithm.priority_exponent:g} is too much for errors of up to {error:.2g}, which these "
        f"settings allow: with --replay-size {config.learn.replay_size:_} all priorities beyond {largest:,.0f} would "
        f"be the same. {remedy}{clip}."
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
    if isinstance(settings, QRDQNSettings):
        return error * settings.atoms
    return error * settings.iqn_samples if isinstance(settings, IQNSettings) else error


def _check_exploration(explore: Explore, *, noisy: bool) -> None:
    if explore.epsilon_start == 0 and not noisy:
        raise ConfigError("Nothing would be explored: --epsilon-start is 0, and the network is not --noisy.")
    if explore.epsilon_ladder and explore.epsilon_start == explore.epsilon_end == 0:
        raise ConfigError("--epsilon-ladder has no effect with an epsilon of 0.")
