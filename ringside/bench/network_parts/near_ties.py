"""Near-ties among action values: how often machines that round differently could act differently.

An agent plays, and its network answers the same stacks in several arithmetics. Printed are the share of answers whose
bits differ from those of float32 with one thread, the greatest difference, the share of actions that differ, and the
share of answers whose best two values are closer than some gaps. An answer whose gap is more than twice the greatest
difference has the same action in both arithmetics; the others would have to be computed again in one that all machines
share. `canonical_forward` is such an arithmetic, compiled, with a fixed order of sums; its time says what that costs.

    python -m ringside.bench.network_parts.near_ties --load zoo/pong --stacks 4096
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from learner.engine.device import prepare_torch
from learner.networks.policy import Policy
from ringside.agents.agent import Agent, load_agent
from ringside.agents.stored_weights import weights_at
from shared.network_parameters import parameters_of
from shared.network_spec import PLAIN_NETWORKS

GAPS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
EXPLORE = 0.05
"""Share of random actions, so that the stacks are not those of one episode."""
LIMITED = {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}
"""Variables that make the libraries compute as on an older processor."""
ARITHMETICS = (("fp32", 1), ("fp32", 2), ("bf16", 1))
BATCH = 32
Values = NDArray[np.float32]


def stacks_of(agent: Agent, count: int, seed: int = 1) -> NDArray[np.uint8]:
    """Stacks that an agent sees while it plays."""
    env, random = agent.env(), np.random.default_rng(seed)
    seen: list[NDArray[np.uint8]] = []
    observation, _ = env.reset(seed=seed)
    while len(seen) < count:
        seen.append(np.asarray(observation))
        explores = random.random() < EXPLORE
        observation, _, ended, cut, _ = env.step(int(random.integers(agent.actions)) if explores else agent(seen[-1]))
        if ended or cut:
            observation, _ = env.reset()
    env.close()
    return np.stack(seen)


def answers(load: str, stacks: NDArray[np.uint8], precision: str, threads: int) -> tuple[Values, float]:
    """Values of all stacks, and the seconds of a batch."""
    weights, device = weights_at(load), torch.device("cpu")
    prepare_torch(device, precision, threads, deterministic=True)
    policy = Policy(weights.network, device, precision, BATCH)
    policy.load(weights.flat)
    policy.values(stacks[:BATCH])
    begun = time.perf_counter()
    found = np.concatenate([policy.values(batch).copy() for batch in _batches(stacks)])
    return found, (time.perf_counter() - begun) / (len(stacks) // BATCH)


def _batches(stacks: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for first in range(0, len(stacks), BATCH):
        yield stacks[first : first + BATCH]


@njit(nogil=True)  # without fastmath: sums keep their order, and no product is fused into a sum
def _convolve(x: Values, weight: Values, bias: Values, stride: int) -> Values:
    """Convolution and ReLU of one stack [c, h, w], each output summed in the order of the weights."""
    outputs, inputs, size, _ = weight.shape
    side = (x.shape[1] - size) // stride + 1
    found = np.empty((outputs, side, side), np.float32)
    order = np.ascontiguousarray(weight.transpose(1, 2, 3, 0))  # outputs last: they are independent of each other
    for row in range(side):
        for column in range(side):
            total = bias.copy()
            for i in range(inputs):
                for j in range(size):
                    for k in range(size):
                        total += order[i, j, k] * x[i, row * stride + j, column * stride + k]
            found[:, row, column] = np.maximum(total, np.float32(0))
    return found


@njit(nogil=True)
def _connect(x: Values, weight: Values, bias: Values) -> Values:
    """Fully connected layer, each output summed in the order of the inputs."""
    order, total = np.ascontiguousarray(weight.T), bias.copy()
    for i in range(len(x)):
        total += order[i] * x[i]
    return total


def canonical_forward(parts: dict[str, Values], strides: list[int], stack: NDArray[np.uint8]) -> Values:
    """Values of one stack in a fixed order of sums, for a network of convolutions and one hidden layer."""
    x = stack.astype(np.float32) / np.float32(255)
    names = list(parts)
    for layer, stride in enumerate(strides):
        x = _convolve(x, parts[names[2 * layer]], parts[names[2 * layer + 1]], stride)
    x = np.maximum(_connect(x.ravel(), *(parts[name] for name in names[-4:-2])), np.float32(0))
    return _connect(x, *(parts[name] for name in names[-2:]))


def canonical_seconds(load: str, stacks: NDArray[np.uint8], reference: Values) -> float | None:
    """Seconds of a stack in the canonical arithmetic; None where the network has other layers or outputs."""
    weights = weights_at(load)
    network = weights.network
    if not network.plain or network.atoms != 1:
        return None
    parts = {name: view.copy() for name, view in parameters_of(network).split(weights.flat).items()}
    strides = [stride for _, _, stride in PLAIN_NETWORKS[network.name].convolutions]
    found = canonical_forward(parts, strides, stacks[0])
    assert np.allclose(found, reference[0], atol=1e-4), "the canonical arithmetic is another network"
    begun = time.perf_counter()
    for stack in stacks[:20]:
        canonical_forward(parts, strides, stack)
    return (time.perf_counter() - begun) / 20


def main() -> int:
    """Print the table, or with --out answer in this process and write the values."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", default="zoo/pong")
    parser.add_argument("--stacks", type=int, default=4096)
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stacks < BATCH:
        parser.error(f"--stacks {options.stacks} must be at least {BATCH}, one batch")
    if options.out is not None:
        np.save(options.out, answers(options.load, np.load(options.inputs), "fp32", 1)[0])
        return 0
    stacks = stacks_of(load_agent(options.load), options.stacks // BATCH * BATCH)
    (reference, seconds), *others = (answers(options.load, stacks, *each) for each in ARITHMETICS)
    found = [(f"{name}, threads {n}", values) for (name, n), (values, _) in zip(ARITHMETICS[1:], others, strict=True)]
    with tempfile.TemporaryDirectory() as scratch:
        inputs, out = Path(scratch) / "stacks.npy", Path(scratch) / "values.npy"
        np.save(inputs, stacks)
        for variable, value in LIMITED.items():
            words = ["--load", options.load, "--inputs", str(inputs), "--out", str(out)]
            command = [sys.executable, "-m", "ringside.bench.network_parts.near_ties", *words]
            subprocess.run(command, env=os.environ | {variable: value}, check=True)
            found.append((f"fp32, {variable}={value}", np.load(out)))
    for name, values in found:
        differ = (values != reference).any(axis=1).mean()
        acted = (values.argmax(axis=1) != reference.argmax(axis=1)).mean()
        print(f"{name}: other bits {differ:.1%}, by {np.abs(values - reference).max():.1e}, other actions {acted:.3%}")
    ordered = np.sort(reference, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    for gap in GAPS:
        print(f"gap below {gap:.0e}: {(gaps < gap).mean():.3%} of {len(gaps):,}")
    print(f"inference: {1e3 * seconds / BATCH:.3f} ms a stack")
    if (canonical := canonical_seconds(options.load, stacks, reference)) is not None:
        print(f"canonical: {1e3 * canonical:.3f} ms a stack, {BATCH * canonical / seconds:.0f} times inference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
