"""What one gradient update costs: `python -m benchmarks.update`.

The trainer of `learner/update.py`, on a full window of random frames, against a plain form of the same update: PyTorch
layers in channels-last, autograd (autocast for bfloat16), the target network asked in every update, the optimiser in
vector operations. Both sample the same transitions; their losses must agree before anything is timed. They take turns,
chunk by chunk, and the best chunk of each counts; `cpu` is the CPU time of the best one by that clock, which says more
on a busy machine. With --neighbour, another process keeps one core busy half of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from learner.device import prepare_torch
from learner.loss import bellman_target
from learner.network import backward, forward, initial_parameters, network_input
from learner.replay import HostFrames, Replay
from learner.update import CHUNK_UPDATES, Trainer
from shared.arena import Arena
from shared.config import FRAME_SIDE, STACK, Config, Learn, Play
from shared.layout import Layout
from shared.machine import describe
from shared.parameters import CONVOLUTIONS, parameters_of
from shared.ring import Ring, ring_fields
from shared.sizes import Sizes, sizes_of

ACTIONS = 4
SEED = 1
AGREEMENT = 0.02
"""Relative difference that the losses of the two may have, bfloat16 included."""

_NEIGHBOUR = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while os.getppid() == PARENT:
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end:
        pass
    time.sleep(0.005)
"""


@dataclass(frozen=True)
class Arguments:
    """Time gradient updates of Nature DQN on the CPU."""

    threads: tuple[int, ...] = (1,)
    """Numbers of threads."""
    precision: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    """Arithmetic."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Optimiser."""
    window_steps: int = 100_000
    """Size of the window; 7 KB of memory each."""
    chunks: int = 12
    """Chunks of updates of each that are timed."""
    neighbour: bool = False
    """Have another process keep one core busy half of the time."""
    json: Path | None = None
    """Write the figures here, too."""


@dataclass(frozen=True)
class Figures:
    """Milliseconds per update."""

    threads: int
    precision: str
    ours: float
    ours_cpu: float
    gather: float
    target: float
    passes: float
    optimizer: float
    plain: float
    plain_cpu: float

    @property
    def samples_per_second(self) -> float:
        """Transitions learnt from in a second."""
        return 32_000 / self.ours

    @property
    def ratio(self) -> float:
        """How many times faster than the plain form."""
        return self.plain / self.ours


class Plain:
    """The same updates as anybody would write them first, with some care for layout."""

    def __init__(self, ring: Ring, learn: Learn, precision: str) -> None:
        self._ring, self._learn = ring, learn
        self._bf16 = precision == "bf16"
        self._shapes = parameters_of(learn.network, ACTIONS).shapes
        start = torch.from_numpy(initial_parameters(parameters_of(learn.network, ACTIONS), SEED))
        self._target = self._split(start.clone())
        self._flat = start.clone().requires_grad_()
        self._mean, self._square = torch.zeros_like(start), torch.zeros_like(start)
        self._replay = Replay(ring, HostFrames(ring), batch=learn.batch_size, discount=learn.discount, seed=SEED)
        self._frames = torch.from_numpy(ring.flat["frame"])
        self.losses: list[float] = []

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Draw the transitions of a round."""
        self._plan = self._replay.plan(round_, window_end, updates, updates)
        self._done = 0

    def run(self, count: int) -> None:
        """The next `count` updates."""
        for _ in range(count):
            self._update()
            self._done += 1

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        views, offset = {}, 0
        for name, shape in self._shapes:
            size = int(np.prod(shape))
            views[name] = flat[offset : offset + size].view(shape)
            offset += size
        return views

    def _values(self, w: dict[str, Tensor], stacks: Tensor) -> Tensor:
        x = (stacks.float() / 255.0).contiguous(memory_format=torch.channels_last)
        for i, (_, _, stride) in enumerate(CONVOLUTIONS[self._learn.network][0], start=1):
            x = F.relu(F.conv2d(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride))
        x = F.relu(F.linear(x.flatten(1), w["hidden.weight"], w["hidden.bias"]))
        return F.linear(x, w["value.weight"], w["value.bias"])

    def _update(self) -> None:
        learn, size = self._learn, self._learn.batch_size
        batch = self._plan.part(self._done * size, (self._done + 1) * size)
        frames = self._frames.index_select(0, batch.rows.view(-1)).view(size, STACK + 1, FRAME_SIDE, FRAME_SIDE)
        frames.mul_(batch.keep)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            with torch.no_grad():
                future = self._values(self._target, frames[:, 1:]).float().amax(1)
            q = self._values(self._split(self._flat), frames[:, :-1]).float()
        chosen = q.gather(1, batch.action[:, None])[:, 0]
        y = bellman_target(batch.reward, batch.discount, future)
        loss = F.huber_loss(chosen, y, reduction="sum")
        self.losses.append(float(loss.detach()) / size)
        (g,) = torch.autograd.grad(loss, self._flat)
        with torch.no_grad():
            decay = learn.optimizer_decay
            self._square.mul_(decay).addcmul_(g, g, value=1.0 - decay)
            if learn.optimizer == "rmsprop":
                self._mean.mul_(decay).add_(g, alpha=1.0 - decay)
                root = torch.addcmul(self._square, self._mean, self._mean, value=-1.0).add_(learn.optimizer_epsilon)
                self._flat.addcdiv_(g, root.sqrt_(), value=-learn.learning_rate)
            else:  # timed only; without the corrections of the first steps
                self._mean.mul_(0.9).add_(g, alpha=0.1)
                root = self._square.sqrt().add_(learn.optimizer_epsilon)
                self._flat.addcdiv_(self._mean, root, value=-learn.learning_rate)


def full_ring(config: Config) -> tuple[Ring, Sizes]:
    """A ring with random frames, actions and rewards in every slot, one long episode."""
    sizes = sizes_of(config)
    ring = Ring(Arena.create(Layout(ring_fields(sizes))), sizes)
    random = np.random.default_rng(SEED)
    frames = ring.flat["frame"]
    for part in range(0, len(frames), 4096):
        shape = frames[part : part + 4096].shape
        frames[part : part + 4096] = random.integers(0, 256, shape, dtype=np.uint8)
    rows = len(frames)
    ring.flat["valid"][:] = 1
    ring.flat["action"][:] = random.integers(0, ACTIONS, rows)
    ring.flat["raw_reward"][:] = random.integers(-1, 2, rows)
    return ring, sizes


def best(action: Callable[[], object], times: int) -> tuple[float, float]:
    """The least wall-clock and the least CPU time of an action, in milliseconds."""
    wall = cpu = float("inf")
    for _ in range(times):
        clocks = time.perf_counter(), time.process_time()
        action()
        wall = min(wall, time.perf_counter() - clocks[0])
        cpu = min(cpu, time.process_time() - clocks[1])
    return wall * 1e3, cpu * 1e3


def measure(arguments: Arguments, threads: int, precision: str) -> Figures:
    """Compare and time both forms."""
    config = Config(
        play=Play(envs=96),
        learn=Learn(replay_size=arguments.window_steps, learning_starts=10_000, optimizer=arguments.optimizer),
    )
    device = torch.device("cpu")
    prepare_torch(device, precision, threads)
    ring, sizes = full_ring(config)
    trainer = Trainer(
        ring=ring, sizes=sizes, learn=config.learn, seed=SEED, actions=ACTIONS, device=device, precision=precision
    )
    trainer.initialise()
    plain = Plain(ring, config.learn, precision)
    round_ = sizes.first_learning_round + sizes.window_ticks // sizes.round_ticks
    updates = trainer.begin_round(round_, round_ * sizes.round_ticks)
    plain.begin_round(round_, round_ * sizes.round_ticks, updates)
    trainer.run(CHUNK_UPDATES)
    plain.run(CHUNK_UPDATES)
    ours, theirs = trainer.end_round().loss, float(np.mean(plain.losses))
    if arguments.optimizer == "rmsprop" and abs(ours - theirs) > AGREEMENT * theirs:
        raise SystemExit(f"The losses differ, {ours} and {theirs}: the two do not compute the same.")

    wall = cpu = plain_wall = plain_cpu = float("inf")
    for _ in range(arguments.chunks):
        w, c = best(lambda: trainer.run(CHUNK_UPDATES), 1)
        wall, cpu = min(wall, w), min(cpu, c)
        w, c = best(lambda: plain.run(CHUNK_UPDATES), 1)
        plain_wall, plain_cpu = min(plain_wall, w), min(plain_cpu, c)
    parts = breakdown(trainer, 4 * arguments.chunks)
    per = 1.0 / CHUNK_UPDATES
    return Figures(threads, precision, wall * per, cpu * per, *parts, plain_wall * per, plain_cpu * per)


def breakdown(trainer: Trainer, times: int) -> tuple[float, float, float, float]:
    """Best milliseconds per update of the trainer's parts: gather, target, forward and backward, optimiser."""
    online, target, per = trainer._online, trainer._target, 1.0 / CHUNK_UPDATES
    gradient_q = trainer._chunks[0].chosen[: trainer._learn.batch_size]

    def passes() -> None:
        past = forward(online, network_input(trainer._chunks[0].blocks[: len(gradient_q)], 0, online.dtype))
        backward(online, past, gradient_q, trainer._gradients)

    with torch.inference_mode():
        gather, _ = best(lambda: trainer._gather(0, trainer._chunks[0]), times)
        future, _ = best(lambda: forward(target, network_input(trainer._chunks[0].blocks, 1, target.dtype)), times)
        both, _ = best(passes, times)
        step, _ = best(trainer._optimizer.step, times)
    return gather * per, future * per, both, step


def neighbour(wanted: bool) -> AbstractContextManager[object]:
    """A process that keeps one core busy half of the time, as long as this one lives and the block lasts."""
    if not wanted:
        return nullcontext()
    process = subprocess.Popen([sys.executable, "-c", _NEIGHBOUR.replace("PARENT", str(os.getpid()))])

    class Ends:
        def __enter__(self) -> None:
            return None

        def __exit__(self, *_: object) -> None:
            process.kill()
            process.wait()

    return Ends()


def main() -> None:
    """Measure, print a table, and write the figures."""
    arguments = tyro.cli(Arguments, description=__doc__)
    rows = []
    with neighbour(arguments.neighbour):
        for precision in arguments.precision:
            for threads in arguments.threads:
                rows.append(measure(arguments, threads, precision))
    table = Table(title="Milliseconds per update of 32 transitions")
    names = ("precision", "threads", "ours", "cpu", "gather", "target", "passes", "step", "samples/s", "plain", "times")
    for name in names:
        table.add_column(name, justify="right")
    for f in rows:
        cells = [f.ours, f.ours_cpu, f.gather, f.target, f.passes, f.optimizer]
        texts = [f"{cell:.2f}" for cell in cells]
        table.add_row(
            f.precision, str(f.threads), *texts, f"{f.samples_per_second:,.0f}", f"{f.plain:.2f}", f"{f.ratio:.2f}"
        )
    Console(width=120).print(table)
    if arguments.json:
        report = {"machine": describe(), "arguments": asdict(arguments), "figures": [asdict(f) for f in rows]}
        arguments.json.write_text(json.dumps(report, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
