"""Validation of a configuration: refusals, each a `ConfigError` of one sentence for the user, and warnings.

`settings` checks what a user gave, `recorded` what a file of a run holds, and `resolved` what `shared.config.resolve`
filled in: the range of each setting, which stands at its field, and combinations that make no sense. `episodes`,
`seed_of_play` and `require_between` check options of tasks. `config_warnings` is about settings that are possible but
look like a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shared.config.field_checks import MOST, check_ranges
from shared.config.method_declaration import C51Settings, OnPolicySettings, method_declaration
from shared.config.presets import PRESETS
from shared.config.protocols import eval_rules
from shared.config.run_schedule import MOST_PRIORITIES, make_run_schedule
from shared.config.sections import INEXACT_SCHEDULES, PARTS, WORKER_SCHEDULES, Algorithm, Learn
from shared.config.settings import Config, ResolvedConfig, unused_settings
from shared.config.trust import CLASS, WANDB_SETTINGS
from shared.env_name import parse_env_name
from shared.errors import ConfigError, require
from shared.files.plain_files import exists
from shared.frame_shape import BLOCK, SCREEN_WIDTH
from shared.network_spec import is_own, least_frame_size, network_names, network_of
from shared.text import PLAIN_NAME, count, flag_of, require_name, shown, words_of

MOST_EPISODES = 100_000
"""Bound of `--episodes`, far above the episodes of any protocol; lists of that length fit into memory."""

_DROPPED: Any = dict.fromkeys(("resume", "init_from", *WANDB_SETTINGS))
_OF_WORKERS = f"--schedule {' or '.join(WORKER_SCHEDULES)}"
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


def recorded(sections: dict[str, Any]) -> Config:
    """The configuration in a file of a run, checked as `settings` does; what it began with may be gone by now."""
    config = Config.from_json(sections)
    # A reader may lack the package for videos.
    settings(replace(config.with_settings(eval_video=False), run=replace(config.run, track="off", **_DROPPED)))
    return config


def settings(config: Config) -> None:
    """Check every number by itself and against the others, and every text."""
    run, usual = config.run, Config().to_flat()
    changed = {name: value for name, value in config.to_flat().items() if value != usual.get(name)}
    _check_texts(changed)
    _check_network(config.learn.network)
    ranges(config)
    for sentence in _conflicts(config, changed):
        raise ConfigError(sentence)
    if run.track == "wandb":
        require("--track wandb", "track", "wandb")
    if config.evaluate.eval_video:
        require("--eval-video", "video", "av")
    if run.resume is not None and not exists(run.resume):
        raise ConfigError(f"--resume {run.resume} does not exist.")


def resolved(config: ResolvedConfig) -> None:
    """Check what `shared.config.resolve.resolve` filled in, together with what the user said."""
    for sentence in _conflicts_of_resolved(config):
        raise ConfigError(sentence)


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
    if not 0 <= seed < MOST:
        raise ConfigError(f"--seed {seed:_} must {'not be negative' if seed < 0 else f'be below {MOST:_}'}.")


def require_between(flag: str, number: int, most: int) -> None:
    """Refuse a number of episodes, runs or frames to work through that is below 1 or above the most."""
    if not 1 <= number <= most:
        raise ConfigError(f"{flag} {shown(number):.80} must lie between 1 and {most:_}.")


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


def require_consistent(given: Mapping[str, Any]) -> None:
    """Refuse settings that a user gave together although one leaves the other without meaning.

    Raises:
        ConfigError: two of them contradict each other.
    """
    names = {name for name, value in given.items() if value is not None}
    if "env" in names and "game" in names:
        raise ConfigError("--game and an env, perhaps that of --config, both say what is played: pass one of them.")
    if "env" in names and "protocol" in names:
        own = "--eval-episodes and --eval-epsilon are for --env, too"
        raise ConfigError(f"--protocol is the rules of Atari games, not of --env: pass one of them ({own}).")


def _check_texts(changed: Mapping[str, Any]) -> None:
    """Check each text and path alone: config.json holds all of them, and readers of a run count on them."""
    for name, value in changed.items():
        if _NOT_UTF8.search(str(value)):
            raise ConfigError(f"{flag_of(name)} {value!a} is not UTF-8: name another.")
        if name == "env":
            parse_env_name(value)
        if name in ("env", "game") and not PLAIN_NAME.fullmatch(value):
            allowed = "letters, digits and . _ : / @ = , - may be in it"
            raise ConfigError(f"{flag_of(name)} {value!r} cannot be the name of an env or a game: {allowed}.")


def _check_network(name: str) -> None:
    """Check the name of a network: a built-in one, or a class that every process imports by this name."""
    if not is_own(name):
        require_name("--network", name, network_names())
    elif name.startswith("__main__:"):
        raise ConfigError(f"--network {name:.120} is in the program itself, which no process imports: use a module.")
    elif not CLASS.fullmatch(name):
        raise ConfigError(f"--network {name!r:.120} is no class of a module: write module:Class.")


def _conflicts(config: Config, changed: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the settings of a user, each of which is in its range; `changed` are not the defaults."""
    play, method = config.play, method_declaration(config.algorithm.method)
    require_used(changed, method.name)
    eval_rules(play, config.evaluate, method)  # which refuses what it cannot do
    yield from _of_needs(config, changed)
    yield from _of_network(config)
    yield from _above(config, "epsilon_end", "epsilon_start")
    if play.workers:
        yield from _of_workers(config, changed)
    if config.machine.learner_parts not in (None, *PARTS):
        yield f"--learner-parts {config.machine.learner_parts} is not one of 1, 2, 4, 8 and 16."
    if not method.on_policy:
        yield from _of_replay(config)
    elif not play.workers:
        yield from _of_rounds(config)
    if play.emulators % play.lane_envs:
        nearest = max(1, round(play.envs / play.lane_envs)) * play.lane_envs
        others = f"--lane-envs 1 takes any number, else the nearest is --envs {nearest}"
        yield f"--envs {play.envs} cannot be divided into lanes of --lane-envs {play.lane_envs}; {others}."


def _of_needs(config: Config, changed: Mapping[str, Any]) -> Iterator[str]:
    """Settings that work only with another one."""
    play, learn, algorithm, machine = config.play, config.learn, config.algorithm, config.machine
    schedule, method, explore = learn.schedule, method_declaration(algorithm.method), config.explore
    by_workers, learner, ranks = schedule in WORKER_SCHEDULES, not play.workers, machine.learner_ranks
    own, has_atoms = vars(algorithm.settings), isinstance(algorithm.settings, C51Settings)
    ends = [name for name in changed if name.endswith("_end") and name in vars(learn) | own]
    needs: tuple[tuple[Iterable[str], str, object], ...] = (
        (("width", "pooling", "spectral_norm"), "--network impala", learn.network == "impala"),
        (("normalize",), "another network than impala", learn.network != "impala" or algorithm.normalize != "all"),
        (("frame_color",), "--env, since games of Atari are played in gray", play.env),
        # Processes.
        (("schedule",), "--workers N, of which --preset a3c-async has 16", play.workers or not by_workers),
        (("workers", "t_max", "local_replay", "epsilon_by_worker"), _OF_WORKERS, by_workers),
        (("epsilon_end",), "--no-epsilon-by-worker, since it is drawn otherwise", not explore.epsilon_by_worker),
        (("workers",), f"--local-replay 10_000, or no --method {method.name}", learn.local_replay or method.on_policy),
        (("acting_device", "acting_precision"), "an inference server, which --workers have not", learner),
        (("device",), "a learner (--preset ppo), as --workers are on the CPU", learner or "cuda" not in machine.device),
        (("learner_ranks",), f"--schedule concurrent or alternate, not {schedule}", schedule != "free"),
        (("recurrent",), f"--learner-ranks 1, not {ranks}", ranks == 1),
        (("require_exact",), f"an exact --schedule, not {schedule}", schedule not in INEXACT_SCHEDULES),
        (("require_exact",), "--deterministic on", machine.is_deterministic),
        # Methods.
        (("method",), f"{_OF_WORKERS} with --workers", by_workers or not method.by_workers),
        (("schedule",), f"a replay buffer, not --method {method.name}", schedule != "free" or not method.on_policy),
        (("prioritized",), "one replay buffer for all, not --local-replay", learner),
        (("augment",), "--n-step 2 or more, with which each state has its own frames", algorithm.n_step > 1),
        (("augment",), "--replay-on host or auto, not device", machine.replay_on != "device"),
        (("double",), "--no-munchausen, as soft values choose no action", not algorithm.munchausen),
        (("munchausen", "value_rescaling"), "--method dqn, qr-dqn or iqn, not c51 with its fixed atoms", not has_atoms),
        (("epsilon_start",), "--noisy, or nothing is explored", explore.epsilon_start or algorithm.noisy),
        (("epsilon_ladder",), "an epsilon above 0", explore.epsilon_start or explore.epsilon_end),
        (ends, "--anneal-steps N, after which it is reached", learn.anneal_steps),
        (("anneal_steps",), "a setting with an end, as --learning-rate-end", ends),
        # Files.
        (("init_from",), "a new run, not --resume", config.run.resume is None),
        (WANDB_SETTINGS, "--track wandb", config.run.track == "wandb"),
        (("eval_video",), "--eval-every-steps N", config.evaluate.eval_every_steps),
    )
    for names, needed, is_there in needs:
        for name in names:
            if name in changed and not is_there:
                yield f"{' '.join(words_of(**{name: changed[name]}))} needs {needed}: pass that, or omit it."


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


def _of_network(config: Config) -> Iterator[str]:
    """Frames that the network, or the emulator of a game, cannot have, and a support that cannot hold returns."""
    size, network, own = config.play.frame_size, config.learn.network, config.algorithm.settings
    yield from _uneven("frame_size", size, BLOCK, str(BLOCK))
    if config.play.env is None and size > SCREEN_WIDTH:
        yield f"--frame-size {size} is more than an Atari screen has: pass {SCREEN_WIDTH} or less."
    if is_own(network) and config.algorithm.normalize != "none":
        yield f"--normalize {config.algorithm.normalize} is for built-in networks: pass --normalize none."
    if not is_own(network) and size < (least := least_frame_size(network_of(config, actions=1))):
        yield f"--frame-size {size} is too small for --network {network}: {least} is the least."
    if isinstance(own, C51Settings) and own.v_min >= own.v_max:
        yield f"--v-min {own.v_min} must be below --v-max {own.v_max}."
    if isinstance(own, C51Settings) and not own.v_min <= 0 <= own.v_max:
        yield f"--v-min {own.v_min} to --v-max {own.v_max} must hold 0, the return after an episode's end."


def _of_parts(config: ResolvedConfig) -> Iterator[str]:
    """Parts of an update that processes cannot share, and processes of another device."""
    machine = config.machine
    parts, members, ranks = machine.learner_parts, machine.learner_members, machine.learner_ranks
    if machine.device == "cpu" and ranks > 1:
        yield f"--learner-ranks {ranks} is for GPUs: on a CPU pass --learner-ranks 1 and --learner-members {ranks}."
    if machine.device != "cpu" and members > 1:
        yield f"--learner-members {members} is for a CPU: on {machine.device} pass --learner-members 1."
    if parts % machine.learner_processes:
        given = f"--learner-ranks {ranks}" if ranks > 1 else f"--learner-members {members}"
        divisors = ", ".join(str(each) for each in PARTS if parts % each == 0)
        yield f"{given} cannot share --learner-parts {parts} evenly: pass one of {divisors}."
    if ranks > 1:
        words = f"--learner-parts {parts} with --learner-ranks"
        yield from _uneven("batch_size", config.learn.batch_size, parts, words)


def _of_rounds(config: Config) -> Iterator[str]:
    """Rounds that an on-policy method cannot learn from."""
    learn, envs = config.learn, config.play.envs
    size, with_method = learn.batch_size, f"with --method {config.algorithm.method}"
    yield from _uneven("round_steps", learn.round_steps, envs, f"--envs {envs} {with_method}")
    why = f", since every step of a round is learned from {with_method}"
    yield from _uneven("round_steps", learn.round_steps, size, f"--batch-size {size:_}{why}")
    if not config.algorithm.recurrent:
        return
    ticks = learn.round_steps // envs
    if size % ticks:
        sizes = [ticks * count for count in range(1, envs + 1) if envs % count == 0]
        fits = min(sizes, key=lambda each: abs(each - size))
        why = f"the ticks of a round of --round-steps {learn.round_steps:_} with --envs {envs}, with --recurrent"
        yield f"--batch-size {size:_} must be a multiple of {ticks}, {why}; the nearest that fits is {fits:_}."


def _of_replay(config: Config) -> Iterator[str]:
    """A replay buffer that nothing could be learned from, or that the tree of priorities cannot hold."""
    play, learn, n_step, run_schedule = config.play, config.learn, config.algorithm.n_step, make_run_schedule(config)
    yield from _above(config, "importance_start", "importance_end")
    yield from _above(config, "learning_starts", "total_steps", ": nothing would be learned")
    if play.workers:
        least = max(learn.batch_size, (play.frame_stack + n_step + learn.t_max) * play.lane_envs)
        if learn.local_replay < least:
            yield f"--local-replay {learn.local_replay:_} is too small to draw from; {least:_} is the least."
    else:
        size, round_steps = learn.replay_size, run_schedule.round_steps
        yield from _above(config, "batch_size", "learning_starts")
        yield from _above(config, "batch_size", "replay_size")
        if size < round_steps:
            yield f"--replay-size {size:_} is smaller than one round, which has {round_steps:_} steps."
        if run_schedule.priorities > MOST_PRIORITIES:
            yield f"--replay-size {size:_} is more than {MOST_PRIORITIES:_}, the most for --prioritized."
    own_round = int(run_schedule.learns_same_round)  # its ticks are there when the updates of a round begin
    ticks = (run_schedule.first_learning_round + own_round) * run_schedule.round_ticks
    if n_step > ticks:
        played = f"the {ticks} steps that each of {play.emulators} emulators has made when learning starts"
        enough = f"--learning-starts {(n_step - own_round) * play.emulators:_} is enough"
        yield f"--n-step {n_step} is more than {played}; {enough}."


def _of_workers(config: Config, changed: Mapping[str, Any]) -> Iterator[str]:
    """Settings that workers cannot have, or that have no effect with them."""
    play, learn, own = config.play, config.learn, config.algorithm.settings
    method, schedule = method_declaration(config.algorithm.method), f"--schedule {learn.schedule}"
    if not replace(network_of(config, actions=1), recurrent=0).plain:
        without = "without --dueling, --noisy, --normalize and --method iqn"
        yield f"{schedule} trains plain layers: pass --network a3c or nature, {without}."
    if isinstance(own, OnPolicySettings) and own.epochs > 1:
        yield f"--epochs {own.epochs} has no effect with {schedule}, where a step is used once: pass --epochs 1."
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


def _conflicts_of_resolved(config: ResolvedConfig) -> Iterator[str]:
    """Sentences about what `shared.config.resolve.resolve` filled in, together with what the user said."""
    play, machine, run_schedule = config.play, config.machine, make_run_schedule(config)
    lane_envs, batch, lanes = play.lane_envs, machine.inference_batch, run_schedule.lanes
    if play.workers:
        yield from _of_processes_of_workers(config)
    elif machine.actors > lanes:
        of_envs = f"{count(lanes, 'lane')} of --envs {play.envs} in lanes of {lane_envs}"
        yield f"--actors {machine.actors} is more than the {of_envs}: pass at most one for each."
    if batch % lane_envs or play.emulators % batch:
        all_of = f"the emulators of --workers {play.workers}" if play.workers else f"--envs {play.envs}"
        yield f"--inference-batch {batch} must be a multiple of --lane-envs {lane_envs} that divides {all_of}."
    # Of the replay buffer, which a short run does not fill. Of two neighboring ticks one at least is a step.
    ticks = config.learn.replay_size // run_schedule.round_steps * run_schedule.round_ticks
    least = play.frame_stack + run_schedule.n_step
    if not run_schedule.method.on_policy and not play.workers and ticks < least:
        held = f"--replay-size {config.learn.replay_size:_} holds {ticks} ticks of --envs {play.envs}, fewer than the "
        fits = -(-least // run_schedule.round_ticks) * run_schedule.round_steps
        yield f"{held}{least} that an observation with --n-step {run_schedule.n_step} needs; {fits:_} is the least."
    if machine.acts_on == "cpu" and machine.acting_precision == "tf32":
        yield "--acting-precision tf32 is for CUDA devices; on a CPU pass fp32 or bf16."
    if not play.workers:
        yield from _of_parts(config)
    if machine.device == "cpu" and machine.precision == "tf32":
        yield "--precision tf32 is for CUDA devices; on a CPU pass fp32 or bf16."
    if machine.device == "cpu" and machine.replay_on == "device":
        yield "--replay-on device is for CUDA devices; on a CPU the learner reads shared memory anyway."


def _of_processes_of_workers(config: ResolvedConfig) -> Iterator[str]:
    """More processes than workers, and other sizes than theirs."""
    schedule = config.learn.schedule
    yield from _above(config, "actors", "workers", ", each of which runs on one process")
    only = dict.fromkeys(("learner_ranks", "learner_parts", "learner_members", "inference_threads"), 1)
    if schedule == "async":
        only["inference_batch"] = config.play.lane_envs
    for name, expected in only.items():
        if (value := getattr(config.machine, name)) not in (None, expected):
            why = f"--schedule {schedule}, whose workers compute for themselves"
            yield f"{flag_of(name)} {value} cannot be with {why}: omit it."


_PARTS = {
    "prioritized": ("priority_exponent", "importance_start", "importance_end", "importance_steps"),
    "noisy": ("noisy_std",),
    "munchausen": ("munchausen_alpha", "munchausen_temperature", "munchausen_floor"),
}
_KNOWN = [Algorithm(), *(preset.algorithm for preset in PRESETS.values())]


def config_warnings(config: Config) -> list[str]:
    """Sentences about settings that a user may not have meant."""
    return [*_parts_that_are_off(config.algorithm), *_length(config), *_of_optimizer(config.learn)]


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
    steps, rounds = run_schedule.round_steps, run_schedule.rounds
    if not run_schedule.updates_before(rounds):
        begins = f"updates begin with round {run_schedule.first_learning_round + 1}, and there are {rounds}"
        more = "More --total-steps" + ("" if resumes else ", or fewer --learning-starts or --round-steps,")
        yield f"Nothing will be learned: rounds have {steps:_} steps, {begins}. {more} would change that."
        return
    if rounds * steps > 1.5 * total:
        yield f"The run will play {rounds * steps:_} steps, not --total-steps {total:_}: a round has {steps:_} steps."
    if (every := config.evaluate.eval_every_steps) > rounds * steps:
        yield f"No evaluation beside training: the run has fewer steps than --eval-every-steps {every:_}."
    explore, left = config.explore, total - (0 if run_schedule.method.on_policy else config.learn.learning_starts)
    has_epsilon = run_schedule.shown_epsilon(0, explore) is not None and not resumes
    if has_epsilon and 0 < left < explore.epsilon_steps / 2:  # to explore for half of a run is common
        start, end = explore.epsilon_start, explore.epsilon_end
        reached = f"{start + left / explore.epsilon_steps * (end - start):.2g}"
        if float(reached) != start:
            falls = f"come from {start:g} to {reached} in {total:_} steps"
            advice = f"--epsilon-steps {left:_} would bring it to {end:g}"
            yield f"The chance of a random action will only {falls}; {advice}."


def _of_optimizer(learn: Learn) -> Iterator[str]:
    left, epsilon = learn.total_steps - learn.anneal_steps, learn.optimizer_epsilon
    if learn.learning_rate_end == 0 and left > 0:
        steps = f"--anneal-steps {learn.anneal_steps:_}"
        yield f"The learning rate is 0 after {steps}: the last {left:_} steps learn nothing."
    if learn.optimizer in ("adam", "radam") and epsilon == Learn().optimizer_epsilon:
        kept = f"RMSProp's --optimizer-epsilon {epsilon:g}; usual are 1e-8 to 1.5e-4"
        yield f"--optimizer {learn.optimizer} keeps {kept}, and 0.999 for --optimizer-decay."
