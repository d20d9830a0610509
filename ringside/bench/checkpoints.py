"""The cost of checkpoints: a run that writes them often against one that writes none.

Two runs with the same settings are interleaved. One writes a segment of its replay buffer each round and a checkpoint
every --every seconds; the other writes only metrics. The cost covers checkpoints and segments. The first run must have
written a checkpoint before its end. Words after -- are flags of launch.py:

  python launch.py bench checkpoint --seconds 120 --every 30 -- --actors 4
"""

from __future__ import annotations

from dataclasses import dataclass

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.interleaved import Contender, measure_interleaved
from ringside.bench.harness.measured_plans import make_plan, note_rounds, rounds_that_fit
from ringside.bench.harness.measured_runs import Throughput, measure_run
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.system_parts import segment_files
from shared.checkpoint.segments import SegmentShape
from shared.errors import ConfigError

WITHOUT, WITH = "without checkpoints", "with checkpoints"
NEVER_MINUTES = "100_000"
SEGMENT_SHAPE = SegmentShape(lanes=12, ticks=104, interval=104, lane_envs=2)
"""A quarter of the default envs, with the default round length."""
PROBE_SHARE = 0.25
"""Share of the measuring time for a first run, whose speed sets the round length."""


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench checkpoint`."""

    seconds: float = 60.0
    """Seconds of each run, after its start."""
    every: float = 20.0
    """Seconds between two checkpoints; a run writes one every 600 by default."""


def measure(options: Options, report: Report) -> None:
    """Measure segments, then the two runs. Raises `ConfigError` before anything runs if a setting is invalid."""
    if options.every > options.seconds:
        raise ConfigError(f"--every {options.every} must be at most --seconds {options.seconds}.")
    words = list(options.words)
    own = make_plan(options.game, words)
    with report.measuring("segments"):
        segment_files.measure(report, options.game, SEGMENT_SHAPE, options.repeats)
    with report.measuring("settings"):
        probe = measure_run(options.game, PROBE_SHARE * options.seconds, [*words, *_never()])
        words = rounds_that_fit(own, words, options.seconds, probe.steps_per_second)
        note_rounds(report, own, make_plan(options.game, words), options.seconds)
    if "settings" in {*report.missing, *report.wrong}:
        return
    found = measure_interleaved(
        report,
        [
            Contender(WITHOUT, lambda: measure_run(options.game, options.seconds, [*words, *_never()])),
            Contender(WITH, lambda: _with_checkpoints(options, words)),
        ],
        options.repeats,
    )
    for name, runs in found.items():
        newest = [each.summary["checkpoint"] for each in runs]
        with report.measuring(name):
            report.add(
                name,
                "steps/s",
                [each.steps_per_second for each in runs],
                limit=WITHOUT if name == WITH and WITHOUT in found else None,
                note=f"{newest[-1]['bytes'] / 1e6:.0f} MB in {newest[-1]['seconds']:.1f} s" if name == WITH else "",
            )


def _never() -> list[str]:
    """Flags of a run that writes a checkpoint only at its end, and no segments."""
    return ["--no-checkpoint-replay", "--checkpoint-every-minutes", NEVER_MINUTES]


def _with_checkpoints(options: Options, words: list[str]) -> Throughput:
    """Measure a run that writes checkpoints. Raises `WrongResult` if it wrote none before its end."""
    result = measure_run(
        options.game, options.seconds, [*words, "--checkpoint-every-minutes", f"{options.every / 60:.6f}"]
    )
    if result.summary["checkpoint"] is None or result.summary["checkpoint"]["count"] < 2:
        raise WrongResult("It wrote no checkpoint but the last.")
    return result
