"""The Python API: plans, runs and evaluates. `ringside` offers these names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.agents.agent import (
    ROWS,
    evaluation_result,
    make_evaluation_policy,
    play_of,
    require_actions,
    rules_of,
    weights_at,
)
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.settings import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE, Config
from shared.config.trust import load_plugin, require_env, require_name, require_plugin
from shared.errors import ConfigError
from shared.files.atomic import PRIVATE_UMASK, read_json, read_object, remove_temporaries, write_atomic
from shared.files.lock import locked
from shared.process.live import LIVE_FILE, Live, withdraw
from shared.process.ownership import LOCK_FILE, require_writable_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringside.watch.status import Status
    from shared.checkpoint.manifest import Manifest
    from shared.memory.run_memory import Memory, Plan


def train(
    *, preset: str | None = None, on_status: Callable[[Status], None] | None = None, **settings: Any
) -> dict[str, Any]:
    """Train, and return what `summary.json` holds. A run that Ctrl-C has stopped says `"finished": False` there.

    Args:
        preset: what the settings that are not given default to, "nature" unless given; not together with `resume`.
        on_status: called several times a second with the state of the run. What it raises stops the run, which saves
            its last boundary and can be resumed; then it is raised here.
        settings: any field of any section of `shared.config.settings.Config`.

    Raises:
        ConfigError: the settings cannot work. ArenaError: there is too little memory. RunFailed: a fault ended the run.
    """
    start = starting_point(preset, *(settings.get(name) for name in ("resume", "env", "plugin")))
    config = start.with_settings(**settings)
    return run(plan(config), on_status or (lambda status: None), lambda sentence: None)


def run(ready: Plan, on_status: Callable[[Status], None], note: Callable[[str], None]) -> dict[str, Any]:
    """Train as planned, in its run directory; `note` is told in sentences what happens. Else as `train`."""
    from actors.pixels.compilation import compile_kernels
    from ringside.doctor import checks
    from ringside.recording.metrics import totals_before
    from ringside.supervisor import supervisor
    from ringside.tracking.wandb_track import tracking
    from ringside.watch.observer import Observer, Restored

    run_dir = ready.config.run.run_dir
    observer: Observer | None = None
    restored: Restored | None = None

    def look(memory: Memory) -> None:
        nonlocal observer
        if observer is None:
            observer = Observer(memory, restored)
            _announce(ready, memory, note)
        on_status(observer.observe())

    for answer in checks.before_start(ready, continues=True):  # `plan` has refused what is red
        if answer.color == "yellow":
            note(answer.sentence)
    if ready.config.run.resume is not None:
        from shared.checkpoint.finding import find_checkpoint

        checkpoint = find_checkpoint(ready.config.run.resume)
        for sentence in checkpoint.refused:
            note(f"{sentence} Going on from {checkpoint.path.name} instead.")
        totals = totals_before(checkpoint.directory.parent / METRICS_FILE, checkpoint.boundary)
        restored = Restored(checkpoint.boundary, totals)
    beginning = learning_begins(ready, restored.boundary if restored else 0)
    if beginning is not None:
        note(beginning)
    with _owned(run_dir, ready.config), tracking(ready.config.run, look, note) as look_on:
        compile_kernels()  # once, into numba's cache, rather than by every actor at the same time
        try:
            supervisor.train(ready, look_on, note)
        finally:
            withdraw(run_dir)
        return read_json(run_dir / SUMMARY_FILE)


def learning_begins(ready: Plan, boundary: int) -> str | None:
    """The sentence that says at which step a run that is at a boundary begins to learn; None: it learns already, or
    never will."""
    run_schedule, starts = ready.run_schedule, ready.config.learn.learning_starts
    begins = run_schedule.learning_begins
    if boundary * run_schedule.round_steps >= begins or not run_schedule.updates_before(run_schedule.rounds):
        return None
    waits = begins != starts and not ready.method.on_policy
    after = f", with the first whole round after --learning-starts {starts:_}" if waits else ""
    return f"Learning begins at step {begins:,}{after}."


def _announce(ready: Plan, memory: Memory, note: Callable[[str], None]) -> None:
    """Say in the run directory where the run can be looked on. That it cannot be said ends no run."""
    from actors.make_env import action_names

    try:
        live = Live.for_this_process(memory.arena.fd, action_names(ready.config.play))
        with _private():
            live.write(ready.config.run.run_dir)
    except OSError as error:
        note(f"{LIVE_FILE} cannot be written ({error.strerror}): this run cannot be looked on with launch.py watch.")


@contextmanager
def _owned(run_dir: Path, config: Config) -> Iterator[None]:
    """Make a run directory, keep every other launcher out of it, and write down what is run in it.

    What is made is for its owner only (the children see to that by themselves: shared/process/child.py).
    """
    content = json.dumps(config.to_json(), indent=2).encode() + b"\n"
    with ExitStack() as held:
        try:
            with _private():
                run_dir.mkdir(parents=True, exist_ok=True)
                require_writable_run(run_dir, "--run-dir")
                held.enter_context(locked(run_dir / LOCK_FILE, "--run-dir", "a run that is still going on, or saving"))
                remove_temporaries(run_dir)
                write_atomic(run_dir / CONFIG_FILE, content)
        except OSError as error:
            raise ConfigError(f"--run-dir {run_dir} cannot be written: {error.strerror}.") from error
        yield


@contextmanager
def _private() -> Iterator[None]:
    """Files and directories that are made meanwhile are for their owner only, whatever the umask was."""
    former = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(former)


def starting_point(
    preset: str | None, resume: str | Path | None, env: str | None = None, plugin: str | None = None
) -> Config:
    """The configuration that single settings override: a preset's, nature's unless given, or the run's to resume.

    Args:
        env: as the user names it. A run to resume that was trained on an env `module:factory` requires it: no file
            chooses code (shared/config/trust.py).
        plugin: as the user names it; it is imported here. A run to resume that was trained with one requires it.
    """
    load_plugin(plugin)
    if resume is None:
        preset = preset or "nature"
        require_name("--preset", preset, list(PRESETS))
        return PRESETS[preset]
    if preset is not None:
        raise ConfigError("--resume keeps the settings of its run: omit --preset.")
    from actors.make_env import is_registered
    from shared.checkpoint.finding import find_checkpoint
    from shared.checkpoint.manifest import CHECKPOINTS
    from shared.config import validate
    from shared.errors import CheckpointError

    try:
        checkpoint = find_checkpoint(Path(resume))
    except CheckpointError as error:
        raise ConfigError(f"--resume {resume} cannot be resumed. {error}") from error
    require_plugin(checkpoint.config.get("run", {}).get("plugin"), plugin, what="This run")
    try:
        saved = Config.from_json(checkpoint.config)
        validate.recorded(saved)
    except ConfigError as error:
        raise ConfigError(f"--resume {resume} cannot be resumed. {error}") from error
    require_env(saved.play, env, what="This run", is_registered=is_registered)
    in_run = checkpoint.directory.absolute().name == CHECKPOINTS
    run_dir = checkpoint.run_dir if in_run else None  # beside a checkpoint that lies elsewhere nothing is written
    run = replace(saved.run, run_dir=run_dir, resume=Path(resume), init_from=None, plain=False, track="off")
    return replace(saved, run=run)


def check(config: Config) -> Plan:
    """Check the settings of a configuration and answer what it leaves open; memory and files are not looked at.

    Raises `ConfigError` with a sentence when it cannot work on this machine.
    """
    from actors.make_env import action_count
    from ringside.zoo.catalogue import find
    from shared.config import validate
    from shared.config.resolve import resolve
    from shared.memory.run_memory import Plan

    if config.run.init_from is not None:
        config = config.with_settings(init_from=find(config.run.init_from, "--init-from"))
    validate.settings(config)
    method_declaration(config.algorithm.method)
    if config.play.env is None:
        from actors.envs.atari import game_name

        config = config.with_settings(game=game_name(config.play.game))
    config = resolve(config)
    validate.resolved(config)
    return Plan(config, action_count(config.play))


def plan(config: Config) -> Plan:
    """As `check`; the checkpoint to go on from, and what the machine has for the run, are looked at, too.

    Nothing is started or written. Raises `ConfigError` with a sentence when the run cannot work on this machine.
    """
    from ringside.doctor import checks

    ready = check(config)
    checks.refuse(checks.before_start(ready, continues=continues(ready)))
    return ready


def continues(ready: Plan) -> bool:
    """Whether the run directory's own run is continued.

    Raises `ConfigError` when the checkpoint or the weights to begin with do not suit the plan, or the run is finished.
    """
    from ringside.recording.metrics import require_readable
    from shared.checkpoint.finding import find_checkpoint
    from shared.checkpoint.weights_file import load_weights
    from shared.errors import CheckpointError, FileError

    config, run = ready.config, ready.config.run
    own = False
    try:
        if run.resume is not None:
            checkpoint = find_checkpoint(run.resume)
            checkpoint.require(config)
            if not checkpoint.has_replay:
                raise ConfigError(
                    f"{checkpoint.path} was made with --no-checkpoint-replay and cannot be resumed exactly; begin a "
                    f"new run from its weights with --init-from {run.resume}."
                )
            own = os.path.isdir(run.run_dir) and run.run_dir.samefile(checkpoint.run_dir)
            require_readable(checkpoint.run_dir / METRICS_FILE)
            _require_more_to_do(checkpoint, ready)
    except (CheckpointError, FileError) as error:
        raise ConfigError(f"--resume {run.resume} cannot be continued. {error}") from error
    if run.init_from is not None:
        try:
            load_weights(run.init_from).require(network=ready.network, actions=ready.actions)
        except CheckpointError as error:
            raise ConfigError(f"--init-from {run.init_from} cannot be used. {error}") from error
    return own


def _require_more_to_do(checkpoint: Manifest, ready: Plan) -> None:
    """Raise `ConfigError` when the run of a checkpoint has played all that the plan says, and written it down."""
    from ringside.recording.metrics import evaluations_in
    from shared.memory.evaluation_queue import evaluations_until

    resume, run_schedule = ready.config.run.resume, ready.run_schedule
    played = checkpoint.boundary * run_schedule.round_steps
    if checkpoint.boundary > run_schedule.rounds:
        raise ConfigError(
            f"--resume {resume} has already played {played:_} steps, more than "
            f"--total-steps {ready.config.learn.total_steps:_}."
        )
    if checkpoint.boundary < run_schedule.rounds:
        return
    run_dir = checkpoint.run_dir
    summed_up = read_object(run_dir / SUMMARY_FILE).get("rounds") == checkpoint.boundary
    due = evaluations_until(checkpoint.boundary, run_schedule.round_steps, ready.config.evaluate.eval_every_steps)
    if summed_up and len(evaluations_in(run_dir / METRICS_FILE)) >= due:
        raise ConfigError(
            f"--resume {resume} is a finished run, of {played:_} steps; pass --total-steps N, more than that, to "
            "continue it."
        )


def evaluate(
    load: str | Path,
    *,
    env: str | None = None,
    plugin: str | None = None,
    episodes: int | None = None,
    seed: int = 1,
    device: str = "auto",
    eval_epsilon: float | None = None,
    eval_max_frames: int | None = None,
) -> dict[str, Any]:
    """Play whole episodes with trained weights by the rules of their protocol and run, and judge the raw returns.

    Args:
        load: a run directory, a checkpoint, a file of weights or the name of an agent in the zoo.
        env: the `module:factory` or `module:Id-v0` that the agent was trained on. What the file says is only compared
            with it, so that no file chooses code.
        plugin: the plug-in that the agent was trained with, likewise.
        episodes: how many; by default as the protocol says, which may count steps instead.
        eval_epsilon: chance of a random action; by default that of the run that trained the weights.
        eval_max_frames: emulator frames after which an episode is cut; by default that of the run, too.

    Returns:
        JSON values: episodes, mean, sd (population), median, best, human_normalised and what they were measured with.
    """
    from shared.config import validate

    validate.episodes(episodes, seed)
    weights = weights_at(load, env, plugin)
    play = play_of(weights)
    rules = rules_of(weights, play, eval_epsilon=eval_epsilon, eval_max_frames=eval_max_frames)
    require_actions(weights, play)
    # After the refusals, which need not wait for torch.
    import numpy as np

    from actors.evaluation import play_episodes, play_steps
    from learner.networks.policy import greedy
    from shared.config.protocols import PROTOCOLS
    from shared.config.settings import FRAME_SIDE, STACK

    protocol = PROTOCOLS[weights.protocol]
    network = make_evaluation_policy(weights, device, ROWS, captured=False)  # this may be a user's program
    stacks = np.zeros((ROWS, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)

    def ask() -> NDArray[np.uint8]:
        return greedy(network.policy.q_values(stacks)).astype(np.uint8)

    steps = protocol.eval_steps if episodes is None else None
    if steps is not None:
        played = play_steps(play, rules, seed, 0, steps, stacks, ask, drops_last=protocol.drops_last_episode)
    else:
        played = play_episodes(play, rules, seed, 0, episodes or protocol.eval_episodes, stacks, ask)
    return evaluation_result(
        weights, network, rules, seed, played.returns.tolist(), int(played.lengths.sum()), eval_steps=steps
    )
