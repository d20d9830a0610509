"""Speed of a run on nodes beside that of the same run on one machine, with the same cores for both.

    python -m tests.ringside.cluster.end_to_end [--nodes 2] [--repeats 3] [--rounds 4] [--round-steps 4_800]

Runs are interleaved: one on this machine with an actor for each node, one on nodes of one CPU each, and so on. This
program and all that it starts, Ray included, is bound to as many cores as there are nodes. The learner is on this
machine both times. So the nodes get nothing more than the run alone, and pay for Ray, for gateways and for an inference
server of each group. The first two rounds of a run do not count: nothing is learned in one, and processes start.
Weights must be equal. Exit code 1: they were not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.ray_cluster import ray_cluster
from tests.support.runs import finish, memory_of, start, summary, wait_until

WARM_UP = 2
"""First rounds, which do not count."""
ENVS = 32
SECONDS = 900.0
"""Longest run."""
LEAST_SECONDS = 5.0
"""Length of a round from which on the overhead of a round should hardly matter."""


class Measured(NamedTuple):
    """One run."""

    seconds: float
    """Mean time of a round."""
    weights: str
    """Their hash."""


def measure(run_dir: Path, rounds: int, round_steps: int, address: str, nodes: int) -> Measured:
    """Run once. `address` is empty for a run on this machine, where there is an actor for each of `nodes`."""
    words = ["--ray", address, "--nodes", str(nodes)] if address else []
    process = start(
        run_dir,
        *words,
        actors="1" if address else str(nodes),
        envs=str(ENVS),
        inference_batch=str(ENVS // (2 * nodes)),
        network="nature",
        batch_size="32",
        round_steps=str(round_steps),
        learning_starts=str(round_steps),
        replay_size=str(8 * round_steps),
        total_steps=str((WARM_UP + rounds) * round_steps),
    )
    try:
        memory = memory_of(process, run_dir, gateways=nodes if address else 0)
        wait_until(process, lambda: memory.board.committed >= WARM_UP, SECONDS, every=0.02)
        assert (memory.board.lane_owner > 0).all() == bool(address), "nodes play from the second round on"
        begun = time.monotonic()
        wait_until(process, lambda: memory.board.complete, SECONDS, every=0.02)
        seconds = (time.monotonic() - begun) / rounds
        finish(process, SECONDS)
    finally:
        process.kill()
    return Measured(seconds, summary(run_dir)["weights_sha256"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4, help="of each run that count")
    parser.add_argument("--round-steps", type=int, default=4_800)
    options = parser.parse_args()
    nodes, steps = options.nodes, options.round_steps
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:nodes])
    alone: list[Measured] = []
    remote: list[Measured] = []
    with ray_cluster(nodes=nodes) as cluster, tempfile.TemporaryDirectory() as scratch:
        for repeat in range(options.repeats):
            for found, address in ((alone, ""), (remote, cluster.address)):
                run_dir = Path(scratch) / f"{'remote' if address else 'alone'}{repeat}"
                found.append(measure(run_dir, options.rounds, steps, address, nodes))
    ratios = [one.seconds / other.seconds for one, other in zip(alone, remote, strict=True)]
    shortest = min(each.seconds for each in (*alone, *remote))
    for name, found in ((f"this machine, {nodes} actors", alone), (f"{nodes} nodes of one CPU", remote)):
        seconds = statistics.median(each.seconds for each in found)
        print(f"{name}: {steps / seconds:,.0f} steps/s, rounds of {seconds:.1f} s (medians)")
    print(f"nodes beside this machine: {statistics.median(ratios):.3f} ({', '.join(f'{each:.3f}' for each in ratios)})")
    if shortest < LEAST_SECONDS:
        print(f"Rounds were as short as {shortest:.1f} s: raise --round-steps.")
    if len({each.weights for each in (*alone, *remote)}) > 1:
        print("THE WEIGHTS DIFFER")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
