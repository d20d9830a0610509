"""`python -m benchmarks NAME`: the table of benchmarks, and the code that runs one of them.

Processes that measure import this module again, so it loads little.
"""

from __future__ import annotations

import argparse
import importlib
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from shared.errors import ConfigError, RingsideError
from shared.text import nearest_or_all, printable

PROGRAM = "python -m benchmarks"
BENCHMARKS = {
    "limits": "what the parts can do: emulator, frames, memory, network, each against the limit above it",
    "throughput": "a whole run at steady state against its actors alone and its learner alone",
    "presets": "the learner and a short run with each preset against plain DQN",
    "scaling": "actors alone, or a learner alone, with 1, 2, 4, ... processes",
    "ladder": "speed-ups of two ancestors step by step, jobs of four ancestors, asynchronous gradients",
    "peers": "other systems on the same game at the same ratio",
    "gpu": "everything that needs a machine with a GPU, in stages, within a time limit",
}
"""Descriptions by name. Each benchmark is the module of its name, with `run`, `NAMES` and `DEFAULTS`."""


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError`."""
        raise ConfigError(f"{message[0].upper()}{message[1:]}; --help explains the options.")


def above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Parser of finite numbers above 0."""

    def parse(word: str) -> float:
        value = kind(word)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{word} must be a finite number above 0")
        return value

    parse.__name__ = kind.__name__
    return parse


def make_parser(name: str, module: ModuleType) -> Parser:
    """The options of a benchmark, with its defaults."""
    parser = Parser(
        prog=f"{PROGRAM} {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", help="names to be measured, separated by commas, or all; default: %(default)s")
    if "seconds" in module.DEFAULTS:
        add("--game", help="game, as in ale-py; default: %(default)s")
        add("--seconds", type=above_zero(float), help="seconds of one measurement; default: %(default)s")
    add("--repeats", type=above_zero(int), default=3, help="interleaved repeats of everything; default: %(default)s")
    add("--json", type=Path, metavar="FILE", help="write rows, machine and command to this file, too")
    for flag, details in getattr(module, "OPTIONS", {}).items():
        add(flag, **details)
    parser.set_defaults(**module.DEFAULTS)
    return parser


def run(name: str, words: Sequence[str]) -> int:
    """Measure, print the table, write the file; return the exit code.

    After an interrupt or a failure, the results so far are still printed and written. Raises `ConfigError` if the file
    cannot be written.
    """
    from benchmarks.harness import INTERRUPTED, Options, Report, names_in_list
    from shared.files.result_files import require_writable

    module = importlib.import_module(f"benchmarks.{name}")
    end = words.index("--") if "--" in words else len(words)
    options = make_parser(name, module).parse_args(words[:end], Options())
    options.words = list(words[end + 1 :])
    options.names = names_in_list(options.only, module.NAMES)
    if options.json is not None:
        require_writable("--json", options.json, replaces=True)
    report = Report(name, (module.__doc__ or "").splitlines()[0], words)
    try:
        module.run(options, report)
    except KeyboardInterrupt:
        report.missing[INTERRUPTED] = "It was interrupted."
    finally:
        if report.rows or report.missing or report.wrong:
            report.publish(options.json)
    return report.code


def main(words: Sequence[str]) -> int:
    """Run a benchmark. Return 2 for a mistake in the options, 1 if a timed part computed a wrong result."""
    name, *rest = words or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} NAME [options] [-- flags of launch.py]; {PROGRAM} NAME --help explains one\n")
        print("\n".join(f"  {each:12}{explanation}" for each, explanation in BENCHMARKS.items()))
        return 0
    # SIGTERM and SIGHUP act as Ctrl-C, so that started processes are ended.
    for request in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(request) is not signal.SIG_IGN:  # nohup ignores SIGHUP; keep that
            signal.signal(request, signal.default_int_handler)
    try:
        if name not in BENCHMARKS:
            raise ConfigError(f"There is no benchmark {name!r:.60}{nearest_or_all(name, list(BENCHMARKS))}")
        return run(name, rest)
    except RingsideError as error:
        print(printable(f"{PROGRAM}: {error}"), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
