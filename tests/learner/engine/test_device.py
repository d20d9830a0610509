"""Preparations of a process before it computes."""

from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource
from concurrent.futures import ThreadPoolExecutor

import torch

from learner.engine.device import prepare_torch

prepare_torch(torch.device("cpu"), "fp32", 1)


def passes(count):
    for _ in range(count):
        sum([torch.ones(7_000_000) for _ in range(3)])
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


with ThreadPoolExecutor(1) as thread:
    before = thread.submit(passes, 20).result()
    print(thread.submit(passes, 20).result() - before)
"""


def test_a_thread_finds_the_memory_that_it_freed() -> None:
    """Tensors that do not fit together into one heap of a thread (64 MB); 6,800 pages each, if they were given back."""
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) < 6_800
