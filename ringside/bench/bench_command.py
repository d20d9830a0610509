"""`launch.py bench NAME`: the table of benchmarks, and the code that runs one of them."""

from __future__ import annotations

import importlib
import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from ringside.bench.harness.tables import Report
from ringside.options.option import Positional
from shared.errors import ConfigError
from shared.files.result_files import require_writable
from shared.text import flag_of, nearest_or_all

BENCHMARKS = {
    "limits": "what the parts can do: emulator, frames, memory, network, each against the limit above it",
    "throughput": "a whole run at steady state against its actors alone and its learner alone",
    "presets": "the learner and a short run with each preset against plain DQN",
    "scaling": "actors alone with 1, 2, 4, ... processes",
    "gpu": "a GPU's learner by setting, and inference beside a busy learner: in turns, or under a daemon of MPS",
    "ladder": "concurrent or not, synchronized or not, one env or many, parallel or not: the classical tables",
    "ancestors": "the jobs of the four systems that Ringside comes from, beside their published figures",
    "peers": "other systems on the same game at the same ratio",
}
"""Descriptions by name. Each benchmark is the module of its name, or of `MODULES`, with `Options` and `measure`."""
MODULES = {
    "ladder": "ladder.rungs",
    "peers": "peers.peer_comparison",
    "presets": "preset_costs",
}
RETURNS = frozenset({"bound"})
"""Options that are returns of a game, so they may be negative."""


@dataclass(frozen=True)
class Common:
    """Options of every benchmark; `Options` of a benchmark's module are a subclass."""

    repeats: int = 3
    """Repeats of every measurement; measurements that are compared are interleaved."""
    json: Path | None = None
    """Write rows, machine and command to this file, too."""


@dataclass(frozen=True)
class RunOptions(Common):
    """Options of benchmarks that start runs."""

    words: Positional[tuple[str, ...]] = ()
    """Flags of launch.py for all runs, after --."""
    game: str = "breakout"
    """Atari game."""


def check_numbers(options: Common) -> None:
    """Raise `ConfigError` unless every numeric option is finite and positive."""
    for item in fields(options):
        value, flag = getattr(options, item.name), flag_of(item.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{flag} {value} must be a finite number.")
        if isinstance(value, float) and value <= 0 and item.name not in RETURNS:
            raise ConfigError(f"{flag} {value} must be above 0.")
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise ConfigError(f"{flag} {value} must be at least 1.")


class Benchmark(NamedTuple):
    """One benchmark."""

    name: str
    explanation: str
    options: type[Common]
    measure: Callable[[Any, Report], None]


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name. Raises `ConfigError` if there is none."""
    if name not in BENCHMARKS:
        raise ConfigError(f"There is no benchmark {name!r:.60}{nearest_or_all(name, list(BENCHMARKS))}")
    module = importlib.import_module(f"ringside.bench.{MODULES.get(name, name)}")
    return Benchmark(name, (module.__doc__ or "").strip(), module.Options, module.measure)


def run(benchmark: Benchmark, options: Common, words: Sequence[str]) -> int:
    """Measure, print the table, write the file; return the exit code.

    After an interrupt or a failure, the results so far are still printed and written. Raises `ConfigError` if the file
    cannot be written.
    """
    check_numbers(options)
    if options.json is not None:
        require_writable("--json", options.json, replaces=True)
    # SIGTERM and SIGHUP act as Ctrl-C, so that started processes are ended.
    for request in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(request) is not signal.SIG_IGN:  # nohup ignores SIGHUP; keep that
            signal.signal(request, signal.default_int_handler)
    report = Report(benchmark.name, benchmark.explanation.splitlines()[0], [benchmark.name, *words])
    try:
        with report.noting("all"):
            benchmark.measure(options, report)
    except KeyboardInterrupt:
        report.interrupt()
    except ConfigError:
        if report.rows:  # measured before the fault
            _publish(report, options.json)
        raise
    except Exception as error:  # a fault of the benchmark, or of a peer: any; what was measured before is kept
        report.missing["all"] = f"The benchmark itself failed: {error!r}."
        _publish(report, options.json)
        raise
    _publish(report, options.json)
    return report.code


def _publish(report: Report, file: Path | None) -> None:
    try:
        if file is not None and not report.rows and file.exists():
            report.note(f"Nothing was measured, so --json {file} stays as it was.")
        elif file is not None:
            report.write(file)
    except OSError as error:
        raise ConfigError(f"--json {file} cannot be written: {error.strerror}.") from error
    finally:
        report.print()
