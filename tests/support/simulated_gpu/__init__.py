"""A simulated GPU with numbers, streams and time.

Operations are queued and run later, in an order that a seeded scheduler chooses among all that streams, events and
waits allow. A copy that the host does not wait for reads pinned memory when it runs. All freed memory of a stream is
overwritten before the next allocation of that stream, in its order. So an order that is missing in the program gives
wrong numbers for some seed.

Read schedule, memory, streams and tensor, then gpu; threads and operations are short. docs/testing.md says what
is tested with it.
"""

from tests.support.simulated_gpu.gpu import SimulatedGpu, simulated_gpu
from tests.support.simulated_gpu.tensor import DEVICE

__all__ = ["DEVICE", "SimulatedGpu", "simulated_gpu"]
