"""The ranks of a learner, joined by torch.distributed: gloo between processes and CPUs, nccl between GPUs.

The supervisor gives the ranks a file in memory, in which they find each other. It has no name, so nothing is left
behind. Connections use the loopback interface alone. A rank that dies breaks the connections of the others; the
supervisor restarts all of them, and nothing here tries to continue without one.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed
from torch import Tensor

from learner.engine.accelerator import is_gpu
from learner.team.team import Team
from shared.errors import FatalError
from shared.memory.process_table import Role
from shared.memory.wait import Waiter
from shared.process.child import ChildSpec

LOOPBACK = "lo"
"""Interface of all connections."""
_UNBOUNDED = timedelta(days=365)
"""Time limit of torch.distributed for an operation. The waits here end with the run, or when the supervisor restarts
the ranks; a rank may wait for hours while lanes play."""
RESTART_SECONDS = 30.0
"""Time that a rank which lost its connections gives the supervisor to restart all ranks, before it fails by itself."""


class PeerLostError(Exception):
    """A rank lost its connection to another one, and no restart followed."""


class RankGroup(Team):
    """All ranks of the learner, as one of them sees them. Its methods are collective: every rank calls them in order.

    Attributes:
        rank: number of this process among the ranks; 0 is the learner that commits.
        size: number of ranks.
    """

    def __init__(self, rank: int, size: int, device: torch.device, waiter: Waiter) -> None:
        """Join the other ranks by the default group of torch.distributed, which exists.

        Args:
            device: of the tensors that are gathered.
            waiter: of this process, for heartbeats in waits.
        """
        self.rank, self.size = rank, size
        self._waiter = waiter
        # Numbers go between processes, since a wait for a GPU records no heartbeat.
        self._gpus = torch.distributed.new_group(backend="nccl", timeout=_UNBOUNDED) if is_gpu(device) else None

    @classmethod
    def join(cls, child_spec: ChildSpec, waiter: Waiter, device: torch.device) -> RankGroup:
        """Wait until all ranks have joined. Raises `Stopped` when the run is to end."""
        joined: list[RankGroup] = []
        failed: list[Exception] = []

        def connect() -> None:
            rank, size = rank_of(child_spec), child_spec.plan.config.machine.learner_processes
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
            try:
                torch.distributed.init_process_group(
                    "gloo",
                    init_method=f"file:///proc/self/fd/{child_spec.rendezvous}",
                    rank=rank,
                    world_size=size,
                    timeout=_UNBOUNDED,
                )
                joined.append(cls(rank, size, device, waiter))
            except Exception as error:  # noqa: BLE001  (raised again in the thread that waits)
                failed.append(error)

        thread = threading.Thread(target=connect, name="join", daemon=True)
        thread.start()
        waiter.wait(lambda: not thread.is_alive(), thread.join)
        if failed:
            raise failed[0]
        return joined[0]

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        """Zeros in the memory of this rank."""
        return torch.zeros(*shape, dtype=dtype, device=device)

    def own(self, parts: int) -> range:
        """Neighboring parts, as many as of any other rank."""
        return range(self.rank * parts // self.size, (self.rank + 1) * parts // self.size)

    def written(self, parts: int) -> range:
        """All parts."""
        return range(parts)

    def sync(self) -> None:
        """Do nothing: no memory is shared."""

    def exchange(self, whole: Tensor) -> None:
        """Write the shares of all ranks into `whole`, contiguous, which each rank has filled with its own share."""
        # As bytes, which every backend knows.
        parts = [part.view(-1).view(torch.uint8) for part in whole.chunk(self.size)]
        mine = parts[self.rank].clone()
        if self._gpus is not None:
            torch.distributed.all_gather(parts, mine, group=self._gpus)
        else:
            self._wait(torch.distributed.all_gather(parts, mine, async_op=True))

    def meet(self, number: int, what: str) -> None:
        """Wait for all ranks, which must come with the same number.

        Raises:
            FatalError: one came with another number, so the ranks do not compute alike.
        """
        numbers = self._numbers(number)
        if len(set(numbers)) > 1:
            raise FatalError(
                f"The ranks of the learner disagree about {what} ({', '.join(map(str, numbers))}): their processors "
                "do not compute alike. Pass --learner-ranks 1, or take GPUs of one model."
            )

    def lead(self, number: int) -> int:
        """Return the number with which rank 0 comes."""
        return self._numbers(number)[0]

    def leave(self) -> None:
        """Close all connections, also those of an operation that another rank will not take part in any more."""
        for group in (self._gpus, torch.distributed.group.WORLD):
            if group is not None:
                group.abort()

    def _numbers(self, number: int) -> list[int]:
        """The numbers of all ranks."""
        numbers = torch.empty(self.size, dtype=torch.int64)
        own = torch.tensor([number])
        self._wait(torch.distributed.all_gather(list(numbers.chunk(self.size)), own, async_op=True))
        found: list[int] = numbers.tolist()
        return found

    def _wait(self, work: torch.distributed.Work) -> None:
        """Wait for an operation, with heartbeats.

        Raises:
            PeerLostError: a connection broke, and the supervisor did not restart the ranks.
        """

        def sleep(seconds: float) -> None:
            with suppress(RuntimeError):  # the time is over, or it failed, which is found below
                work.wait(timedelta(seconds=seconds))

        self._waiter.wait(work.is_completed, sleep)
        try:
            work.wait()
        except RuntimeError as error:
            deadline = time.monotonic() + RESTART_SECONDS
            self._waiter.wait(lambda: time.monotonic() > deadline)
            raise PeerLostError(f"The connection to another rank of the learner broke: {error}") from error


def rank_of(child_spec: ChildSpec) -> int:
    """The number of a process among the ranks of the learner."""
    return 0 if child_spec.role is Role.LEARNER else 1 + child_spec.number
