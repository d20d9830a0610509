"""Preparations of a process before it computes."""

import subprocess
import sys

GIVEN_BACK = """
from concurrent.futures import ThreadPoolExecutor
import psutil, torch
from learner.engine.device import prepare_torch

def given_back():
    blocks = [b"x" * 28_000_000 for _ in range(6)]
    full = memory().rss
    blocks.clear()
    return full - memory().rss

prepare_torch(torch.device("cpu"), "fp32", 1)
memory = psutil.Process().memory_info
with ThreadPoolExecutor(1) as thread:
    print(max(thread.submit(given_back).result() for _ in range(10)))
"""


def test_a_process_keeps_the_memory_that_a_thread_frees() -> None:
    """Blocks that do not fit together into one heap of a thread (64 MB).

    Page faults would not tell: a heap that gives nothing back grows, too. The library cuts off what the alignment of a
    tensor did not need. A small block may take that place, and the next tensor does not fit into the hole.
    """
    assert int(subprocess.check_output([sys.executable, "-c", GIVEN_BACK], timeout=60)) < 28_000_000
