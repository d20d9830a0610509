"""Ranks that are processes: how they find each other, what they exchange, and what they notice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
import torch.distributed

from learner.team import gpu_ranks
from learner.team.gpu_ranks import PeerLostError, RankGroup
from learner.team.member import config_for_rank
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.errors import FatalError
from shared.machine import facts
from shared.memory.process_table import Role
from shared.memory.wait import POLL_SECONDS, Doorbell
from shared.root import ROOT

CPU = torch.device("cpu")
PEER = """
import sys, torch
from tests.learner.team.test_rank_group import CPU, PollingWaiter, spec_of
from learner.team.gpu_ranks import RankGroup
from shared.memory.process_table import Role

ranks = RankGroup.join(spec_of(Role.MEMBER, int(sys.argv[1])), PollingWaiter(), CPU)
whole = torch.tensor([0.0, 0.0, 3.0, 4.0], dtype=torch.bfloat16)
ranks.exchange(whole)
assert whole.tolist() == [1.0, 2.0, 3.0, 4.0]
assert ranks.lead(-1) == 7
ranks.meet(5, "something")
try:
    ranks.meet(6, "the answer")
except Exception as error:
    print(type(error).__name__, flush=True)
sys.stdin.read()
"""
"""A second rank, which then waits to be killed."""


class PollingWaiter:
    """Waits as `shared.memory.wait.Waiter` does, without a board."""

    def __init__(self) -> None:
        self._doorbell = Doorbell.create()

    def wait(self, ready: Callable[[], bool], sleep: Callable[[float], object] | None = None) -> int:
        """Poll until `ready()`."""
        while not ready():
            (sleep or self._doorbell.wait)(POLL_SECONDS)
        return 0


def spec_of(role: Role, rendezvous: int) -> Any:
    """The specification of a rank: the learner, or the first beside it."""
    plan = SimpleNamespace(config=SimpleNamespace(machine=SimpleNamespace(learner_processes=2)))
    return SimpleNamespace(plan=plan, role=role, number=0, rendezvous=rendezvous)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RankGroup, subprocess.Popen[str]]]:
    """This process as rank 0, and the process that is rank 1."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")  # which joining changes
    fd = os.memfd_create("ranks")
    with subprocess.Popen(
        [sys.executable, "-c", PEER, str(fd)],
        cwd=ROOT,
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            waiter: Any = PollingWaiter()
            yield RankGroup.join(spec_of(Role.LEARNER, fd), waiter, CPU), process
        finally:
            process.kill()
            torch.distributed.destroy_process_group()
            os.close(fd)


def test_two_ranks_exchange_numbers_and_notice_an_end(
    peer: tuple[RankGroup, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, process = peer
    whole = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.bfloat16)
    ranks.exchange(whole)
    assert whole.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert ranks.lead(7) == 7
    ranks.meet(5, "something")
    with pytest.raises(FatalError, match=r"The ranks of the learner disagree about the answer \(5, 6\): their"):
        ranks.meet(5, "the answer")
    assert process.stdout is not None
    assert process.stdout.readline() == "FatalError\n"

    sockets = [each for pid in (os.getpid(), process.pid) for each in psutil.Process(pid).net_connections("inet")]
    assert {each.laddr.ip for each in sockets} == {"127.0.0.1"}, "no other machine can connect"

    monkeypatch.setattr(gpu_ranks, "RESTART_SECONDS", 0.0)
    process.kill()
    with pytest.raises(PeerLostError, match="The connection to another rank of the learner broke"):
        ranks.meet(8, "something")
    ranks.leave()


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 4)
    on_gpus = resolve(Config().with_settings(device="cuda:1", learner_ranks=3))
    assert [config_for_rank(on_gpus, rank).machine.device for rank in range(3)] == ["cuda:1", "cuda:2", "cuda:3"]
    on_cpu = resolve(Config().with_settings(device="cpu", learner_members=4))
    assert config_for_rank(on_cpu, 2) == on_cpu
