"""Checks of a machine for a run before it starts: each is a function of facts and returns green, yellow or red.

Every start runs `before_start`, whose facts cost nothing: red refuses the run, yellow is a warning. `launch.py doctor`
shows the same checks and slower ones.

`look_at` has two fresh processes play a user's env from the same seed, with the same actions. It finds what would end
the run, and whether the env repeats itself. The launcher itself never makes the env: its code could keep the launcher
from ending.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import multiprocess

from actors import env_trial
from actors.env import EnvError
from actors.env_trial import EnvSample
from actors.make_env import action_names
from ringside.run.children import ChildProcess, exit_in_words, require_main_guard
from shared.config.sections import Play
from shared.config.settings import ResolvedConfig
from shared.config.trust import code_named
from shared.config.validate import config_warnings
from shared.errors import ConfigError
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.frame_shape import FrameShape
from shared.machine import facts
from shared.machine.subprocesses import REAP_SECONDS, wait_for_end
from shared.memory import memory_need
from shared.memory.plan import Plan
from shared.process import ownership
from shared.text import count, printable, shell_line, words_of

LIMIT_SECONDS = 60.0
NOTE_SECONDS = 5.0
"""Time after which the user is told what the command waits for."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class EnvLook:
    """Findings of a look."""

    action_names: tuple[str, ...]
    repeats: bool
    """True if both processes saw equal frames, rewards and ends."""
    only_one: str | None
    """Sentence about the second env of a process, if it cannot be made; None: it can."""


_names_in_game = cache(action_names)


def action_names_of(play: Play) -> tuple[str, ...]:
    """Names of the actions. Raises `EnvError` if the game is unknown, or the look refuses the env."""
    return _names_in_game(play) if play.env is None else look_at(play.env, play.frames).action_names


def require_env_fits(config: ResolvedConfig) -> None:
    """Raise `ConfigError` if a process of the run would make several envs, and only one can be made."""
    play = config.play
    if play.env is None or (only_one := look_at(play.env, play.frames).only_one) is None:
        return
    evaluates = config.evaluate.eval_every_steps and config.evaluate.eval_envs > 1
    if evaluates or play.emulators > config.machine.actors:
        raise ConfigError(only_one)


@cache
def look_at(env: str, frames: FrameShape) -> EnvLook:
    """Look at an env, once in the life of this process.

    Raises:
        EnvError: the env cannot be used.
    """
    require_main_guard()
    begun = time.monotonic()
    with ExitStack() as held:
        trials = [held.enter_context(closing(_Trial(env, frames))) for _ in range(2)]
        first, second = (trial.sample(begun) for trial in trials)
    common = min(len(first.ticks), len(second.ticks))
    same = first.ticks[:common] == second.ticks[:common] and first.action_names == second.action_names
    return EnvLook(first.action_names, same, first.only_one)


class _Trial:
    """A process that plays an env for some time."""

    def __init__(self, env: str, frames: FrameShape) -> None:
        """Start it."""
        self._env, self._call = env, "its import, or its factory"
        self._connection, theirs = multiprocess.Pipe(duplex=False)
        self._process = ChildProcess(target=env_trial.main, args=(theirs, env, frames), daemon=True)
        with theirs:
            self._process.start()

    def sample(self, begun: float) -> EnvSample:
        """Result of the process. Raises `EnvError` if the env cannot be used, or does not return."""
        noted = time.monotonic() > begun + NOTE_SECONDS  # by the other trial
        while True:
            ended = self._process.exitcode is not None  # processes that it has started may hold its pipe
            if self._connection.poll(_POLL_SECONDS):
                try:
                    message = self._connection.recv()
                except EOFError:
                    raise self._lost() from None
                if isinstance(message, EnvSample):
                    return message
                if not isinstance(message, str):
                    raise EnvError(str(message)) from message
                self._call = message
            elif ended:
                raise self._lost()
            elapsed, limit = time.monotonic() - begun, f"{LIMIT_SECONDS:.0f} s"
            if elapsed > NOTE_SECONDS and not noted:
                noted = True
                text = f"Playing --env {self._env} before the start, for {limit} at most ..."
                print(printable(text), file=sys.stderr)
            if elapsed > LIMIT_SECONDS:
                raise EnvError(f"--env {self._env} did not return from {self._call} within {limit}.")

    def _lost(self) -> EnvError:
        """The error of a process that ended without a result."""
        wait_for_end(self._process, REAP_SECONDS)
        how = exit_in_words(self._process.exitcode or 0)
        return EnvError(f"The process of --env {self._env} {how} in {self._call}: its code must not end the program.")

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._process.kill()
        if wait_for_end(self._process, REAP_SECONDS):
            self._process.join()
        self._connection.close()


Color = Literal["green", "yellow", "red"]

MB, GB = 10**6, 10**9
TIGHT = 0.9
"""Share of the free memory from which a run counts as tight."""
DESCRIPTORS, DESCRIPTORS_OF_A_PROCESS = 64, 4
"""Open files of the launcher: a fixed number, and for every process doorbell, handle, pipe and claimed core."""
TASKS, TASKS_OF_A_LEARNER, TASKS_OF_AN_ACTOR = 64, 3, 2
"""Threads: a fixed number (CUDA starts some thirty), those of each process of the learner, and of an actor."""
LEAST_DISK = 100 * MB
"""Free bytes below which even the weights may not fit."""
COMPRESSED = 10
"""Conservative compression ratio of a checkpoint's replay (frames of real games: 39)."""


class Check(NamedTuple):
    """Result of one check."""

    name: str
    color: Color
    found: str
    """Finding, as a sentence."""
    advice: str = ""
    """Remedy, as a sentence; empty if none is needed."""

    @property
    def sentence(self) -> str:
        """Finding and remedy."""
        return f"{self.found} {self.advice}".strip()


def before_start(plan: Plan, *, continues: bool) -> list[Check]:
    """Checks of every start; they take a few milliseconds and write nothing.

    Args:
        plan: resolved and validated.
        continues: True if the run of the run directory is continued.
    """
    warned = [Check("settings", "yellow", sentence) for sentence in config_warnings(plan.config)]
    return [
        *(warned or [Check("settings", "green", "No setting looks like a mistake.")]),
        *environment(plan.config),
        processor(platform.machine()),
        cores(plan, facts.usable_cores()),
        memory(plan, facts.usable_memory()),
        descriptors(plan, *resource.getrlimit(resource.RLIMIT_NOFILE)),
        tasks(plan, facts.free_tasks()),
        run_directory(plan, continues=continues),
        disk_space(plan, shutil.disk_usage(nearest_directory(plan.config.run.run_dir)).free),
    ]


def refuse(answers: Iterable[Check]) -> None:
    """Raise `ConfigError` with the sentence of the first red check, if any."""
    for answer in answers:
        if answer.color == "red":
            raise ConfigError(answer.sentence)


def environment(config: ResolvedConfig) -> list[Check]:
    """An env of the user's, by the look at it."""
    play = config.play
    if play.env is None:
        return []
    if look_at(play.env, play.frames).repeats:
        return [Check("env", "green", f"Two processes played {play.env} alike.")]
    found = f"{play.env} does not repeat itself after reset(seed=...): two processes with equal actions differ."
    if config.run.require_exact:
        return [Check("env", "red", found, "Omit --require-exact to train on it all the same.")]
    return [Check("env", "yellow", found, "The run is not exact: a kill or a resume cuts its episodes.")]


def processor(kind: str) -> Check:
    """Instruction set, as in `uname -m`.

    Processes rely on seeing each other's writes in order, which x86-64 guarantees and others do not (docs/design.md).
    """
    if kind == "x86_64":
        return Check("processor", "green", f"{kind}.")
    return Check("processor", "red", f"This processor is {kind}; Ringside needs x86-64.", "Take such a machine.")


def cores(plan: Plan, usable: int) -> Check:
    """Actors against the cores that affinity and control groups allow."""
    if plan.actors > usable:
        advice = "They share cores and play no faster than fewer would."
        return Check("cores", "yellow", f"--actors {plan.actors} share {count(usable, 'core')}.", advice)
    return Check("cores", "green", f"{count(usable, 'core')} may be used, by {count(plan.actors, 'actor')}.")


def memory(plan: Plan, usable: int) -> Check:
    """Memory of the run against the bytes that physical memory and control groups allow."""
    try:
        memory_need.require_memory(plan, usable)
    except ConfigError as error:
        return Check("memory", "red", str(error))
    need = plan.layout.size + memory_need.own_bytes(plan)
    found = f"{need / GB:.1f} GB are needed, {usable / GB:.1f} GB are free"
    if need > TIGHT * usable:
        advice = f"Another program may cause the kernel to kill the run; {plan.less_memory}."
        return Check("memory", "yellow", f"Memory is tight: {found}.", advice)
    return Check("memory", "green", f"{found}.")


def descriptors(plan: Plan, soft: int, hard: int) -> Check:
    """Open files of the launcher against `ulimit -n`.

    Args:
        soft: the limit in force; below 0: none.
        hard: largest limit that may be set; below 0: none.
    """
    need = DESCRIPTORS + DESCRIPTORS_OF_A_PROCESS * len(plan.processes)
    if 0 <= soft < need:
        raised = hard < 0 or hard >= need
        advice = f"Run first: ulimit -n {need}" if raised else "Fewer --actors need fewer, or ask for a higher limit."
        return Check("open files", "red", f"This run opens up to {need:,} files, and {soft:,} are allowed.", advice)
    return Check("open files", "green", f"{need:,} are needed, and allowed.")


def tasks(plan: Plan, free: int | None) -> Check:
    """Processes and threads against `ulimit -u` and the pids limit of control groups; None: no limit."""
    machine = plan.config.machine
    need = TASKS + TASKS_OF_A_LEARNER * machine.learner_processes + machine.inference_threads
    need += TASKS_OF_AN_ACTOR * plan.actors
    if free is not None and free < need:
        found = f"This run starts up to {need:,} processes and threads, and {free:,} more are allowed."
        advice = "Raise ulimit -u or the control group's limit of tasks, or take fewer --actors."
        return Check("processes", "red", found, advice)
    return Check("processes", "green", f"Up to {need:,} with threads are needed, and allowed.")


def run_directory(plan: Plan, *, continues: bool) -> Check:
    """Run directory that can be written and holds no other run."""
    run = plan.config.run
    try:
        require_run_directory(run.run_dir, continues=continues, **code_named(plan.config))
    except ConfigError as error:
        return Check("run directory", "red", str(error))
    return Check("run directory", "green", f"{run.run_dir} can be written.")


def disk_space(plan: Plan, free: int) -> Check:
    """Free disk space against two checkpoints."""
    run = plan.config.run
    region = plan.layout.size if run.checkpoint_replay and not plan.method.on_policy else 0
    need = LEAST_DISK + region // COMPRESSED + 2 * 16 * plan.parameters.count
    color: Color = "red" if free < LEAST_DISK else "yellow" if free < need else "green"
    found = f"{free / GB:.1f} GB are free at --run-dir {run.run_dir}, and checkpoints may take {need / GB:.1f} GB."
    return Check("disk space", color, found, "" if color == "green" else "Make room, or name one on another disk.")


def nearest_directory(path: Path) -> Path:
    """The path, or its closest existing parent."""
    return next(above for above in (path.absolute(), *path.absolute().parents) if os.path.exists(above))


def require_run_directory(path: Path, *, continues: bool, **code: str | None) -> None:
    """Raise `ConfigError` for a directory that is not writable, or holds another run than the continued one.

    `code`: the settings of `code_named`, which --resume requires again.
    """
    ownership.require_writable_run(path, "--run-dir")
    if any(path.glob("checkpoints/checkpoint-*.json")) and not continues:
        more = "N" if read_object(path / SUMMARY_FILE).get("finished") is True else None
        words = ["--resume", str(path), *words_of(**code, total_steps=more)]
        raise ConfigError(
            f"--run-dir {path} already holds a run; name another, or continue that one with {shell_line(words)}."
        )
    above = nearest_directory(path)
    if not os.path.isdir(above) or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"--run-dir {path} cannot be written: {above} is not a directory that this user may write.")
