"""Limits of this machine, part by part, each against the limit above it.

Parts, for --parts:

  emulator   four act calls a step and nothing else: in one process, and in one process on every core at once
  actors     env (frame, reward, end) and actor loop (lane, ring, mailbox, immediate answers) against the bare emulator
  memory     ring write, gathers of learner and inference, publication of weights, against memcpy of as many bytes
  mailbox    request and reply between two processes, against two bare event descriptors
  inference  inference by batch size and precision
  update     gradient updates by batch size and precision, against their passes

A share is the part of the limit that is reached; the two are measured in interleaved slices. Results are compared with
those of a slow and simple implementation; a part with a wrong result shows no speed. Observations are those of games,
four gray frames of 84x84; `bench throughput -- --frame-size 128` and the like measure a run with others.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import names_in_list, numbers_in_list
from ringside.bench.harness.tables import CannotRun, Report
from shared.errors import ConfigError

PARTS = {
    "emulator": "ringside.bench.system_parts.emulator",
    "actors": "ringside.bench.system_parts.actor_side",
    "memory": "ringside.bench.system_parts.memory_paths",
    "mailbox": "ringside.bench.system_parts.round_trip",
    "inference": "ringside.bench.network_parts.inference_alone",
    "update": "ringside.bench.network_parts.update",
}
"""Module of each part, imported only if requested; its `measure` takes `Options` and a report."""

TEN_GAMES = (
    "breakout",
    "pong",
    "space_invaders",
    "seaquest",
    "beam_rider",
    "enduro",
    "qbert",
    "ms_pacman",
    "montezuma_revenge",
    "asteroids",
)


LEAST_WINDOW_STEPS = 2_000
"""Smallest --window-steps: two rounds of ten ticks."""


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench limits`."""

    parts: str = "all"
    """Parts to be measured, separated by commas."""
    games: str = "breakout"
    """Games of emulator and actors, separated by commas; ten: ten games of all kinds."""
    seconds: float = 1.0
    """Seconds for each figure of each repeat."""
    window_steps: int = 100_000
    """Steps in the ring that memory and update read; 7 KB each."""
    batches: str = "32,128"
    """Batch sizes of update, separated by commas."""
    learner_threads: int | None = None
    """CPU threads of update; default: as many as a run takes on this machine."""
    inference_threads: int | None = None
    """CPU threads of inference; default: 1."""

    @property
    def game_names(self) -> list[str]:
        """The games. Raises `ConfigError` for one that does not exist."""
        from actors.envs.atari import game_name

        names = TEN_GAMES if self.games == "ten" else [word.strip() for word in self.games.split(",")]
        return list(dict.fromkeys(game_name(name) for name in names))

    @property
    def part_names(self) -> list[str]:
        """The parts, in the order of `PARTS`. Raises `ConfigError` for one that does not exist."""
        return names_in_list(self.parts, PARTS, "--parts")

    @property
    def batch_sizes(self) -> list[int]:
        """The batch sizes. Raises `ConfigError` for an invalid one."""
        return numbers_in_list(self.batches, "--batches")


def measure(options: Options, report: Report) -> None:
    """Measure the requested parts. Raises `ConfigError` before anything runs if an option is invalid."""
    _check(options)
    from learner.engine.faults import device_faults_named

    for name in options.part_names:
        part = importlib.import_module(PARTS[name])
        with report.noting(name):
            try:
                with device_faults_named():
                    part.measure(options, report)
            except ConfigError as error:  # the options are checked: it is the installation
                raise CannotRun(str(error)) from error


def _check(options: Options) -> None:
    if options.window_steps < LEAST_WINDOW_STEPS:
        raise ConfigError(f"--window-steps {options.window_steps:_} is too small; {LEAST_WINDOW_STEPS:_} is the least.")
    for checked in (options.part_names, options.batch_sizes, options.game_names):
        assert checked, "a list of words is never empty"
