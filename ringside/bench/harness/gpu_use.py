"""Load and memory of a GPU, read once a second from the driver's own tool."""

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
"""Between two samples; a share is that of the driver's last sample period."""
END_SECONDS = 10.0
"""Seconds in which the tool must end."""
_SAMPLE = re.compile(r"(\d+), *(\d+)")


def seen_by_the_driver(index: int) -> str:
    """Driver's name of the GPU that CUDA calls `index`: a number or a UUID of CUDA_VISIBLE_DEVICES."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[index].strip() if index < len(visible) else str(index)


class GpuUse(NamedTuple):
    """Use of a GPU by all processes on it."""

    share: float
    """Mean share of the time in which it worked, in [0, 1]."""
    bytes: float
    """Most memory in use, contexts included."""


class GpuSampler:
    """Samples of the use of a GPU, from `begin` on; none where there is no GPU, or no tool."""

    def __init__(self) -> None:
        tool = shutil.which("nvidia-smi")
        self._tool = tool if facts.has_nvidia_driver() else None
        self._process: subprocess.Popen[str] | None = None

    def begin(self, device: str) -> None:
        """Begin to sample `device`, "cuda:N" among those that CUDA sees, unless that was done; "cpu" is no GPU."""
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
        """Stop, and return what the samples say; None: there are none."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            said, _ = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        found = [_SAMPLE.fullmatch(line.strip()) for line in said.splitlines()]
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
