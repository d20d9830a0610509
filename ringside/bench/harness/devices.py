"""Devices on which networks are measured: their settings, synchronization and CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from learner.engine.accelerator import accelerator_of, is_gpu
from learner.engine.device import prepare_torch
from learner.engine.prefetcher import Graphs
from ringside.bench.harness.tables import Report
from shared.config.resolve import precision_of, why_missing
from shared.config.sections import Precision
from shared.machine import facts
from shared.process.library_env import choose_workspace


@dataclass(frozen=True)
class Device:
    """One device and the arithmetic to be measured on it."""

    torch: torch.device
    precisions: list[Precision]
    """The precision of a run, and float32."""

    def prepare(self, precision: str, threads: int) -> None:
        """Apply the settings of a run to this process; call it before building what is measured."""
        choose_workspace()
        prepare_torch(self.torch, precision, threads)

    def named(self, row: str) -> str:
        """Name of a row, with the device appended unless it is the CPU."""
        return row if self.torch.type == "cpu" else f"{row}, CUDA"

    def settle(self) -> None:
        """Wait until the device has finished all submitted work."""
        if is_gpu(self.torch):
            accelerator_of(self.torch).synchronize(self.torch)

    def captured(self, body: Callable[[], object]) -> Callable[[], object]:
        """`body` as a run executes it: on CUDA, captured into a graph."""
        if not is_gpu(self.torch):
            return body
        graphs = Graphs(self.torch)
        graphs.capture("body", body)
        return torch.inference_mode()(partial(graphs.replay, "body"))


def devices(part: str, report: Report) -> list[Device]:
    """The CPU, and a GPU if there is one; otherwise the report says why not."""
    names = ["cpu"]
    if facts.cuda_devices():
        names.append("cuda:0")
    else:
        reason = why_missing(0)
        report.missing[f"{part} on CUDA"] = f"{reason[0].upper()}{reason[1:]}."
    return [Device(torch.device(name), list(dict.fromkeys((precision_of("auto", name), "fp32")))) for name in names]
