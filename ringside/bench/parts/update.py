"""One gradient update alone, by batch and precision: the trainer of `learner/engine/trainer.py` on a full window.

Above it stand its *passes*: the target network's over a chunk, and the online network's forward and backward, of the
right shapes, with nothing gathered, no loss and no optimizer; above these the matrix *products* in them, one after the
other. On a CPU a run prepares targets in a second thread and moves weights in a third: where cores are free, an update
can be faster than its passes, and these than their products. Below stands the *plain* form
(ringside/bench/parts/plain_update.py), whose losses must agree with the trainer's.
"""

from __future__ import annotations

import numpy as np
import torch

from learner.engine.device import dtype_of
from learner.engine.trainer import Trainer
from learner.replay.feed import CHUNK_UPDATES
from ringside.bench.harness.devices import Device, devices
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.harness.timing import seconds_per_call
from ringside.bench.limits import Options
from ringside.bench.parts.memory_paths import ACTIONS, SEED, filled_memory
from ringside.bench.parts.passes import Passes
from ringside.bench.parts.plain_update import AGREEMENT, PlainTrainer
from ringside.bench.parts.products import ChunkProducts
from shared.config.resolve import learner_threads_of
from shared.machine.facts import usable_cores
from shared.memory.run_memory import Memory


def measure(options: Options, report: Report) -> None:
    """The part `update` of `launch.py bench limits`."""
    for device in devices("update", report):
        on_cpu = device.torch.type == "cpu"
        threads = options.learner_threads or learner_threads_of(usable_cores(), on_cpu=on_cpu)
        for precision in device.precisions:
            for batch in options.batch_sizes:
                with (
                    report.measuring(device.named(f"update, {precision}, {batch}")),
                    filled_memory(options.window_steps, batch_size=batch) as memory,
                ):
                    device.prepare(precision, threads)
                    _measure(options, report, device, precision, memory)


class Rounds:
    """A trainer at work, chunk after chunk and round after round, on a window that stays as it is."""

    def __init__(self, memory: Memory, device: Device, precision: str) -> None:
        self._run_schedule = memory.run_schedule
        self.trainer = Trainer(
            ring=memory.ring,
            run_schedule=memory.run_schedule,
            learn=memory.plan.config.learn,
            algorithm=memory.plan.config.algorithm,
            network=memory.plan.network,
            seed=SEED,
            device=device.torch,
            precision=precision,
        )
        self.trainer.initialize()
        self.round = memory.run_schedule.first_learning_round
        self.window_end = memory.run_schedule.window_ticks
        self.updates = self.trainer.begin_round(self.round, self.window_end)
        self._left = self.updates

    def chunk(self) -> None:
        """The next updates, `CHUNK_UPDATES` of them but at the end of a round."""
        if self._left < CHUNK_UPDATES:
            self.round += 1
            self._left = self.trainer.begin_round(self.round, self.window_end)
        self.trainer.run(CHUNK_UPDATES)
        self._left -= CHUNK_UPDATES


def _measure(options: Options, report: Report, device: Device, precision: str, memory: Memory) -> None:
    learn = memory.plan.config.learn
    rounds = Rounds(memory, device, precision)
    plain = PlainTrainer(memory.ring, learn, SEED, ACTIONS, device.torch, precision)
    plain.begin_round(rounds.round, rounds.window_end, rounds.updates)
    rounds.chunk()
    plain.run(CHUNK_UPDATES)
    ours, theirs = rounds.trainer.end_round().loss, float(np.mean(plain.losses))
    if not abs(ours - theirs) < AGREEMENT * theirs:
        raise WrongResult(f"The mean loss of the first {CHUNK_UPDATES} updates is {ours:.5f}, not {theirs:.5f}.")

    rounds.trainer.settle()  # nobody else may ask the device for anything while a graph is captured
    passes = Passes(memory.plan, device.torch, precision)
    like = torch.zeros((), dtype=dtype_of(precision), device=device.torch)
    products = ChunkProducts(learn.network, ACTIONS, learn.batch_size, like)
    computing = [device.captured(torch.inference_mode()(body)) for body in (products.run, passes.run)]
    actions = (*computing, rounds.chunk, lambda: plain.run(CHUNK_UPDATES))
    times = np.array([seconds_per_call(actions, options.seconds, device.settle) for _ in range(options.repeats)])
    speeds = (CHUNK_UPDATES / times.T).tolist()
    kinds = ("products of update", "passes of update", "update", "plain update")
    names = [device.named(f"{kind}, {precision}, {learn.batch_size}") for kind in kinds]
    rate = products.operations / float(np.median(times[:, 0])) / 1e9
    report.add(names[0], "updates/s", speeds[0], note=f"{rate:,.0f} GFLOP/s")
    report.add(names[1], "updates/s", speeds[1], limit=names[0])
    report.add(names[2], "updates/s", speeds[2], limit=names[1], note=f"{1e3 / float(np.median(speeds[2])):.2f} ms")
    report.add(names[3], "updates/s", speeds[3], limit=names[2])
