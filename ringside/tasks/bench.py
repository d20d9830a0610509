"""The task `bench`: one of the benchmarks in `ringside/bench/`."""

from __future__ import annotations

from collections.abc import Sequence

from ringside.bench import bench_command
from ringside.tasks.arguments import parse
from shared.text import PROGRAM


def main(arguments: Sequence[str]) -> int:
    """Run a benchmark. Return 1 if a timed part computed a wrong result."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} bench NAME [options]; {PROGRAM} bench NAME --help explains one\n")
        for each, explanation in bench_command.BENCHMARKS.items():
            print(f"  {each:12}{explanation}")
        return 0
    benchmark = bench_command.find_benchmark(name)
    options = parse(benchmark.options, rest, f"{PROGRAM} bench {name}", benchmark.explanation)
    return bench_command.run(benchmark, options, rest)
