"""The share of the time in which the GPU works, as the driver's own tool tells it once a second."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from types import TracebackType

from shared import machine
from shared.parent import killed

INTERVAL_MS = 1_000
"""Between two samples; each is the share of the driver's last sample period."""


END_SECONDS = 10.0
"""How long the tool may take to end."""


class GpuShare:
    """Samples of the use of the first GPU that CUDA sees, from `begin` on; none where there is no GPU, or no tool."""

    def __init__(self) -> None:
        tool = shutil.which("nvidia-smi")
        self._tool = tool if machine.has_nvidia_driver() else None
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Begin to sample, unless that was done."""
        if self._tool is None or self._process is not None:
            return
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
        query = [
            f"--id={seen}",
            "--query-gpu=utilization.gpu",
            "--format=csv,noheader,nounits",
            f"--loop-ms={INTERVAL_MS}",
        ]
        self._process = subprocess.Popen(
            [self._tool, *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def share(self) -> float | None:
        """Stop, and return the mean of the samples, in [0, 1]; None: there are none."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            said, _ = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        samples = [float(line) for line in said.splitlines() if line.strip().isdecimal()]
        return statistics.fmean(samples) / 100 if samples else None

    def __enter__(self) -> GpuShare:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            killed(self._process)
