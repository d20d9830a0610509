"""Checks of a machine for a run: each is a pure function of facts and returns green, yellow or red.

Every start runs `before_start`, whose facts cost nothing: red refuses the run, yellow is a warning. `launch.py doctor`
shows the same checks and slower ones.
"""

from __future__ import annotations

import operator
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ringside.doctor import run_directories
from ringside.env_look import look_at
from shared.config.checks.config_warnings import config_warnings
from shared.config.resolve import learner_cores
from shared.config.settings import ResolvedConfig
from shared.errors import ConfigError
from shared.machine import facts
from shared.machine.allocation import learner_threads_of, shards_of_rank, teams_of
from shared.machine.contention import contention_sentences
from shared.memory import memory_need
from shared.memory.plan import Plan
from shared.root import INSTALL
from shared.text import count

Color = Literal["green", "yellow", "red"]

MB, GB = 10**6, 10**9
TIGHT = 0.9
"""Share of the free memory from which a run counts as tight."""
DESCRIPTORS, DESCRIPTORS_OF_A_PROCESS = 64, 4
"""Open files of the launcher: a fixed number, and for every process doorbell, handle, pipe and claimed core."""
TASKS, TASKS_OF_AN_ACTOR = 64, 2
"""Threads besides those of actors, learner and inference (CUDA starts some thirty), and threads of an actor."""
LEAST_DISK = 100 * MB
"""Free bytes below which even the weights may not fit."""
COMPRESSED = 10
"""Conservative compression ratio of a checkpoint's replay (frames of real games: 39)."""
SLOW_DISK = 20 * MB
"""Bytes a second below which checkpoints fall behind."""


@dataclass(frozen=True)
class Check:
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
    run_dir = plan.config.run.run_dir
    named = {"env": plan.config.play.env, "plugin": plan.config.run.plugin}
    directory = run_directory(run_dir, continues=continues, **named)
    answers = [
        *settings(config_warnings(plan.config)),
        *environment(plan.config),
        processor(platform.machine()),
        cores(plan.actors, facts.usable_cores(), os.cpu_count() or 1, workers=plan.run_schedule.workers),
        *threads(plan, facts.usable_cores()),
        memory(plan, facts.usable_memory(), facts.total_memory()),
        descriptors(plan, *facts.descriptors()),
        tasks(plan, facts.free_tasks()),
        directory,
    ]
    if directory.color != "red":
        answers.append(disk_space(plan, facts.free_disk(run_directories.nearest_directory(run_dir))))
    return answers


def refuse(answers: Iterable[Check]) -> None:
    """Raise `ConfigError` with the sentence of the first red check, if any."""
    for answer in answers:
        if answer.color == "red":
            raise ConfigError(answer.sentence)


def settings(doubted: Sequence[str]) -> list[Check]:
    """Settings that look like mistakes."""
    return [Check("settings", "yellow", sentence) for sentence in doubted] or [
        Check("settings", "green", "No setting looks like a mistake.")
    ]


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
    advice = "The run is not exact: a kill or a resume cuts its episodes."
    return [Check("env", "yellow", found, advice)]


# Python


def within(version: str, ranges: str) -> bool:
    """True if a version lies in ranges like ">=3.11,<3.14"; only the leading numbers of "2.13.0+cpu" count."""
    compare = {">=": operator.ge, "<": operator.lt}
    for condition in filter(None, ranges.split(",")):
        found = re.fullmatch(r"(>=|<)([\d.]+)", condition.strip())
        assert found is not None, f"{condition!r} is not a range that is understood"
        if not compare[found[1]](_numbers(version), _numbers(found[2])):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in leading[0].split(".")) if leading else ()


def python(version: str, ranges: str) -> Check:
    """The interpreter's version."""
    if within(version, ranges):
        return Check("Python", "green", f"Python {version}.")
    return Check("Python", "red", f"Python {version} is not {ranges}.", "Name another: make PYTHON=python3.12 install")


def packages(ranges: Mapping[str, str], installed: Mapping[str, str | None]) -> Check:
    """Installed packages against required ones.

    Args:
        ranges: by package, as in setup.cfg: ">=2.11".
        installed: versions by package; None: missing.
    """
    missing = [name for name in ranges if installed[name] is None]
    old = [f"{name} {version}" for name, version in installed.items() if version and not within(version, ranges[name])]
    if missing or old:
        found = f"Not installed: {', '.join(missing)}." if missing else f"Of another version: {', '.join(old)}."
        return Check("packages", "red", found, f"Run {INSTALL}.")
    return Check("packages", "green", f"All {len(ranges)} that are required, in versions that suit.")


# The machine


def processor(kind: str) -> Check:
    """Instruction set, as in `uname -m`.

    Processes rely on seeing each other's writes in order, which x86-64 guarantees and others do not (docs/design.md).
    """
    if kind == "x86_64":
        return Check("processor", "green", f"{kind}.")
    return Check("processor", "red", f"This processor is {kind}; Ringside needs x86-64.", "Take such a machine.")


def cores(actors: int, usable: int, processors: int, workers: int = 0) -> Check:
    """Actors, or processes of workers, against the cores that affinity and control groups allow."""
    may = f"{usable} of {processors} processors may be used"
    if actors > usable:
        return Check(
            "cores",
            "yellow",
            f"--actors {actors} share {count(usable, 'core')}.",
            "They share cores and play no faster than fewer would.",
        )
    if workers:
        return Check("cores", "green", f"{may}, by {count(workers, 'worker')} in {count(actors, 'process')}.")
    return Check("cores", "green", f"{may}, by {count(actors, 'actor')} and the learner's side.")


def contention(others: float | None, stolen: float | None, usable: int) -> Check:
    """Cores that other programs and a hypervisor take; None: the kernel does not say."""
    sentences = contention_sentences(others, stolen, usable)
    if sentences:
        advice = "Figures measured now will be too low; a run that shares its cores is slower, and as exact."
        return Check("other programs", "yellow", " ".join(sentences), advice)
    if others is None:
        return Check("other programs", "green", "Their use of cores is not known: the kernel does not report it.")
    return Check("other programs", "green", f"They use {others:.1f} of {count(usable, 'core')}.")


def threads(plan: Plan, usable: int) -> list[Check]:
    """Warning if the learner has more threads than cores: they spin while they wait for each other."""
    settings = plan.config.machine
    busy = learner_cores(settings)
    advised = learner_threads_of(usable, settings.learner_shards, on_cpu=settings.device == "cpu")
    if settings.learner_threads == 1 or busy < usable:
        return []
    return [
        Check(
            "threads",
            "yellow",
            f"--learner-threads {settings.learner_threads} keep {busy} cores busy, of which there are {usable}.",
            f"They wait for each other; --learner-threads {advised} is faster, but changes the last bits of weights.",
        )
    ]


def memory(plan: Plan, usable: int, total: int | None) -> Check:
    """Memory of the run against free memory.

    Args:
        usable: bytes that physical memory and control groups allow.
        total: bytes of physical memory, where known.
    """
    try:
        memory_need.require_memory(plan, usable)
    except ConfigError as error:
        return Check("memory", "red", str(error))
    need = plan.layout.size + memory_need.own_bytes(plan)
    found = f"{need / GB:.1f} GB are needed, {usable / GB:.1f} GB are free"
    if need > TIGHT * usable:
        advice = f"Another program may cause the kernel to kill the run; {plan.less_memory}."
        return Check("memory", "yellow", f"Memory is tight: {found}.", advice)
    return Check("memory", "green", f"{found}{f' of {total / GB:.1f}' if total else ''}.")


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
    return Check("open files", "green", f"{need:,} are needed, {_limit(soft if soft >= 0 else None)} allowed.")


def tasks(plan: Plan, free: int | None) -> Check:
    """Processes and threads against `ulimit -u` and the pids limit of control groups; None: no limit."""
    settings = plan.config.machine
    threads = teams_of(shards_of_rank(settings.learner_shards, settings.learner_ranks)) * settings.learner_threads
    threads *= settings.learner_ranks
    threads += settings.inference_threads
    need = TASKS + threads + TASKS_OF_AN_ACTOR * plan.actors
    if free is not None and free < need:
        return Check(
            "processes",
            "red",
            f"This run starts up to {need:,} processes and threads, and {free:,} more are allowed.",
            "Raise ulimit -u or the control group's limit of tasks, or take fewer --actors.",
        )
    return Check("processes", "green", f"Up to {need:,} with threads are needed, {_limit(free)} more allowed.")


def _limit(count: int | None) -> str:
    return "any number" if count is None else f"{count:,}"


# The device


def device(asked: str, gpus: Sequence[facts.Gpu], cuda_devices: int, build: str | None, *, driver: bool) -> Check:
    """GPUs and driver, and their use by the installed torch.

    Args:
        asked: --device.
        gpus: as the driver lists them.
        cuda_devices: number of them that this process can use.
        build: CUDA version of the installed torch; None: built without CUDA.
        driver: True if an NVIDIA driver is loaded.
    """
    if cuda_devices:
        shown = ", ".join(f"{gpu.name} with {gpu.free / GB:.1f} of {gpu.memory / GB:.1f} GB free" for gpu in gpus)
        number = f", driver {gpus[0].driver}" if gpus else ""
        found = f"{shown or f'{cuda_devices} CUDA devices'}{number}; torch is built for CUDA {build}."
        if any(gpu.memory and gpu.free < 2 * GB for gpu in gpus) and asked != "cpu":
            return Check("GPU", "yellow", found, "Less than 2 GB are free: stop other programs on the GPU.")
        return Check("GPU", "green", found)
    if driver and build is None:
        found, advice = "There is a GPU, but the installed torch was built without CUDA.", "Install a torch with CUDA."
    elif driver:
        found = f"The driver shows no device to this process, or is too old for CUDA {build}."
        advice = "Look at CUDA_VISIBLE_DEVICES, at the container's GPU option and at nvidia-smi."
    else:
        found, advice = "No NVIDIA driver is loaded.", ""
    if asked.startswith("cuda"):
        return Check("GPU", "red", found, advice or f"Pass --device cpu rather than --device {asked}.")
    if driver and asked == "auto":
        return Check("GPU", "yellow", found, advice)
    return Check("GPU", "green", found)


def mps(*, active: bool) -> Check:
    """Multi-Process Service: with it inference does not wait for the learner's time slice on the GPU."""
    if active:
        return Check("MPS", "green", "Its daemon runs: learner and inference use the GPU at once.")
    found = "Its daemon does not run: learner and inference take turns on the GPU."
    return Check("MPS", "yellow", found, "To use it, run first: nvidia-cuda-mps-control -d")


# Files


def run_directory(path: Path, *, continues: bool, env: str | None = None, plugin: str | None = None) -> Check:
    """Writable run directory without another run."""
    try:
        run_directories.require_run_directory(path, continues=continues, env=env, plugin=plugin)
    except ConfigError as error:
        return Check("run directory", "red", str(error))
    return Check("run directory", "green", f"{path} can be written.")


def disk_space(plan: Plan, free: int) -> Check:
    """Free disk space against two checkpoints."""
    region = plan.layout.size if plan.config.run.checkpoint_replay and not plan.method.on_policy else 0
    need = LEAST_DISK + region // COMPRESSED + 2 * 16 * plan.parameters.count
    if free < LEAST_DISK:
        return Check(
            "disk space",
            "red",
            f"Only {free / MB:.0f} MB are free at --run-dir {plan.config.run.run_dir}.",
            "Name a directory on another disk.",
        )
    found = f"{free / GB:.1f} GB are free at the run directory, and checkpoints may take {need / GB:.1f} GB"
    if free < need:
        return Check("disk space", "yellow", f"{found}.", "Make room, or name another --run-dir.")
    return Check("disk space", "green", f"{found}.")


def disk_speed(bytes_per_second: float) -> Check:
    """Write speed, including the sync to disk."""
    found = f"{bytes_per_second / MB:,.0f} MB/s written and forced to the disk."
    if bytes_per_second < SLOW_DISK:
        return Check("disk speed", "yellow", found, "Checkpoints will be slow; name a --run-dir on a local disk.")
    return Check("disk speed", "green", found)


def games(count: int, chosen: str) -> Check:
    """Games in ale-py."""
    if not count:
        return Check("games", "red", "ale-py has no games.", "Install it anew.")
    return Check("games", "green", f"{count} games of ale-py; {chosen} is to be played.")
