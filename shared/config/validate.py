"""Validation of a configuration: refusals, each a `ConfigError` of one sentence for the user, and warnings.

`settings` checks what a user gave, `recorded` what a file of a run holds, and `resolved` what `shared.config.resolve`
filled in: the range of each setting, which stands at its field, and combinations that make no sense. `episodes`,
`seed_of_play` and `require_between` check options of tasks. `config_warnings` is about settings that are possible but
look like a mistake.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from shared.config.field_checks import MOST, check_ranges
from shared.config.method_declaration import (
    C51Settings,
    IQNSettings,
    OnPolicySettings,
    QRDQNSettings,
    method_declaration,
)
from shared.config.presets import PRESETS
from shared.config.protocols import eval_rules
from shared.config.run_schedule import MOST_PRIORITIES, WEIGHT_QUANTUM, largest_weight, make_run_schedule
from shared.config.sections import INEXACT_SCHEDULES, WORKER_SCHEDULES, Algorithm, Learn
from shared.config.settings import Config, ResolvedConfig, unused_settings
from shared.config.trust import WANDB_SETTINGS
from shared.env_name import parse_env_name
from shared.errors import ConfigError, missing_package
from shared.files.plain_files import exists
from shared.frame_shape import BLOCK, SCREEN_WIDTH
from shared.network_spec import RESCALING, least_frame_size, network_names, network_of
from shared.text import PLAIN_NAME, count, flag_of, require_name, shown

MOST_EPISODES = 100_000
"""Bound of `--episodes`, far above the episodes of any protocol; lists of that length fit into memory."""

_DROPPED: Any = dict.fromkeys(("resume", "init_from", *WANDB_SETTINGS))


def recorded(config: Config) -> None:
    """Check a configuration from a file as `settings` does; what it began with may be gone by now."""
    settings(replace(config, run=replace(config.run, track="off", **_DROPPED)))


def settings(config: Config) -> None:
    """Check every number by itself and against the others, and every text."""
    run = config.run
    _check_texts(config)
    require_name("--network", config.learn.network, network_names())
    ranges(config)
    _refuse(conflicts(config))
    for name in WANDB_SETTINGS:
        if run.track == "off" and getattr(run, name) is not None:
            raise ConfigError(f"{flag_of(name)} is for --track wandb: pass that, too.")
    if run.track == "wandb" and importlib.util.find_spec("wandb") is None:
        raise missing_package("--track wandb", "wandb", "wandb")
    if config.evaluate.eval_video and importlib.util.find_spec("av") is None:
        raise missing_package("--eval-video", "av", "video")
    if run.resume is not None and not exists(run.resume):
        raise ConfigError(f"--resume {run.resume} does not exist.")


def resolved(config: ResolvedConfig) -> None:
    """Check what `shared.config.resolve.resolve` filled in, together with what the user said."""
    _refuse(conflicts_of_resolved(config))


def ranges(config: Config) -> None:
    """Check every number by itself."""
    for section in (*config.sections.values(), config.algorithm.settings):
        check_ranges(section)


def episodes(number: int | None, seed: int) -> None:
    """Refuse episodes that cannot be played: `number` of them, None being as many as the protocol says."""
    if number is not None:
        require_between("--episodes", number, MOST_EPISODES)
    seed_of_play(seed)


def seed_of_play(seed: int) -> None:
    """Refuse a seed of episodes that does not fit into 64 bits."""
    if seed < 0:
        raise ConfigError(f"--seed {seed} must not be negative.")
    if seed >= MOST:
        raise ConfigError(f"--seed {seed:_} must be below {MOST:_}.")


def require_between(flag: str, number: int, most: int) -> None:
    """Refuse a number of episodes, runs or frames to work through that is below 1 or above the most."""
    if not 1 <= number <= most:
        raise ConfigError(f"{flag} {shown(number):.80} must lie between 1 and {most:_}.")


def _refuse(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        raise ConfigError(sentence)


def _check_texts(config: Config) -> None:
    """Check each text and path alone: config.json holds all of them, and readers of a run count on them."""
    for section in fields(config):
        for name, value in vars(getattr(config, section.name)).items():
            try:
                str(value).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{flag_of(name)} {str(value)!a} is not UTF-8: name another.") from None
    if config.play.env is not None:
        parse_env_name(config.play.env)
    for name in ("env", "game"):
        value = getattr(config.play, name)
        if value is not None and not PLAIN_NAME.fullmatch(value):
            raise ConfigError(
                f"{flag_of(name)} {value!r} cannot be the name of an env or a game: letters, digits and "
                ". _ : / @ = , - may be in it."
            )


MOST_RAW_ERROR = 1e7
"""Greatest error that is assumed where rewards are not clipped: ten times the greatest score of published.json, 978,200
in Atlantis."""
_OF_WORKERS = " and ".join(WORKER_SCHEDULES)


def require_used(given: Mapping[str, Any], method: str) -> None:
    """Refuse settings that a user gave although they have no effect with the method.

    Raises:
        ConfigError: one of them has no effect.
    """
    unused = unused_settings(method_declaration(method))
    for name in given:
        if name in unused:
            flag, why = flag_of(f"no_{name}" if given[name] is False else name), unused[name].value
            raise ConfigError(f"{flag} has no effect with --method {method}, which {why}: omit it.")


def require_consistent(names: Container[str]) -> None:
    """Refuse settings that a user gave together although one leaves the other without meaning.

    Raises:
        ConfigError: two of them contradict each other.
    """
    if "env" in names and "game" in names:
        raise ConfigError("--game and --env both name what is played: pass one of them.")
    if "env" in names and "protocol" in names:
        raise ConfigError(
            "--protocol is the rules of Atari games, and --env plays by its own: pass one of them (--eval-episodes and "
            "--eval-epsilon for evaluations)."
        )


def conflicts(config: Config) -> Iterator[str]:
    """Sentences about the settings of a user, each of which is in its range."""
    play, learn, algorithm, run = config.play, config.learn, config.algorithm, config.run
    method, changed = method_declaration(algorithm.method), _changed(config)
    require_used(changed, method.name)
    eval_rules(play, config.evaluate, method)  # which refuses what it cannot do
    if learn.network != "impala" and (algorithm.width > 1 or algorithm.spectral_norm or algorithm.pooling):
        yield "--width, --pooling and --spectral-norm are for --network impala."
    if learn.network == "impala" and algorithm.normalize == "all":
        yield "--normalize all is for plain convolutions: pass --normalize last with --network impala."
    yield from _of_frames(config)
    yield from _of_annealing(config)
    if method.has_epsilon:
        yield from _of_exploration(config)
    if play.workers or learn.schedule in WORKER_SCHEDULES:
        yield from _of_workers(config, changed)
    else:
        yield from _of_learner(config, changed)
    if run.require_exact:
        causes = [f"--schedule {learn.schedule}"] if learn.schedule in INEXACT_SCHEDULES else []
        causes += ["--deterministic off"] if config.machine.deterministic == "off" else []
        for cause in causes:
            yield f"--require-exact refuses {cause}, whose weights no other run repeats: omit one of them."
    if play.emulators % play.lane_envs:
        nearest = max(1, round(play.envs / play.lane_envs)) * play.lane_envs
        yield (
            f"--envs {play.envs} cannot be divided into lanes of --lane-envs {play.lane_envs}; --lane-envs 1 takes any "
            f"number, else the nearest is --envs {nearest}."
        )
    if run.resume is not None and run.init_from is not None:
        yield "--resume continues a run and --init-from begins a new one: give one of them."
    if config.evaluate.eval_video and not config.evaluate.eval_every_steps:
        yield "--eval-video films evaluations beside training: pass --eval-every-steps N, too."


def conflicts_of_shards(config: Config) -> Iterator[str]:
    """Sentences about minibatches that cannot be divided, and schedules whose updates are not shared."""
    learn, shards, ranks = config.learn, config.machine.learner_shards, config.machine.learner_ranks
    yield from _above(config, "learner_shards", "batch_size", ": pass fewer")
    if ranks == 1:
        return
    if learn.schedule == "free":
        yield f"--learner-ranks {ranks} are for --schedule concurrent and alternate, not for free: omit one of the two."
    if config.algorithm.recurrent:
        yield f"--recurrent is for a learner of one process: omit --learner-ranks {ranks}."
    if shards is not None:
        price = ", though another number changes the last bits" if config.run.resume is not None else ""
        yield from _uneven("learner_shards", shards, ranks, f"--learner-ranks {ranks}, to be shared evenly{price}")
        yield from _uneven("batch_size", learn.batch_size, shards, f"--learner-shards {shards} with --learner-ranks")


def conflicts_of_resolved(config: ResolvedConfig) -> Iterator[str]:
    """Sentences about what `shared.config.resolve.resolve` filled in, together with what the user said."""
    play, machine = config.play, config.machine
    lanes = play.emulators // play.lane_envs
    if play.workers:
        yield from _of_processes_of_workers(config)
    elif machine.actors > lanes:
        yield (
            f"--actors {machine.actors} is more than the {count(lanes, 'lane')} of "
            f"--envs {play.envs} in lanes of {play.lane_envs}; every actor needs one, and two to work while it waits."
        )
    if machine.inference_batch % play.lane_envs or play.emulators % machine.inference_batch:
        yield (
            f"--inference-batch {machine.inference_batch} must be a multiple of --lane-envs {play.lane_envs} that "
            f"divides {'the emulators of --workers' if play.workers else '--envs'} {play.workers or play.envs}."
        )
    run_schedule = make_run_schedule(config)
    least = play.frame_stack + run_schedule.n_step - 1
    if not run_schedule.method.on_policy and not play.workers and run_schedule.window_ticks < least:
        yield (
            f"--replay-size {config.learn.replay_size:_} holds {run_schedule.window_ticks} ticks of --envs "
            f"{play.envs}, fewer than the {least} that an observation with --n-step {run_schedule.n_step} needs; "
            f"{least * play.envs:_} is the least."
        )
    if machine.acts_on == "cpu" and machine.acting_precision == "tf32":
        yield "--acting-precision tf32 is for CUDA devices; on a CPU pass fp32 or bf16."
    if not play.workers:
        yield from conflicts_of_shards(config)
    if machine.device == "cpu" and machine.precision == "tf32":
        yield "--precision tf32 is for CUDA devices; on a CPU pass fp32 or bf16."
    if machine.device == "cpu" and machine.replay_on == "device":
        yield "--replay-on device is for CUDA devices; on a CPU the learner reads shared memory anyway."


def _changed(config: Config) -> dict[str, Any]:
    """Settings that are not the defaults, by flat name."""
    usual = Config().to_flat()
    return {name: value for name, value in config.to_flat().items() if value != usual.get(name)}


def _above(config: Config, low: str, high: str, why: str = "") -> Iterator[str]:
    """A setting that is greater than another one."""
    flat = config.to_flat()
    if flat[low] is not None and flat[low] > flat[high]:
        yield f"{flag_of(low)} {shown(flat[low])} is more than {flag_of(high)} {shown(flat[high])}{why}."


def _uneven(name: str, value: int, unit: int, words: str) -> Iterator[str]:
    """A setting that is no multiple of a number, which `words` explain."""
    if value % unit:
        nearest = max(1, round(value / unit)) * unit
        yield f"{flag_of(name)} {value:_} must be a multiple of {words}; the nearest is {nearest:_}."


def _of_frames(config: Config) -> Iterator[str]:
    """Frames that the network, or the emulator of a game, cannot have."""
    play, size = config.play, config.play.frame_size
    yield from _uneven("frame_size", size, BLOCK, str(BLOCK))
    if play.env is None and size > SCREEN_WIDTH:
        yield f"--frame-size {size} is more than an Atari screen has: pass {SCREEN_WIDTH} or less."
    if play.env is None and play.frame_color != "gray":
        yield f"--frame-color {play.frame_color} is for --env: games of Atari are played in gray."
    least = least_frame_size(network_of(config, actions=1))
    if size < least:
        yield f"--frame-size {size} is too small for --network {config.learn.network}: {least} is the least."


def _of_annealing(config: Config) -> Iterator[str]:
    """An end without the steps to it, and steps without an end.

    A method may have settings that are annealed, too: their ends have names in _end, and are None by default.
    """
    steps, values = config.learn.anneal_steps, vars(config.learn) | vars(config.algorithm.settings)
    ends = {name: end for name, end in values.items() if name.endswith("_end") and end is not None}
    if not steps:
        for name, end in ends.items():
            yield f"{flag_of(name)} {end:g} needs --anneal-steps, the steps after which it is reached."
    elif not ends:
        yield (
            f"--anneal-steps {steps:_} has no effect, since no setting has an end: add --learning-rate-end, or omit it."
        )


def _of_exploration(config: Config) -> Iterator[str]:
    explore = config.explore
    if explore.epsilon_start == 0 and not config.algorithm.noisy:
        yield "Nothing would be explored: --epsilon-start is 0, and the network is not --noisy."
    if explore.epsilon_ladder and explore.epsilon_start == explore.epsilon_end == 0:
        yield "--epsilon-ladder has no effect with an epsilon of 0."
    yield from _above(config, "epsilon_end", "epsilon_start")


def _of_learner(config: Config, changed: Mapping[str, Any]) -> Iterator[str]:
    """Settings that only workers have, and others that a learner cannot learn from."""
    method = method_declaration(config.algorithm.method)
    for name in ("t_max", "local_replay", "epsilon_by_worker"):
        if name in changed:
            yield f"{flag_of(name)} is for --schedule {_OF_WORKERS}: omit it."
    yield from conflicts_of_shards(config)
    if method.by_workers:
        schedules = " or ".join(WORKER_SCHEDULES)
        yield f"--method {method.name} computes its gradients in workers: pass --schedule {schedules}, with --workers."
    yield from _of_rounds(config) if method.on_policy else _of_replay(config)


def _of_rounds(config: Config) -> Iterator[str]:
    """Rounds that an on-policy method cannot learn from."""
    algorithm, learn, envs, shards = config.algorithm, config.learn, config.play.envs, config.machine.learner_shards
    if learn.schedule == "free":
        yield (
            f"--method {algorithm.method} learns from whole rounds of one policy, which --schedule free does not keep: "
            "pass alternate or concurrent."
        )
    yield from _uneven("round_steps", learn.round_steps, envs, f"--envs {envs} with --method {algorithm.method}")
    why = f", since every step of a round is learned from with --method {algorithm.method}"
    yield from _uneven("round_steps", learn.round_steps, learn.batch_size, f"--batch-size {learn.batch_size:_}{why}")
    if not algorithm.recurrent:
        return
    ticks = learn.round_steps // envs
    sequences = learn.batch_size // ticks
    if learn.batch_size % ticks:
        sizes = [ticks * count for count in range(1, envs + 1) if envs % count == 0]
        fits = min(sizes, key=lambda size: abs(size - learn.batch_size))
        yield (
            f"--batch-size {learn.batch_size:_} must be a multiple of {ticks}, the ticks of a round of --round-steps "
            f"{learn.round_steps:_} with --envs {envs}, with --recurrent; the nearest that fits is {fits:_}."
        )
    if shards is not None and shards > sequences:
        yield (
            f"--learner-shards {shards} is more than the {sequences} envs whose rounds are one --batch-size "
            f"{learn.batch_size:_} with --recurrent: pass fewer."
        )


def _of_replay(config: Config) -> Iterator[str]:
    """A replay buffer that nothing could be learned from, or that the tree of priorities cannot hold."""
    play, learn = config.play, config.learn
    yield from _of_targets(config)
    yield from _above(config, "importance_start", "importance_end")
    yield from _above(config, "learning_starts", "total_steps", ": nothing would be learned")
    yield from _above(config, "batch_size", "learning_starts")
    yield from _above(config, "batch_size", "replay_size")
    run_schedule = make_run_schedule(config)
    if learn.replay_size // play.envs < run_schedule.round_ticks:
        steps = run_schedule.round_steps
        yield f"--replay-size {learn.replay_size:_} is smaller than one round, which has {steps:_} steps."
    yield from _of_priorities(config)
    if run_schedule.priorities > MOST_PRIORITIES:
        yield f"--replay-size {learn.replay_size:_} is more than {MOST_PRIORITIES:_}, the most for --prioritized."
    yield from _of_n_step(config, ends_with_round=0)


def _of_workers(config: Config, changed: Mapping[str, Any]) -> Iterator[str]:
    """Settings that workers cannot have, or that have no effect with them."""
    play, learn, algorithm = config.play, config.learn, config.algorithm
    method, schedule = method_declaration(algorithm.method), f"--schedule {learn.schedule}"
    if learn.schedule not in WORKER_SCHEDULES:
        yield (
            f"--workers {play.workers} is for --schedule {_OF_WORKERS}; with {schedule}, a learner does the updates: "
            "pass --envs."
        )
    if not play.workers:
        yield f"{schedule} needs --workers, the number of actor-learners: --preset a3c-async has 16."
    if config.machine.device.startswith("cuda"):
        yield (
            f"{schedule} computes on the CPU, not on --device {config.machine.device}: a GPU is for --preset ppo, "
            "impala or a3c."
        )
    if not replace(network_of(config, actions=1), recurrent=0).plain:
        yield (
            f"{schedule} trains plain convolutions and linear layers: pass --network a3c or nature, without --dueling, "
            "--noisy, --normalize and --method iqn."
        )
    if isinstance(algorithm.settings, OnPolicySettings) and algorithm.settings.epochs > 1:
        epochs = algorithm.settings.epochs
        yield f"--epochs {epochs} has no effect with {schedule}, where a step is used once: pass --epochs 1."
    if not method.on_policy:
        yield from _of_local_replay(config)
    emulators = f"--workers {play.workers} times --lane-envs {play.lane_envs} emulators play"
    without_effect = {"envs": emulators, "train_every": "--t-max says it", "replay_size": "--local-replay says it"}
    if not learn.local_replay:
        without_effect["batch_size"] = f"a gradient is that of --t-max {learn.t_max} steps of a worker"
    if not method.has_target_network:
        without_effect["round_steps"] = f"a round has --t-max {learn.t_max} steps of every emulator"
    for name in without_effect.keys() & changed.keys():
        if (name, changed[name]) != ("envs", play.emulators):
            why = without_effect[name]
            yield f"{flag_of(name)} {changed[name]:_} has no effect with {schedule}, since {why}: omit it."


def _of_local_replay(config: Config) -> Iterator[str]:
    """A method with a replay buffer whose workers could not draw from theirs."""
    play, learn, algorithm = config.play, config.learn, config.algorithm
    if not learn.local_replay:
        yield (
            f"--method {algorithm.method} learns from a replay buffer, which --schedule {learn.schedule} has for each "
            "worker alone: add --local-replay 10_000."
        )
    yield from _of_targets(config)
    if algorithm.prioritized:
        yield f"--prioritized makes no sense with --local-replay {learn.local_replay:_}: it is uniform."
    least = max(learn.batch_size, (play.frame_stack + algorithm.n_step + learn.t_max) * play.lane_envs)
    if learn.local_replay < least:
        yield f"--local-replay {learn.local_replay:_} is too small to draw from; {least:_} is the least."
    yield from _above(config, "learning_starts", "total_steps", ": nothing would be learned")
    if not learn.learning_starts:
        yield "--learning-starts 0 must be at least 1 with --local-replay."
    yield from _of_n_step(config, ends_with_round=1)


def _of_n_step(config: Config, ends_with_round: int) -> Iterator[str]:
    """Returns that are longer than what is there; `ends_with_round`: rounds played when the first update draws."""
    run_schedule, n_step, emulators = make_run_schedule(config), config.algorithm.n_step, config.play.emulators
    played_ticks = (run_schedule.first_learning_round + ends_with_round) * run_schedule.round_ticks
    if n_step > played_ticks:
        yield (
            f"--n-step {n_step} is more than the {played_ticks} steps that each of {emulators} emulators has made when "
            f"learning starts; --learning-starts {(n_step - ends_with_round) * emulators:_} is enough."
        )


def _of_targets(config: Config) -> Iterator[str]:
    """TD targets that no method could learn, and a support of c51 that cannot hold returns."""
    algorithm, support = config.algorithm, config.algorithm.settings
    if algorithm.munchausen and algorithm.double:
        yield (
            "--munchausen learns the soft value of a state, which no single action has that --double could choose: "
            "omit one of them."
        )
    if not isinstance(support, C51Settings):
        return
    if algorithm.munchausen:
        yield (
            "--munchausen averages over actions, which probabilities of fixed atoms do not survive: pass --method dqn, "
            "qr-dqn or iqn."
        )
    if algorithm.value_rescaling:
        yield (
            "--value-rescaling changes the scale of returns, and c51 has fixed atoms: choose --v-min and --v-max, or "
            "pass --method dqn, qr-dqn or iqn."
        )
    if not support.v_min < support.v_max:
        yield f"--v-min {support.v_min} must be below --v-max {support.v_max}."
    if not support.v_min <= 0 <= support.v_max:
        yield f"--v-min {support.v_min} to --v-max {support.v_max} must hold 0, the return after an episode's end."


def _of_priorities(config: Config) -> Iterator[str]:
    """An exponent with which priorities may reach the largest that there is, beyond which all are the same."""
    algorithm, transitions = config.algorithm, make_run_schedule(config).priorities
    if not transitions or algorithm.method == "c51":  # whose priority is a divergence of probabilities
        return
    error, power = _greatest_error(config), algorithm.priority_exponent
    largest = largest_weight(transitions) * WEIGHT_QUANTUM
    if error**power > largest:
        most = math.floor(100 * math.log(largest) / math.log(error)) / 100
        clip = "" if config.learn.clip_rewards else ", or clip rewards"
        remedy = f"Pass --priority-exponent {most:g} or less" if most > 0 else "Pass a smaller --replay-size"
        yield (
            f"--priority-exponent {power:g} is too much for errors of up to {error:.2g}, which these settings allow: "
            f"with --replay-size {config.learn.replay_size:_} all priorities beyond {largest:,.0f} would be the same. "
            f"{remedy}{clip}."
        )


def _greatest_error(config: Config) -> float:
    """The greatest error of a transition, summed over its quantiles, as far as the values are those of some policy."""
    learn, algorithm, settings = config.learn, config.algorithm, config.algorithm.settings
    error = MOST_RAW_ERROR
    if learn.clip_rewards and learn.discount < 1:
        reward = 1.0 + (-algorithm.munchausen_alpha * algorithm.munchausen_floor if algorithm.munchausen else 0.0)
        error = min(error, 2 * reward / (1 - learn.discount))
    if algorithm.value_rescaling:
        error = math.sqrt(error + 1) - 1 + RESCALING * error
    quantiles = settings.atoms if isinstance(settings, QRDQNSettings) else 1
    return error * (settings.iqn_samples if isinstance(settings, IQNSettings) else quantiles)


def _of_processes_of_workers(config: ResolvedConfig) -> Iterator[str]:
    """More processes than workers, and other sizes than theirs."""
    play, machine, schedule = config.play, config.machine, config.learn.schedule
    yield from _above(config, "actors", "workers", ", each of which runs on one process")
    only = dict.fromkeys(("learner_ranks", "learner_threads", "learner_shards", "inference_threads"), 1)
    for name, expected in (only | ({"inference_batch": play.lane_envs} if schedule == "async" else {})).items():
        if (value := getattr(machine, name)) not in (None, expected):
            yield (
                f"{flag_of(name)} {value} cannot be with --schedule {schedule}, whose workers compute for themselves: "
                "omit it."
            )


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
