"""The price of the round: throughput with the barrier (`concurrent`) against without it (`free`).

    python -m benchmarks.round_price --seconds 40 --repeats 3 --json benchmarks/results/round_price.json

Twice: as Nature DQN has it, where on a small machine everybody waits for the learner; and with an update only every
400 steps, where emulation is, and the barrier shows as actors that wait for the slowest lane. Runs alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.runs import measure
from shared import machine

CASES = {"learner-bound": ["--train-every", "4"], "emulation-bound": ["--train-every", "400"]}


def main() -> None:
    """Measure both cases with both schedules in turn; print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    barrier: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(options.repeats):
        for case, words in CASES.items():
            for schedule in ("concurrent", "free"):
                result = measure(options.game, options.seconds, [*words, "--schedule", schedule])
                figures[case].setdefault(schedule, []).append(result.steps_per_second)
                if schedule == "concurrent":
                    barrier[case].append(result.learner_barrier_share)
    table = Table(
        "", "concurrent, steps/s", "free, steps/s", "ratio", "learner at the barrier", title="Price of the round"
    )
    for case, speeds in figures.items():
        with_barrier, without = (statistics.median(speeds[name]) for name in ("concurrent", "free"))
        share = statistics.median(barrier[case])
        table.add_row(case, f"{with_barrier:.0f}", f"{without:.0f}", f"{with_barrier / without:.3f}", f"{share:.1%}")
    Console().print(table)
    if options.json:
        result_json = {
            "command": " ".join(["python -m benchmarks.round_price", *sys.argv[1:]]),
            "steps_per_second": figures,
            "learner_barrier_share": barrier,
        }
        options.json.write_text(json.dumps(result_json | {"machine": machine.describe()}, indent=1))


if __name__ == "__main__":
    main()
