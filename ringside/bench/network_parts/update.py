"""One gradient update alone, by batch and precision: the engine of `learner/engine/engine.py` on a full window.

Its limit is its *passes*: the target network over a chunk, then the online network forward and backward, with no
gather, no loss and no optimizer. On a CPU a run prepares targets in a second thread and copies weights in a third, so
with free cores an update can exceed its limit.
The *plain* update (ringside/bench/network_parts/plain_update.py) is the reference: losses must agree with the engine's.
"""

from __future__ import annotations

import numpy as np
import torch

from learner.engine.interfaces import CHUNK_UPDATES
from learner.make_engine import make_engine
from ringside.bench.harness.devices import Device, devices
from ringside.bench.harness.interleaved import seconds_per_call
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.limits import Options
from ringside.bench.network_parts.passes import Passes
from ringside.bench.network_parts.plain_update import AGREEMENT, PlainEngine
from ringside.bench.system_parts.memory_paths import ACTIONS, SEED, filled_memory
from shared.machine.allocation import learner_threads_of
from shared.machine.facts import usable_cores
from shared.memory.run_memory import Memory


def measure(options: Options, report: Report) -> None:
    """The part `update` of `launch.py bench limits`."""
    for device in devices("update", report):
        on_cpu = device.torch.type == "cpu"
        threads = options.learner_threads or learner_threads_of(usable_cores(), None, on_cpu=on_cpu)
        for precision in device.precisions:
            for batch in options.batch_sizes:
                with (
                    report.measuring(device.named(f"update, {precision}, {batch}")),
                    filled_memory(options.window_steps, batch_size=batch) as memory,
                ):
                    device.prepare(precision, threads)
                    _measure(options, report, device, precision, memory)


class Rounds:
    """An engine that runs chunk after chunk, round after round, on a window that does not change."""

    def __init__(self, memory: Memory, device: Device, precision: str) -> None:
        self._run_schedule = memory.run_schedule
        config = memory.plan.config.with_settings(seed=SEED, device=str(device.torch), precision=precision)
        self.engine = make_engine(config, memory.plan.network, memory.ring)
        self.engine.initialize()
        self.round = memory.run_schedule.first_learning_round
        self.window_end = memory.run_schedule.window_ticks
        self.updates = self.engine.begin_round(self.round, self.window_end)
        self._left = self.updates

    def chunk(self) -> None:
        """Run the next `CHUNK_UPDATES` updates; start a new round if fewer are left."""
        if self._left < CHUNK_UPDATES:
            self.round += 1
            self._left = self.engine.begin_round(self.round, self.window_end)
        self.engine.run(CHUNK_UPDATES)
        self._left -= CHUNK_UPDATES


def _measure(options: Options, report: Report, device: Device, precision: str, memory: Memory) -> None:
    learn = memory.plan.config.learn
    rounds = Rounds(memory, device, precision)
    plain = PlainEngine(memory.ring, learn, SEED, ACTIONS, device.torch, precision)
    plain.begin_round(rounds.round, rounds.window_end, rounds.updates)
    rounds.chunk()
    plain.run(CHUNK_UPDATES)
    ours, theirs = rounds.engine.end_round().means["loss"], float(np.mean(plain.losses))
    if not abs(ours - theirs) < AGREEMENT * theirs:
        raise WrongResult(f"The mean loss of the first {CHUNK_UPDATES} updates is {ours:.5f}, not {theirs:.5f}.")

    rounds.engine.settle()  # other threads must not use the device while a graph is captured
    passes = Passes(memory.plan, device.torch, precision)
    computing = device.captured(torch.inference_mode()(passes.run))
    actions = (computing, rounds.chunk, lambda: plain.run(CHUNK_UPDATES))
    times = np.array([seconds_per_call(actions, options.seconds, device.settle) for _ in range(options.repeats)])
    speeds = (CHUNK_UPDATES / times.T).tolist()
    kinds = ("passes of update", "update", "plain update")
    names = [device.named(f"{kind}, {precision}, {learn.batch_size}") for kind in kinds]
    report.add(names[0], "updates/s", speeds[0])
    report.add(names[1], "updates/s", speeds[1], limit=names[0], note=f"{1e3 / float(np.median(speeds[1])):.2f} ms")
    report.add(names[2], "updates/s", speeds[2], limit=names[1])
