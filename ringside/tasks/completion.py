"""The task `completion`: a script that completes the command in bash or zsh.

The script knows all options by itself and never starts Ringside. It completes `ringside` and `./launch.py`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, fields, make_dataclass
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Annotated, Any, Literal

import tyro

from ringside.bench import bench_command
from ringside.tasks import TASKS
from ringside.tasks.arguments import parse
from ringside.tasks.train import Training
from shared.config.field_checks import types_of
from shared.config.method_declaration import method_declaration, method_names
from shared.text import PROGRAM

_FUNCTION = "_tyro_launch_py"
"""Name that tyro gives to the function that completes the command."""
_REGISTRATION = {
    "bash": f"complete -o filenames -F {_FUNCTION} launch.py ringside",
    "zsh": f"compdef {_FUNCTION} launch.py ringside",
}
"""Line that gives both names of the command to that function."""


@dataclass(frozen=True)
class Completion:
    """The options of `completion`."""

    shell: Literal["bash", "zsh"] = "bash"
    """For which: source what is printed in ~/.bashrc or, after compinit, in ~/.zshrc (docs/agents.md)."""


OPTIONS = Completion


def main(arguments: Sequence[str]) -> int:
    """Print the script."""
    options = parse(
        Completion,
        arguments,
        f"{PROGRAM} completion",
        "Print a script that completes this command. At once: source <(ringside completion --shell bash)",
    )
    print(script(options.shell))
    return 0


def script(shell: Literal["bash", "zsh"]) -> str:
    """Completion script for a shell."""
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        parse(_command(), ["--tyro-print-completion", shell], "launch.py", "")
    called = f'{_FUNCTION} "$@"'  # for a file on zsh's path; a sourced one registers the function instead
    return f"{printed.getvalue().rstrip().removesuffix(called)}\n{_REGISTRATION[shell]}"


def _command() -> type[Any]:
    """The command as one dataclass: the options of training, with every other task as a subcommand."""
    benchmarks = [(name, bench_command.find(name).options) for name in bench_command.BENCHMARKS]
    tasks = [
        (task, _choice("Bench", benchmarks) if task == "bench" else import_module(f"ringside.tasks.{task}").OPTIONS)
        for task in TASKS
        if task != "train"
    ]
    whole = _choice("Command", tasks, _method_options(), Training)
    return tyro.conf.configure(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)(whole)


def _method_options() -> type[Any]:
    """Method-specific options of all methods, merged into one dataclass."""
    kinds = [method_declaration(name).settings for name in method_names()]
    own = {item.name: (item.name, types_of(kind)[item.name], item) for kind in kinds for item in fields(kind)}
    body = [(name, kind, field(default=item.default)) for name, kind, item in own.values()]
    return make_dataclass("MethodOptions", body, frozen=True, kw_only=True)


def _choice(name: str, kinds: Sequence[tuple[str, type[Any]]], *bases: type[Any]) -> type[Any]:
    """A dataclass that adds one field to its bases: one of these subcommands."""
    choices = [Annotated[kind, tyro.conf.subcommand(word)] for word, kind in kinds]
    chosen: Any = reduce(or_, choices)
    return make_dataclass(name, [("chosen", chosen)], bases=bases, frozen=True, kw_only=True)
