"""GPU utilization and memory, sampled once a second with nvidia-smi."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
from types import TracebackType
from typing import NamedTuple

from shared.machine import facts
from shared.machine.subprocesses import kill_and_reap

INTERVAL_MS = 1_000
"""Interval between two samples; the driver averages utilization over its last sample period."""
END_SECONDS = 10.0
"""Longest time that nvidia-smi may take to end."""
_SAMPLE = re.compile(r"(\d+), *(\d+)")


def seen_by_the_driver(index: int) -> str:
    """Driver's name of CUDA device `index`: a number or UUID from CUDA_VISIBLE_DEVICES."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[index].strip() if index < len(visible) else str(index)


class GpuUse(NamedTuple):
    """Use of a GPU by all processes on it."""

    share: float
    """Mean share of the time in which the GPU was busy, in [0, 1]."""
    bytes: float
    """Peak memory in use, contexts included."""


class GpuSampler:
    """Samples GPU use from `begin` on; takes no samples without a GPU or nvidia-smi."""

    def __init__(self) -> None:
        tool = shutil.which("nvidia-smi")
        self._tool = tool if facts.has_nvidia_driver() else None
        self._process: subprocess.Popen[str] | None = None

    def begin(self, device: str) -> None:
        """Start to sample `device` ("cuda:N" as CUDA counts); does nothing for "cpu" or if already started."""
        kind, _, index = device.partition(":")
        if self._tool is None or self._process is not None or kind != "cuda":
            return
        query = [
            f"--id={seen_by_the_driver(int(index or 0))}",
            "--query-gpu=utilization.gpu,memory.used",
            "--format=csv,noheader,nounits",
            f"--loop-ms={INTERVAL_MS}",
        ]
        self._process = subprocess.Popen(
            [self._tool, *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def use(self) -> GpuUse | None:
        """Stop, and return the mean use; None without samples."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            output, _ = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        found = [_SAMPLE.fullmatch(line.strip()) for line in output.splitlines()]
        numbers = [(float(sample[1]), float(sample[2])) for sample in found if sample]
        if not numbers:
            return None
        shares, mebibytes = zip(*numbers, strict=True)
        return GpuUse(statistics.fmean(shares) / 100, max(mebibytes) * 2**20)

    def __enter__(self) -> GpuSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            kill_and_reap(self._process)
