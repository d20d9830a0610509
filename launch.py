"""The command: arguments -> Config -> one task.

    python launch.py --actors 12 --game breakout
    python launch.py eval --load runs/breakout-20260101-120000 --episodes 30
    python launch.py bench limits
    python launch.py doctor

Every child process imports this module again, so that it loads nothing of weight: imports stand inside functions
(tests/boundary).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar, get_args

from shared.config import Config, ConfigError, PresetName

PROGRAM = "launch.py"
_Options = TypeVar("_Options")
_Choices = TypeVar("_Choices", bound="Choices")


@dataclass(frozen=True)
class Choices(Config):
    """The options of `train` that make a configuration."""

    preset: PresetName = "nature"
    """Defaults of all options below; nature: Mnih et al. 2015; quick: a short run, an hour rather than days."""


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


@dataclass(frozen=True)
class Diagnosis(Choices):
    """The options of `doctor`."""

    json: Path | None = None
    """Write the findings to this file, too."""


@dataclass(frozen=True)
class Evaluation:
    """The options of `eval`."""

    load: Path
    """Run directory or checkpoint whose weights play."""
    episodes: int | None = None
    """Episodes to play; default: as the protocol says."""
    json: Path | None = None
    """Write the result to this file, too."""
    seed: int = 1
    """Seed of no-ops, epsilon and sticky actions."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def configuration(arguments: Sequence[str]) -> Config:
    """What the options of `train` say, unchecked. Raises `ConfigError`; exits with code 2 on an unknown word."""
    return _config_of(_parse_training(arguments))


def train(arguments: Sequence[str]) -> int:
    """Train an agent. Returns 1 when the run ended early through a fault."""
    options = _parse_training(arguments)
    _confine(options.limits)
    import ringside

    plan = ringside.plan(_config_of(options))
    from shared.arena import ArenaError
    from supervisor import RunFailed
    from watch.display import open_display

    try:
        with open_display(plain=plan.config.run.plain) as display:
            summary = ringside.run(plan, display.show, display.note)
    except ArenaError as error:
        raise ConfigError(str(error)) from error
    except RunFailed as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    mean = summary["mean_return_100"]
    print(
        f"{'Finished' if summary['finished'] else 'Stopped'} after {summary['steps']:,} steps and "
        f"{summary['updates']:,} updates in {summary['seconds']:,.0f} s"
        + (f", mean return of the last episodes {mean:.2f}" if mean is not None else "")
        + f". Everything is in {plan.config.run.run_dir}."
    )
    if not summary["finished"]:
        print(f"Continue it with: python {PROGRAM} --resume {plan.config.run.run_dir}")
    return 0


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate an agent: print the result and, where asked, write it as JSON."""
    import json

    import ringside

    options = _parse(
        Evaluation,
        arguments,
        f"{PROGRAM} eval",
        "Play whole episodes with trained weights, by the rules of their protocol.",
    )
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise ConfigError(f"--json {options.json} cannot be written: its directory does not exist.")
    result = ringside.evaluate(options.load, episodes=options.episodes, seed=options.seed, device=options.device)
    normalised = result["human_normalised"]
    print(
        f"{result['game']}, protocol {result['protocol']}: mean {result['mean']:.2f} +- {result['sd']:.2f}, "
        f"median {result['median']:.2f}, best {result['best']:.2f} of {result['episodes']} episodes"
    )
    if normalised is not None:
        print(f"human-normalised {normalised:.3f} (reference: {result['human_normalised_source']})")
    if options.json is not None:
        try:
            options.json.write_text(json.dumps(result, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"--json {options.json} cannot be written: {error.strerror}.") from error
    return 0


def doctor(arguments: Sequence[str]) -> int:
    """Examine the machine. Returns 1 when a run could not work on it."""
    import doctor

    unusable = doctor.unusable()
    if unusable is not None:
        print(f"{PROGRAM}: {unusable}", file=sys.stderr)
        return 1
    options = _parse_choices(
        Diagnosis,
        arguments,
        f"{PROGRAM} doctor",
        "Examine whether this machine can do a run: the one that these options of training say.",
    )
    return doctor.examine(_config_of(options), arguments, options.json)


def bench(arguments: Sequence[str]) -> int:
    """Measure this machine. Returns 1 when something that was timed computed a wrong result."""
    from benchmarks import command

    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} bench NAME [options]; {PROGRAM} bench NAME --help explains one\n")
        for each, explanation in command.BENCHMARKS.items():
            print(f"  {each:12}{explanation}")
        return 0
    benchmark = command.find(name)
    options = _parse(benchmark.options, rest, f"{PROGRAM} bench {name}", benchmark.explanation)
    return command.run(benchmark, options, rest)


TASKS: dict[str, Callable[[Sequence[str]], int]] = {"train": train, "eval": evaluate, "bench": bench, "doctor": doctor}
"""What the first word of the command line can be."""


def main(arguments: Sequence[str]) -> int:
    """Run one task; returns the exit code: 2 for a mistake in the arguments."""
    task, rest = "train", list(arguments)
    if rest and not rest[0].startswith("-"):
        task = rest.pop(0)
    try:
        if task not in TASKS:
            from shared.validate import nearest

            raise ConfigError(f"There is no task {task!r}{nearest(task, TASKS)}")
        return TASKS[task](rest)
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: Stopped before anything was started.", file=sys.stderr)
        return 130


def _parse_training(arguments: Sequence[str]) -> Training:
    others = ", ".join(task for task in TASKS if task != "train")
    return _parse_choices(
        Training,
        arguments,
        PROGRAM,
        "Train an Atari agent. A step is one action of the agent, four frames of the emulator. Other tasks, as the "
        f"first word: {others}; python {PROGRAM} TASK --help explains one.",
    )


def _parse_choices(kind: type[_Choices], arguments: Sequence[str], program: str, description: str) -> _Choices:
    """Parse options that default to what --preset or --resume say."""
    import ringside

    preset, resume = _ahead(arguments)
    start = ringside.starting_point(preset, resume)
    sections = {item.name: getattr(start, item.name) for item in fields(Config)}
    return _parse(kind, arguments, program, description, kind(**sections, preset=preset))


def _config_of(options: Choices) -> Config:
    return Config(**{item.name: getattr(options, item.name) for item in fields(Config)})


def _confine(limits: Limits) -> None:
    """With --cgroup: go on in a scope and, once there, say which limits are really in force."""
    if not limits.cgroup:
        if limits.cpus is not None or limits.memory is not None:
            raise ConfigError("--cpus and --memory limit the run's control group: say --cgroup, too.")
        return
    import scope
    from shared.cgroup import in_force

    asked = scope.limits_of(limits.cpus, limits.memory)
    if not scope.inside():
        scope.enter(asked, [sys.executable, *sys.orig_argv[1:]])
    found = in_force()
    print(f"In force: {found}.", flush=True)
    for sentence in asked.missing(found):
        print(f"{PROGRAM}: {sentence}", file=sys.stderr)


def _ahead(arguments: Sequence[str]) -> tuple[PresetName, str | None]:
    """The two options that choose what all others default to. Their mistakes are left to the full parser."""
    import argparse

    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    parser.add_argument("--resume", nargs="?")
    found = parser.parse_known_args(arguments)[0]
    if found.preset is not None and found.resume is not None:
        raise ConfigError("--resume keeps the settings of its run: leave --preset away.")
    return ("quick" if found.preset == "quick" else "nature"), found.resume


def _parse(
    kind: type[_Options], arguments: Sequence[str], program: str, description: str, default: _Options | None = None
) -> _Options:
    """Flat flags for the fields of a dataclass. Exits with code 2 on a mistake, with 0 after --help."""
    import tyro

    registry = tyro.constructors.ConstructorRegistry()
    names = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}

    @registry.primitive_rule
    def number_or_unset(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        """Whole numbers are shown with underscores, and `int | None` is a number that may be left away."""
        inner = [kind for kind in get_args(info.type) or (info.type,) if kind is not type(None)]
        if len(inner) != 1 or inner[0] not in names or (inner[0] is not int and not get_args(info.type)):
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=names[inner[0]],
            instance_from_str=lambda words: _whole_number(words[0]) if inner[0] is int else inner[0](words[0]),
            is_instance=lambda value: value is None or isinstance(value, inner[0]),
            str_from_instance=lambda value: [
                "unset" if value is None else f"{value:_}" if isinstance(value, int) else str(value)
            ],
        )

    return tyro.cli(
        kind,
        prog=program,
        description=description,
        args=list(arguments),
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.OmitArgPrefixes,),
        registry=registry,
    )


def _whole_number(text: str) -> int:
    """ "50_000_000" and "50000000"."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
