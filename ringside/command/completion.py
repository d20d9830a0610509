"""The task `completion`: a script that completes the command in bash or zsh, made by shtab.

The script knows all options by itself and never starts Ringside. It completes `ringside` and `./launch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.envs.atari import games
from ringside.command import TASKS, module_of
from ringside.command.arguments import Choices, parse, setting_options
from ringside.command.option import BARE, PLACE, Option, Parser, options_of
from ringside.command.suite import SUITES
from ringside.zoo import catalogue
from shared.config.method_declaration import method_names
from shared.config.settings import Config
from shared.errors import require

try:
    import shtab
except ModuleNotFoundError:
    require("completion", "completion", "shtab")
    raise

_AGENTS = " ".join(catalogue.names())
_AGENT = {"bash": "_ringside_agents", "zsh": f"{{compadd {_AGENTS}; _files}}"}
"""Completion of an agent: a file, or a name in the zoo."""


@dataclass(frozen=True)
class Options:
    """Print a script that completes this command. At once: eval "$(ringside completion --shell bash)"."""

    shell: Literal["bash", "zsh"] = "bash"
    """For which: evaluate what is printed in ~/.bashrc or, after compinit, in ~/.zshrc (docs/agents.md)."""


def main(arguments: Sequence[str]) -> int:
    """Print the script."""
    print(script(parse(Options, arguments, "completion").shell), end="")
    return 0


def script(shell: str) -> str:
    """Completion script for a shell."""
    root = _filled(Parser(prog="ringside"), _options(module_of("train").Options))
    tasks = root.add_subparsers()
    for task in TASKS:
        _filled(tasks.add_parser(task, help=task), _options(module_of(task).Options))
    agents = f"_ringside_agents() {{ compgen -f -- $1; compgen -W '{_AGENTS}' -- $1; }}\n"
    words, preamble = ("complete -o bashdefault -F", agents) if shell == "bash" else ("compdef", "")
    return f"{shtab.complete(root, shell, preamble=preamble)}\n{words} _shtab_ringside launch.py\n"


def _options(kind: type) -> list[Option]:
    """Options of a task; of one that configures runs, those of all methods, but none that it replaces."""
    if not issubclass(kind, Choices):
        return options_of(kind)
    found = [*options_of(kind), *setting_options(Config(), method_names())]
    return [option for option in found if option.name not in kind.replaced]


def _filled(parser: Parser, options: Sequence[Option]) -> Parser:
    """The parser with options, and with the values that --help does not list, such as games."""
    named = {"device": ("auto", "cpu", "cuda"), "game": games(), "games": (*SUITES, *games())}
    parser.take(options).add_argument("-h", "--help", action="help")
    known = {option.name: option for option in options if option.kind is not bool}
    known |= {PLACE: known[BARE]} if BARE in known else {}
    for action in parser._actions:
        if option := known.get(action.dest):
            action.choices = option.choices or named.get(option.name)
            if option.kind is Path:
                action.complete = _AGENT if option.name in ("load", "init_from") else shtab.FILE  # type: ignore[attr-defined]
    return parser
