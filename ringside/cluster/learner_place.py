"""The place of a learner of several ranks in a cluster: one placement group on this machine.

Ranks read the memory of the run, so they are children of its launcher on the head, not actors of Ray. Ray must only
give their CPUs or GPUs to no other program. This program holds the placement group, with a bundle for each rank, until
its standard input ends. It is not the launcher, since the end of a cluster can end a process that is connected to it.

    python -m ringside.cluster.learner_place ADDRESS RESOURCE RANKS AMOUNT
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import msgspec
from multiprocess.connection import wait

from ringside.cluster.connection import disconnect, join
from ringside.cluster.program_host import module_environment
from shared.config.settings import ResolvedMachine
from shared.errors import ConfigError
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.performance.allocation import busy_threads

PROGRAM = "ringside.cluster.learner_place"
GROUP_SECONDS = 30.0
"""Longest wait for CPUs or GPUs that other programs of the cluster have."""
ANSWER_SECONDS = GROUP_SECONDS + 90.0
"""Longest wait for the program, which loads Ray first."""


class Place(msgspec.Struct, frozen=True):
    """A place, or the reason why there is none."""

    node: str = ""
    """Identity of this machine's node."""
    cpus: int = 0
    """CPUs of it that are reserved."""
    gpus: tuple[str, ...] = ()
    """GPUs of it that are reserved, one for each rank."""
    refusal: str = ""
    """Sentence; empty: there is a place."""


@contextmanager
def learner_place(machine: ResolvedMachine, address: str) -> Iterator[Place]:
    """Hold a place for the ranks of a run. Raises `ConfigError` if there is none.

    Where this machine's node has none of the resource, Ray gives it to no program, and nothing is reserved.
    """
    words = [PROGRAM, address, *map(str, request_of(machine))]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env=module_environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the launcher
            preexec_fn=partial(die_with, os.getpid()),
        )
        try:
            yield _answer(process, errors)
        finally:
            _close(process)


def request_of(machine: ResolvedMachine) -> tuple[str, int, int]:
    """Resource of Ray, ranks, and amount for each. Raises `ConfigError` where a GPU is chosen that Ray chooses."""
    ranks = machine.learner_ranks
    if machine.device == "cpu":
        return "CPU", ranks, busy_threads(machine.learner_threads, machine.learner_shards, on_cpu=True)
    if machine.device != "cuda:0":
        raise ConfigError(f"Ray chooses the GPUs of --learner-ranks: say --device cuda, not {machine.device}.")
    return "GPU", ranks, 1


def refusal_of(resource: str, ranks: int, amount: int, total: int) -> str:
    """Sentence where this machine's node, with `total` of a resource, has too little; else empty."""
    needed = ranks * amount
    if total >= needed:
        return ""
    return (
        f"--learner-ranks {ranks} need {needed} {resource}s of this machine, and its node of the cluster has {total}: "
        f"pass fewer, or start that node with --num-{resource.lower()}s 0, so that Ray leaves them to this run."
    )


def main() -> int:
    """Reserve the place, print it, and hold it."""
    address, resource, ranks, amount = sys.argv[1:]
    try:
        join(address)
        place = _reserve(resource, int(ranks), int(amount))
    except ConfigError as error:
        place = Place(refusal=str(error))
    print(msgspec.json.encode(place).decode(), flush=True)
    if not place.refusal:
        sys.stdin.read()  # until the launcher ends
    disconnect()
    return 0


def _reserve(resource: str, ranks: int, amount: int) -> Place:
    """Reserve the resource on this machine's node."""
    import ray
    from ray.util.placement_group import placement_group

    own = ray.get_runtime_context().get_node_id()
    total = next(int(node["Resources"].get(resource, 0)) for node in ray.nodes() if node["NodeID"] == own)
    if not total:
        return Place(own)
    if refusal := refusal_of(resource, ranks, amount, total):
        return Place(refusal=refusal)
    here = [{"ray.io/node-id": own}] * ranks
    group = placement_group([{resource: amount}] * ranks, strategy="STRICT_PACK", bundle_label_selector=here)
    if not group.wait(GROUP_SECONDS):
        return Place(
            refusal=f"Other programs of the cluster have the {resource}s of this machine that --learner-ranks {ranks} "
            f"need ({ranks * amount} of {total}): end these, or retry later."
        )
    if resource == "CPU":
        return Place(own, cpus=ranks * amount)
    return Place(own, gpus=tuple(_gpu_of(group, bundle) for bundle in range(ranks)))


def _gpu_of(group: Any, bundle: int) -> str:
    """Number of the GPU of a bundle."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    inside = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    look = ray.remote(_visible_gpu).options(num_cpus=0, num_gpus=1, scheduling_strategy=inside)
    number: str = ray.get(look.remote())
    return number


def _visible_gpu() -> str:
    import ray

    (number,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    return str(number)


def _answer(process: subprocess.Popen[str], errors: IO[str]) -> Place:
    """The place. Raises `ConfigError` if there is none."""
    assert process.stdout is not None, "its output is a pipe"
    line = process.stdout.readline() if wait([process.stdout], ANSWER_SECONDS) else ""
    if not line:
        errors.seek(0)
        (*_, last) = ["nothing was printed", *filter(None, map(str.strip, errors))]
        raise ConfigError(f"The cluster gives no place for --learner-ranks: {last}")
    place = msgspec.json.decode(line, type=Place)
    if place.refusal:
        raise ConfigError(place.refusal)
    return place


def _close(process: subprocess.Popen[str]) -> None:
    """Give the place back."""
    kill_and_reap(process)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None, "it is a pipe"
        pipe.close()


if __name__ == "__main__":
    sys.exit(main())
