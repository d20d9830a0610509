"""The task `completion`: a script that completes the command in bash or zsh.

The script knows all options by itself and never starts Ringside. It completes `ringside`, `./launch.py` and
`python launch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from actors.envs.atari import games
from ringside.bench import bench_command
from ringside.options import shell_completion
from ringside.options.option import Option, options_of
from ringside.options.shell_completion import Shell
from ringside.suites.suite_games import SUITES
from ringside.tasks import TASKS, module_of
from ringside.tasks.arguments import CHOICES, Choices, parse
from ringside.zoo import catalogue
from shared.config.method_declaration import method_declaration, method_names
from shared.text import PROGRAM


@dataclass(frozen=True)
class Completion:
    """The options of `completion`."""

    shell: Shell = "bash"
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
    print(script(options.shell), end="")
    return 0


def script(shell: Shell) -> str:
    """Completion script for a shell."""
    tasks = {task: _options(module_of(task).OPTIONS) for task in TASKS if task != "bench"}
    benchmarks = {name: _options(bench_command.find_benchmark(name).options) for name in bench_command.BENCHMARKS}
    named = {
        "device": ("auto", "cpu", "cuda"),
        "game": games(),
        "games": (*SUITES, *games()),
        "init_from": catalogue.names(),
        "load": catalogue.names(),
    }
    return shell_completion.script(shell, tasks, benchmarks, named)


def _options(kind: type) -> list[Option]:
    """Options of a task; of one that configures runs, those of all methods, but none that it replaces."""
    own = options_of(kind, CHOICES)
    if not issubclass(kind, Choices):
        return own
    kinds = [method_declaration(name).settings for name in method_names()]
    of_methods = {option.name: option for each in kinds for option in options_of(each) if fields(each)}
    return [option for option in (*own, *of_methods.values()) if option.name not in kind.replaced]
