"""The command: arguments -> Config -> one task.

    python launch.py --actors 12 --game breakout
    python launch.py eval --load runs/breakout-20260101-120000 --episodes 30

Every child process imports this module again, so that it loads nothing of weight: imports stand inside functions
(tests/boundary).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar, get_args

from shared.config import Config, ConfigError, PresetName

PROGRAM = "launch.py"
_Options = TypeVar("_Options")


@dataclass(frozen=True)
class Training(Config):
    """The options of `train`."""

    preset: PresetName = "nature"
    """Defaults of all options below; nature: Mnih et al. 2015; quick: a short run, an hour rather than days."""


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


def train(arguments: Sequence[str]) -> int:
    """Train an agent."""
    import ringside

    preset, resume = _ahead(arguments)
    start = ringside.starting_point(preset, resume)
    sections = {item.name: getattr(start, item.name) for item in fields(Config)}
    options = _parse(
        Training,
        arguments,
        PROGRAM,
        "Train an Atari agent. Steps are agent steps, four emulator frames each. "
        f"Other tasks: {', '.join(task for task in TASKS if task != 'train')} (python {PROGRAM} eval --help).",
        Training(**sections, preset=preset),
    )
    plan = ringside.plan(Config(**{name: getattr(options, name) for name in sections}))
    import supervisor

    supervisor.train(plan.config, plan.actions, None)
    return 0


TASKS: dict[str, Callable[[Sequence[str]], int]] = {"train": train}
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

    @registry.primitive_rule
    def number_or_unset(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        """Whole numbers are shown with underscores, and `int | None` is a number that may be left away."""
        kinds = [kind for kind in (get_args(info.type) or (info.type,)) if kind is not type(None)]
        if len(kinds) != 1 or kinds[0] not in (int, str, Path) or (kinds[0] is not int and info.type is kinds[0]):
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar={int: "INT", str: "TEXT", Path: "PATH"}[kinds[0]],
            instance_from_str=lambda words: kinds[0](words[0]),
            is_instance=lambda value: value is None or isinstance(value, kinds[0]),
            str_from_instance=lambda value: [
                "unset" if value is None else f"{value:_}" if isinstance(value, int) else str(value)
            ],
        )

    return tyro.cli(
        kind,
        prog=program,
        description=description,
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes,),
        registry=registry,
        **({} if default is None else {"default": default}),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
