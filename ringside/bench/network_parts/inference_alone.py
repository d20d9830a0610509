"""Inference alone: from stacks of frames in memory to Q-values, by batch size and precision.

Its Q-values are compared with those of PyTorch layers in float32.
"""

from __future__ import annotations

import numpy as np
import torch

from learner.engine.initialization import initial_parameters
from learner.networks.policy import Policy
from ringside.bench.harness.devices import Device, devices
from ringside.bench.harness.interleaved import seconds_per_call
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.limits import Options
from ringside.bench.network_parts.plain_update import AGREEMENT, plain_values
from shared.config.settings import Config
from shared.frame_shape import FRAME_SIDE, STACK
from shared.network_spec import Network

ACTIONS = 4
SEED = 1
BATCHES = {"cpu": (2, 8, 32), "cuda": (32, 96, 192)}
"""Batch sizes by device type; a run takes 32 on a CPU and all envs on a GPU (shared/config/resolve.py)."""


def measure(options: Options, report: Report) -> None:
    """The part `inference` of `launch.py bench limits`."""
    for device in devices("inference", report):
        for precision in device.precisions:
            with report.measuring(device.named(f"inference, {precision}")), torch.inference_mode():
                device.prepare(precision, options.inference_threads or 1)
                for batch in BATCHES[device.torch.type]:
                    _measure(options, report, device, precision, batch)


def _measure(options: Options, report: Report, device: Device, precision: str, batch: int) -> None:
    network = Network(Config().learn.network, ACTIONS)
    policy = Policy(network, device.torch, precision, batch)
    parameters = initial_parameters(network, SEED)
    policy.load(parameters)
    stacks = np.random.default_rng(SEED).integers(0, 256, (batch, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
    wanted = plain_values(network.name, torch.from_numpy(parameters), torch.from_numpy(stacks))
    off = float(np.linalg.norm(policy.values(stacks) - wanted.numpy()) / wanted.norm())
    if not off < AGREEMENT:
        raise WrongResult(f"With batch {batch}, values are {off:.1%} off those of plain layers in float32.")
    actions = [lambda: policy.values(stacks)]
    times = np.array([seconds_per_call(actions, options.seconds, device.settle) for _ in range(options.repeats)])
    speeds = batch / times[:, 0]
    name = device.named(f"inference, {precision}, {batch}")
    report.add(name, "rows/s", speeds.tolist(), note=f"{1e6 / np.median(speeds):,.0f} us a row")
