"""The task `train`, the default of the command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from ringside import planning, training
from ringside.cgroup import scope
from ringside.tasks import TASKS
from ringside.tasks.arguments import Choices, config_of, parse_choices
from ringside.watch.display import open_display
from ringside.watch.status import Status
from shared.checkpoint.finding import manifests_in, newest_usable
from shared.checkpoint.manifest import CHECKPOINTS
from shared.config.method_declaration import method_declaration
from shared.config.settings import ARITHMETIC, Config, ResolvedConfig
from shared.config.trust import resume_words
from shared.errors import CheckpointError, ConfigError, RunFailed
from shared.machine.control_groups import in_force
from shared.process.signals import handle_stop_signals, ignore_requests
from shared.text import PROGRAM, command, printable


@dataclass(frozen=True)
class Limits:
    """A control group for the run."""

    cgroup: bool = False
    """Start the run as one systemd scope: everything in it ends with it."""
    cpus: float | None = None
    """With --cgroup: processor time that the run may use, in cores."""
    memory: str | None = None
    """With --cgroup: memory that the run may use, like 16G; too much has one of its processes killed."""


@dataclass(frozen=True)
class Training(Choices):
    """The options of `train`."""

    limits: Limits = field(default_factory=Limits)


OPTIONS = Training


def configuration(arguments: Sequence[str]) -> Config:
    """Configuration from the options, unchecked. Raises `ConfigError`; exits with code 2 on an unknown option."""
    return config_of(_parse(arguments))


def main(arguments: Sequence[str]) -> int:
    """Train an agent. Return 1 if a fault ended the run."""
    options = _parse(arguments)
    _confine(options.limits)

    plan = planning.plan(config_of(options))

    begun = False

    def show(status: Status) -> None:
        nonlocal begun
        begun = True  # from here on the run handles signals; those after its end are ignored
        display.show(status)

    def hear(number: int) -> None:
        if not begun:
            raise KeyboardInterrupt

    try:
        with handle_stop_signals(hear), open_display(plain=plan.config.run.plain) as display:
            summary = training.run(plan, show, display.note)
    except RunFailed as error:
        print(printable(f"{PROGRAM}: {error}"), file=sys.stderr)
        print(printable(how_to_continue(plan.config)), file=sys.stderr)
        return 1
    finally:
        if begun:
            ignore_requests()
    mean = summary["mean_return_100"]
    print(
        f"{'Finished' if summary['finished'] else 'Stopped'} after {summary['steps']:,} steps and "
        f"{summary['updates']:,} updates in {summary['seconds']:,.0f} s"
        + (f", mean return of the last episodes {mean:.2f}" if mean is not None else "")
        + printable(f". Everything is in {plan.config.run.run_dir}.")
    )
    if not summary["finished"]:
        print(printable(how_to_continue(plan.config)))
    return 0


def how_to_continue(config: ResolvedConfig) -> str:
    """Sentence with the command that continues an unfinished run, by the contents of its directory."""
    run_dir = config.run.run_dir
    checkpoints = run_dir / CHECKPOINTS
    if not checkpoints.is_dir() or not manifests_in(checkpoints):
        return "Nothing was saved: the run ended before its first checkpoint. The same command starts it again."
    try:
        checkpoint = newest_usable(run_dir, lambda manifest: manifest)
    except CheckpointError as error:
        return f"It cannot be resumed: {error}"
    if checkpoint.has_replay or method_declaration(config.algorithm.method).on_policy:
        return f"Continue it with: {command(*resume_words(config))}"
    begin = command("--init-from", str(run_dir), *planning.training_words(config, without=ARITHMETIC))
    return f"It was saved without its replay and cannot be resumed. Start a new run from its weights with: {begin}"


def _parse(arguments: Sequence[str]) -> Training:
    others = ", ".join(task for task in TASKS if task != "train")
    return parse_choices(
        Training,
        arguments,
        PROGRAM,
        "Train an Atari agent. A step is one action of the agent, four frames of the emulator.\n\n"
        f"Other tasks, as the first word: {others}. {PROGRAM} help TASK explains one.",
    )


def _confine(limits: Limits) -> None:
    """With --cgroup: re-execute the command in a scope; inside it, print the limits in force and the missing ones."""
    if not limits.cgroup:
        if limits.cpus is not None or limits.memory is not None:
            raise ConfigError("--cpus and --memory limit the run's control group: say --cgroup, too.")
        return

    asked = scope.make_limits(limits.cpus, limits.memory)
    if not scope.inside():
        scope.enter(asked, [sys.executable, *sys.orig_argv[1:]])
    found = in_force()
    print(f"In force: {found}.", flush=True)
    for sentence in asked.missing(found):
        print(f"{PROGRAM}: {sentence}", file=sys.stderr)
