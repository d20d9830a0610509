"""The place of a learner of several ranks in a cluster: one placement group on this machine.

Ranks read the memory of the run, so they are children of its launcher on the head, not actors of Ray. Ray must only
give their CPUs or GPUs to no other program. This program holds the placement group, with a bundle for each rank, until
its standard input ends. It is not the launcher, since the end of a cluster can end a process that is connected to it.
The launcher starts another one if it dies.

    python -m ringside.cluster.learner_place ADDRESS RESOURCE RANKS AMOUNT
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from multiprocess.connection import wait

from ringside.cluster.connection import disconnect, join
from ringside.cluster.program_host import module_environment
from shared.config.settings import ResolvedMachine
from shared.errors import ConfigError
from shared.machine.allocation import busy_threads, shards_of_rank
from shared.machine.subprocesses import die_with, kill_and_reap

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


class HeldPlace:
    """A place of ranks, which a program holds until `close`. Call it from one thread.

    Attributes:
        place: as it was given at first.
    """

    def __init__(self, machine: ResolvedMachine, address: str) -> None:
        """Reserve the place. Raises `ConfigError` if there is none.

        Where this machine's node has none of the resource, Ray gives it to no program, and nothing is reserved.
        """
        self._words = [address, *map(str, request_of(machine))]
        self._holder: _Holder | None = _Holder(self._words)
        self._holds = True
        try:
            self.place = self._holder.answer(ANSWER_SECONDS)
        except ConfigError:
            self.close()
            raise

    def keep(self) -> str:
        """Reserve the place again if the program has died, without a wait.

        Returns:
            A sentence where something has happened, else nothing.
        """
        if self._holder is None or (self._holds and self._holder.lives):
            return ""
        if self._holds:
            self._holder.close()
            self._holder, self._holds = _Holder(self._words), False
            return "The program that reserves the learner's place in the cluster died; another one is started."
        if not self._holder.has_answered:
            return ""
        try:
            gpus = self._holder.answer(ANSWER_SECONDS).gpus
        except ConfigError as error:
            self.close()
            return f"{str(error).removesuffix('.')}. The learner continues without a reserved place."
        self._holds = True
        if set(gpus) == set(self.place.gpus):
            return "The learner's place in the cluster is reserved again."
        own, other = ", ".join(sorted(self.place.gpus)), ", ".join(sorted(gpus))
        return f"The cluster reserves the GPUs {other} now, but the learner is on {own}: resume the run to move it."

    def close(self) -> None:
        """Give the place back."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None


class _Holder:
    """The program that holds a place."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it."""
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (`close` closes it)
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, *words],
            env=module_environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the launcher
            preexec_fn=partial(die_with, os.getpid()),
        )

    @property
    def lives(self) -> bool:
        """True if it has not ended."""
        return self._process.poll() is None

    @property
    def has_answered(self) -> bool:
        """True if there is an answer, or it has ended."""
        assert self._process.stdout is not None, "its output is a pipe"
        return bool(wait([self._process.stdout], 0))

    def answer(self, seconds: float) -> Place:
        """The place. Raises `ConfigError` if there is none."""
        output = self._process.stdout
        assert output is not None, "its output is a pipe"
        line = output.readline() if wait([output], seconds) else ""
        if not line:
            self._errors.seek(0)
            (*_, last) = ["nothing was printed", *filter(None, map(str.strip, self._errors))]
            raise ConfigError(f"The cluster gives no place for --learner-ranks: {last}")
        place = msgspec.json.decode(line, type=Place)
        if place.refusal:
            raise ConfigError(place.refusal)
        return place

    def close(self) -> None:
        """End it."""
        kill_and_reap(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it is a pipe"
            pipe.close()
        self._errors.close()


def request_of(machine: ResolvedMachine) -> tuple[str, int, int]:
    """Resource of Ray, ranks, and amount for each. Raises `ConfigError` where a GPU is chosen that Ray chooses."""
    ranks = machine.learner_ranks
    if machine.device == "cpu":
        own = shards_of_rank(machine.learner_shards, ranks)
        return "CPU", ranks, busy_threads(machine.learner_threads, own, on_cpu=True)
    if machine.device != "cuda:0":
        raise ConfigError(f"Ray chooses the GPUs of --learner-ranks: pass --device cuda, not {machine.device}.")
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


if __name__ == "__main__":
    sys.exit(main())
