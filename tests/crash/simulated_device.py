"""A launcher whose learner and inference server compute on a simulated GPU.

    python -m tests.crash.simulated_device "SEED ROLE FAULT AT OFTEN" ...

SEED chooses the order of the device's work, another in each life of a process. FAULT is `none`, `memory` (allocation
number AT fails) or `lost` (the device is lost at operation number AT), for ROLE in its first life (`once`) or in every
one (`always`). The words after it are those of launch.py.
"""

import os
import sys

import launch
from ringside.run import children
from shared.config import resolve
from shared.machine import facts
from shared.memory.process_table import Role
from shared.process.child import ChildSpec

BUSY = "the process ends while the device works"
"""Complaint of such a process in its log."""


def main(child_spec: ChildSpec) -> None:
    """The role, on a simulated device."""
    import torch

    from learner import inference, learner
    from tests.support.simulated_gpu import simulated_gpu

    seed, role, fault, at, often = os.environ["SIMULATED_GPU"].split()
    torch.set_num_threads(1)  # sums are split by threads, and the thread of autograd would have as many as cores
    with simulated_gpu(int(seed) + 7 * child_spec.process + child_spec.incarnation) as gpu:
        if child_spec.role is Role[role.upper()] and (child_spec.incarnation == 0 or often == "always"):
            if fault == "memory":
                gpu.memory.fails_at = int(at)
            elif fault == "lost":
                gpu.lose_at(int(at))
        (learner if child_spec.role is Role.LEARNER else inference).main(child_spec)
        assert gpu.idle or gpu.lost, BUSY


if __name__ == "__main__":
    resolve.device_of, facts.cuda_devices = lambda *_, **__: "simgpu:0", lambda: 1
    children.MODULES |= dict.fromkeys((Role.LEARNER, Role.INFERENCE), "tests.crash.simulated_device")
    os.environ["SIMULATED_GPU"], *words = sys.argv[1:]
    sys.exit(launch.main(words))
