"""A hash of what this machine computes: two machines with the same hash act alike.

Models of processors round differently, and names of models do not say which do. So the network answers fixed batches,
with the shape, threads, device and precision of the run, and the bits of its answers are hashed.

    python -m learner.numerics_probe < pickled_plan_in_hexadecimal_digits
"""

from __future__ import annotations

import hashlib
import pickle
import sys

import numpy as np
import torch

from learner.engine.device import prepare_torch
from learner.networks.policy import acting_policy
from shared.memory.plan import Plan

BATCHES = 64
SCALES = (0.1, 0.02)
"""Widths of the ranges from which parameters are drawn, one set for each."""


def probe(plan: Plan) -> str:
    """SHA-256 (hex) of the answers to fixed batches by two sets of parameters."""
    batch, total = plan.config.machine.inference_batch, hashlib.sha256()
    policy = acting_policy(plan, batch)
    for number, scale in enumerate(SCALES):
        # Raw numbers of a counter-based generator: its other draws use functions that libraries compute differently.
        random = np.random.Generator(np.random.Philox(key=number))
        flat = (random.random(plan.parameters.count, np.float32) - np.float32(0.5)) * np.float32(scale)
        policy.load(flat)
        for _ in range(BATCHES // len(SCALES)):
            shape = (batch, *plan.network.frames.observation)
            stacks = np.frombuffer(random.bytes(int(np.prod(shape))), np.uint8).reshape(shape)
            total.update(policy.values(stacks).tobytes())
    return total.hexdigest()


def main() -> None:
    """Print the hash for the plan that comes through standard input."""
    plan: Plan = pickle.loads(bytes.fromhex(sys.stdin.read()))
    machine = plan.config.machine
    device = torch.device(machine.acts_on)
    prepare_torch(device, machine.acts_in, machine.inference_threads, deterministic=machine.is_deterministic)
    print(probe(plan))


if __name__ == "__main__":
    main()
