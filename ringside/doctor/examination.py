"""`launch.py doctor`: checks of this machine for the run of the options, with remedies.

It shows the fast checks of every start (ringside/doctor/checks.py), slower ones, and a small real run from beginning to
end.
"""

from __future__ import annotations

import argparse
import configparser
import importlib.metadata
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from actors.envs.atari import games
from ringside import planning
from ringside.doctor import checks, selftest
from ringside.doctor.checks import Check
from ringside.doctor.run_directories import nearest_directory
from shared.config.resolve import actors_of, learner_cores, spare_cores
from shared.config.settings import Config
from shared.files.result_files import require_writable, write_result
from shared.machine import control_groups, facts
from shared.machine.contention import Contention
from shared.machine.proc_files import FILESYSTEM
from shared.memory.memory_need import replay_that_fits
from shared.memory.plan import Plan
from shared.root import ROOT
from shared.text import as_spelt, command

_WRITTEN = 32 << 20
"""Bytes of the test of the disk."""
_IDLE_SECONDS = 1.0
"""Duration of the measurement of other programs."""
_COLORS = ("green", "yellow", "red")


def examine(
    config: Config, words: Sequence[str], json_path: Path | None, more: Callable[[Plan], list[Check]] = lambda plan: []
) -> int:
    """Run the checks, show them, write them to `json_path` if given. Returns the exit code: 1 if a check is red.

    Args:
        config: of the options.
        words: options as typed, for the suggested command line.
        json_path: file to write.
        more: makes further checks for the plan of the run.

    Raises:
        ConfigError: the options contradict each other, or the file cannot be written.
    """
    if json_path is not None:
        require_writable("--json", json_path)
    answers, suggested = diagnose(config, words, more)
    show(answers, suggested)
    if json_path is not None:
        write_result("--json", json_path, to_json(answers, suggested))
    return 1 if worst(answers) == "red" else 0


def diagnose(
    config: Config, words: Sequence[str], more: Callable[[Plan], list[Check]] = lambda plan: []
) -> tuple[list[Check], str]:
    """All checks, and the suggested command line for this machine.

    Raises `ConfigError` when the options contradict each other.
    """
    devices = facts.cuda_devices()
    gpu = checks.device(
        config.machine.device,
        facts.gpus(),
        devices,
        facts.torch_cuda_version(),
        driver=facts.has_nvidia_driver(),
    )
    if gpu.color == "red":  # the other checks do not need it
        config = config.with_settings(device="cpu", precision="auto", replay_on="auto")
    plan = planning.check(config)
    run_dir = plan.config.run.run_dir
    answers = [
        checks.python(platform.python_version(), requirements()[0]),
        _packages(),
        checks.games(len(games()), plan.config.play.played),
        gpu,
    ]
    if devices:
        answers.append(checks.mps(active=facts.mps_serves()))
    planning.require_initial_weights(plan)
    answers += checks.before_start(plan, continues=planning.continues(plan, planning.resumed_checkpoint(plan)))
    with _working("other programs"):
        answers.append(_contention())
    with _working("disk"):
        answers.append(_disk_speed(nearest_directory(run_dir)))
    with _working("self-test: a small run"):
        answers += selftest.check(plan)
    with _working("nodes"):
        answers += more(plan)
    return answers, suggestion(plan, words)


def worst(answers: Sequence[Check]) -> str:
    """The worst color."""
    return max((answer.color for answer in answers), key=_COLORS.index)


# Checks that take a moment


def requirements(project: Path = ROOT) -> tuple[str, list[str]]:
    """Range of Python versions and required packages, from setup.cfg; in an installed wheel from its metadata."""
    parser = configparser.ConfigParser()
    if parser.read(project / "setup.cfg"):
        options = parser["options"]
        return options["python_requires"].strip(), options["install_requires"].split()
    needed = importlib.metadata.requires("ringside") or []
    packages = [name.replace(" ", "") for name in needed if "extra ==" not in name]
    return importlib.metadata.metadata("ringside")["Requires-Python"], packages


def _packages() -> Check:
    ranges: dict[str, str] = {}
    installed: dict[str, str | None] = {}
    for requirement in requirements()[1]:
        name, found = re.split(r"(?=[<>=])", requirement, maxsplit=1)
        ranges[name] = found
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = None
    return checks.packages(ranges, installed)


def _contention(root: Path = FILESYSTEM) -> Check:
    """Use of the cores by other programs, measured while this process is idle."""
    found = Contention(root)
    found.read(begun := time.monotonic_ns(), time.process_time_ns())
    time.sleep(_IDLE_SECONDS)
    found.read(ended := time.monotonic_ns(), time.process_time_ns())
    if not found.at:
        return checks.contention(None, None, found.cores)
    others, stolen = (max(0, ns) / (ended - begun) for ns in (found.others, found.stolen))
    return checks.contention(others, stolen, found.cores)


def _disk_speed(directory: Path) -> Check:
    """Speed of an unnamed file that is written and forced to the disk."""
    block = os.urandom(1 << 20)
    begun = time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            for _ in range(_WRITTEN // len(block)):
                file.write(block)
            os.fsync(file.fileno())
    except OSError as error:
        return Check(
            "disk speed", "red", f"{directory} cannot be written: {error.strerror}.", "Name another --run-dir."
        )
    return checks.disk_speed(_WRITTEN / (time.monotonic() - begun))


# Answers


def suggestion(plan: Plan, words: Sequence[str]) -> str:
    """Command line for this machine: as typed, with fitting --actors and --replay-size."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--json", "--actors", "--replay-size", "--device", "--precision"):
        parser.add_argument(flag)
    typed, kept = parser.parse_known_args(as_spelt(words))
    settings = plan.config.machine
    cores, schedule = facts.usable_cores(), plan.config.learn.schedule
    spare = spare_cores(cores, learner_cores(settings), settings.inference_threads, schedule)
    suggested = ["--actors", str(actors_of(plan.config.play, spare))]
    if not any(word.split("=")[0] in ("--game", "--env", "--resume") for word in kept):
        suggested += ["--game", plan.config.play.game]
    has_size = not plan.method.on_policy and not plan.run_schedule.workers
    fits = replay_that_fits(plan, int(checks.TIGHT * facts.usable_memory())) if has_size else None
    if fits is not None and (fits < plan.config.learn.replay_size or typed.replay_size):
        suggested += ["--replay-size", f"{fits:_}"]
    if typed.device:  # the plan has another if this one is missing
        suggested += ["--device", settings.device]
    if typed.precision:
        suggested += ["--precision", settings.precision]
    return command(*suggested, *kept)


def to_json(answers: Sequence[Check], suggested: str) -> dict[str, Any]:
    """All findings as JSON values."""
    return {
        "color": worst(answers),
        "checks": [asdict(answer) for answer in answers],
        "suggested": suggested,
        "control_group": asdict(control_groups.in_force()),
        "machine": facts.describe(),
    }


def show(answers: Sequence[Check], suggested: str) -> None:
    """Print the table, the summary and the command line."""
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for answer in answers:
        finding = Text(answer.found)
        if answer.advice:
            finding.append(f"\n{answer.advice}", style=answer.color)
        table.add_row(Text(answer.color, style=answer.color), answer.name, finding)
    console.print(table)
    summary = {
        "green": "All checks passed.",
        "yellow": "Runs work; see the yellow checks for improvements.",
        "red": "A run would fail: fix the red checks.",
    }
    console.print()
    console.print(summary[worst(answers)], style=f"bold {worst(answers)}")
    console.print("For this machine:")
    console.print(f"    {suggested}", soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Show a status in the terminal during the block."""
    with Console(stderr=True).status(f"{what} ..."):
        yield
