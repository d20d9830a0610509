"""Ranks that are processes: how they find each other, and what they exchange."""

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch.distributed

from learner.team.gpu_ranks import RankGroup
from learner.team.member import config_for_rank
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.errors import FatalError
from shared.machine import facts
from shared.memory.wait import Doorbell
from shared.root import ROOT
from tests.support.waiting import until

CPU = torch.device("cpu")
PEER = """
import sys, torch
from tests.learner.team.test_rank_group import CPU, join

ranks = join(1, *map(int, sys.argv[1:]))
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


def join(rank: int, file: int, *doorbells: int) -> RankGroup:
    """Join the ranks, which meet in a file and have these doorbells."""
    bells: Any = [Doorbell(fd) for fd in doorbells]

    waiter: Any = SimpleNamespace(doorbell=bells[rank], heartbeat=lambda: None, wait=lambda ready, _: until(ready))
    plan = SimpleNamespace(processes=SimpleNamespace(learners=(0, 1)), less_memory="")
    child_spec: Any = SimpleNamespace(plan=plan, process=rank, rendezvous=file, doorbells=bells)
    return RankGroup.join(child_spec, waiter, CPU)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RankGroup, subprocess.Popen[str]]]:
    """This process as rank 0, and the process that is rank 1."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")  # which joining changes
    fds = os.memfd_create("ranks"), *(Doorbell.create().fd for _ in range(2))
    words, pipes = [sys.executable, "-c", PEER, *map(str, fds)], dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(words, cwd=ROOT, pass_fds=fds, text=True, **pipes) as process:
        try:
            yield join(0, *fds), process
        finally:
            process.kill()
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for fd in fds:
                os.close(fd)


def test_two_ranks_exchange_numbers_and_tensors(peer: tuple[RankGroup, subprocess.Popen[str]]) -> None:
    ranks, process = peer
    whole = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.bfloat16)
    ranks.exchange(whole)
    assert whole.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert ranks.lead(7) == 7
    ranks.meet(5, "something")
    with pytest.raises(FatalError, match=r"The members of the learner disagree about the answer \(5, 6\): their"):
        ranks.meet(5, "the answer")
    assert process.stdout.readline() == "FatalError\n"

    sockets = [each for pid in (os.getpid(), process.pid) for each in psutil.Process(pid).net_connections("inet")]
    assert {each.laddr.ip for each in sockets} == {"127.0.0.1"}, "no other machine can connect"
    ranks.leave()


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 4)
    on_gpus = resolve(Config().with_settings(device="cuda:1", learner_ranks=3))
    assert [config_for_rank(on_gpus, rank).machine.device for rank in range(3)] == ["cuda:1", "cuda:2", "cuda:3"]
    on_cpu = resolve(Config().with_settings(device="cpu", learner_members=4))
    assert config_for_rank(on_cpu, 2) == on_cpu
