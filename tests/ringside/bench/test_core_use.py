"""CPU time of a run by role."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from ringside.bench.harness.core_use import CoreSampler

CHILD = """
import sys, time
from setproctitle import setproctitle
setproctitle("ringside actor 0")
print("ready", flush=True)
sys.stdin.readline()
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("done", flush=True)
sys.stdin.readline()
"""


def test_each_role_has_the_time_of_its_processes() -> None:
    sampler = CoreSampler(os.getpid())
    assert sampler.use() == {}
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        sampler.begin()
        began = time.perf_counter()
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"done\n"
        used, seconds = sampler.use(), time.perf_counter() - began
        child.stdin.write(b"\n")
    assert 0.25 < used["actor"] * seconds < 0.4
    assert set(used) == {"actor", "launcher"}


def test_a_launcher_that_has_ended_used_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    sampler = CoreSampler(ended.pid)
    sampler.begin()
    assert sampler.use() == {}
