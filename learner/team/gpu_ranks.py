"""The ranks of a learner, each with a GPU and the whole state, joined by torch.distributed: nccl between GPUs.

Numbers go through shared memory, as between members on a CPU. A rank that dies leaves the others in an operation that
does not end; the supervisor restarts all of them, and nothing here tries to continue without one.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Self

import torch
import torch.distributed
from torch import Tensor

from learner.engine.accelerator import is_gpu
from learner.team.shared_team import SharedTeam
from learner.team.team import Team
from shared.memory.arena import memory_file
from shared.memory.wait import Waiter
from shared.process.child import ChildSpec

LOOPBACK = "lo"
"""Interface of all connections."""
_UNBOUNDED = timedelta(days=365)
"""Time limit of torch.distributed for an operation. The waits here end with the run, or when the supervisor restarts
the ranks; a rank may wait for hours while lanes play."""


class RankGroup(SharedTeam):
    """Ranks, which exchange tensors but share none (`learner.team.team.Team`)."""

    zeros, sync = Team.zeros, Team.sync

    @classmethod
    def join(cls, child_spec: ChildSpec, waiter: Waiter, device: torch.device) -> Self:
        """Wait until all ranks have joined. Raises `Stopped` when the run is to end."""
        group = super().join(child_spec, waiter, device)
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
        # Ranks find each other in a file of rank 0, which stays open as long as it lives, and has no name.
        process, file = (group.lead(number) for number in (os.getpid(), memory_file("ranks")))
        torch.distributed.init_process_group(
            "nccl" if is_gpu(device) else "gloo",
            store=torch.distributed.FileStore(f"/proc/{process}/fd/{file}", group.size),  # type: ignore[attr-defined]
            rank=group.rank,
            world_size=group.size,
            timeout=_UNBOUNDED,
        )
        return group

    def written(self, parts: int) -> range:
        """All parts."""
        return range(parts)

    def exchange(self, *wholes: Tensor) -> None:
        """Write the shares of all ranks into `wholes`, contiguous, which each rank has filled with its own share."""
        for whole in wholes:  # as bytes, which all backends know
            parts = [part.view(-1).view(torch.uint8) for part in whole.chunk(self.size)]
            torch.distributed.all_gather(parts, parts[self.rank].clone())

    def leave(self) -> None:
        """Close all connections, also those of an operation that another rank will not take part in any more."""
        if torch.distributed.group.WORLD is not None:
            torch.distributed.group.WORLD.abort()
