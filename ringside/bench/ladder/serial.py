"""All of DQN in one process, made of the parts of a run: lanes, ring, network, engine; nothing runs in parallel.

    python -m ringside.bench.ladder.serial --seconds 10 -- --schedule alternate --envs 1 --lane-envs 1 --actors 1

The flags after `--` are those of launch.py and must include `--schedule alternate` and `--actors 1`. The order of steps
and updates is that of a run. With the network of `learner/networks/fused.py` the weights are the same too, bit for bit.
By default the inference network is made of PyTorch layers in float32, as users of PyTorch would write it. With
--gradients each inference also builds its autograd graph, which is not used. Updates always run in the engine. The last
line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from typing import Any, Protocol

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from actors.lane import Lane
from actors.make_env import make_env
from learner.learner import prepare
from learner.make_engine import make_engine
from learner.networks.policy import Policy, greedy
from ringside import planning
from ringside.bench.harness.tables import WrongResult
from ringside.recording.metrics import episodes_in
from ringside.recording.totals import MEAN_OVER
from ringside.tasks.train import configuration
from shared.errors import ConfigError
from shared.frame_shape import FRAME_SIDE, STACK
from shared.memory.parts.mailbox import Mailbox
from shared.memory.plan import Plan
from shared.memory.region.arena import ArenaError
from shared.memory.run_memory import Memory
from shared.network_spec import PLAIN_NETWORKS
from shared.process.library_env import choose_workspace

WARM_UPDATES = 32
"""Updates before the clock starts."""
AGREEMENT, AGREEMENT_TF32 = 1e-4, 1e-2
"""Largest difference of two networks' Q-values, relative to the largest value: in float32, and with TF32 on a GPU. With
TF32 one network rounds its weights after scaling, the other before."""


class Network(Protocol):
    """Network that answers stacks of frames."""

    def load(self, flat: NDArray[np.float32]) -> None:
        """Load parameters float32[P], in the canonical layout of `shared.network_parameters`."""

    def values(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .) float32[n, actions] of stacks uint8[n, 4, 84, 84]."""


class Layers:
    """A network of PyTorch layers in float32."""

    def __init__(self, plan: Plan, *, gradients: bool) -> None:
        """`gradients`: True if every inference builds its autograd graph."""
        self._device = torch.device(plan.config.machine.device)
        self._plan, self._spec, self._gradients = plan, plan.parameters, gradients
        self._strides = [stride for _, _, stride in PLAIN_NETWORKS[plan.config.learn.network].convolutions]
        self._weights: dict[str, Tensor] = {
            name: torch.zeros(shape, device=self._device, requires_grad=gradients) for name, shape in self._spec.shapes
        }

    def load(self, flat: NDArray[np.float32]) -> None:
        """See `Network`."""
        with torch.no_grad():
            for name, values in self._spec.split(flat).items():
                self._weights[name].copy_(torch.from_numpy(values))

    def values(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See `Network`."""
        with torch.set_grad_enabled(self._gradients):
            w = self._weights
            x = torch.from_numpy(stacks).to(self._device).float() / 255.0
            for i, stride in enumerate(self._strides, start=1):
                x = F.relu(F.conv2d(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride))
            x = F.relu(F.linear(x.flatten(1), w["hidden.weight"], w["hidden.bias"]))
            q = F.linear(x, w["value.weight"], w["value.bias"])
        if q.requires_grad != self._gradients:
            raise WrongResult(
                f"Gradients are {'off' if self._gradients else 'on'} in inference, against what was asked."
            )
        values: NDArray[np.float32] = q.detach().cpu().numpy()
        return values

    def check(self, flat: NDArray[np.float32]) -> None:
        """Raise `WrongResult` unless the Q-values equal those of a run's inference network in float32."""
        policy = Policy(self._plan.network, self._device, "fp32", batch=2)
        stacks = np.random.default_rng(0).integers(0, 256, (2, STACK, FRAME_SIDE, FRAME_SIDE), dtype=np.uint8)
        self.load(flat)
        policy.load(flat)
        ours, theirs = self.values(stacks), policy.values(stacks)
        allowed = AGREEMENT_TF32 if self._plan.config.machine.precision == "tf32" else AGREEMENT
        if np.abs(ours - theirs).max() > allowed * np.abs(theirs).max():
            raise WrongResult("The layers and the network of a run give different values.")


class Serial:
    """All of a run in one process.

    Attributes:
        round: next round to play.
        updates: updates so far, as counted by the engine.
        returns: raw returns of the last training episodes.
    """

    def __init__(self, plan: Plan, network: Network) -> None:
        """Begin a run; call `learner.learner.prepare` first. Raises `ConfigError` unless the schedule is alternate."""
        config = plan.config
        if config.learn.schedule != "alternate" or plan.actors != 1:
            raise ConfigError("One process plays and learns in turns: it needs --schedule alternate and --actors 1.")
        self.memory = Memory.create(plan)
        self.run_schedule = plan.run_schedule
        self.round = self.updates = 0
        self.returns: deque[float] = deque(maxlen=MEAN_OVER)
        self._network = network
        self._engine = make_engine(self.memory.plan.config, self.memory.plan.network, self.memory.ring)
        self._engine.initialize()
        self._commit()
        width = self.run_schedule.lane_envs
        self._lanes = [
            Lane(
                self.memory.lane(index),
                self.memory.plan,
                [make_env(config.play, config.run.seed, index * width + j, training=True) for j in range(width)],
                actor=0,
            )
            for index in range(self.run_schedule.lanes)
        ]
        for lane in self._lanes:
            lane.start()

    def play_round(self) -> None:
        """Play the steps of a round, then run its updates. Raises `NonFiniteError`."""
        run_schedule, engine = self.run_schedule, self._engine
        first, end = self.round * run_schedule.round_ticks, (self.round + 1) * run_schedule.round_ticks
        for tick in range(first, end):
            self._answer(tick)
            for lane in self._lanes:
                lane.step()
        if count := run_schedule.updates_in(self.round):
            engine.begin_round(self.round, run_schedule.window_end(self.round))
            engine.run(count)
            self.updates += engine.end_round().updates
        if run_schedule.target_changes_after(self.round):
            engine.update_target()
        self.returns.extend(episode.total for episode in episodes_in(self.memory.ring.field, first, end))
        self.round += 1
        self._commit()

    @property
    def steps(self) -> int:
        """Steps played, of all envs."""
        return self.round * self.run_schedule.round_steps

    @property
    def mean_return(self) -> float | None:
        """Mean raw return of the last hundred training episodes; None if there were fewer."""
        return float(np.mean(self.returns)) if len(self.returns) == MEAN_OVER else None

    def check(self) -> None:
        """Raise `WrongResult` unless the numbers of steps and updates are those of the rounds so far."""
        asked, done = self.run_schedule.updates_before(self.round), self.memory.board.lane_done.values
        if self.updates != asked or (done != self.round * self.run_schedule.round_ticks).any():
            raise WrongResult(
                f"After {self.round} rounds {self.updates} updates were done instead of {asked}, and lanes had played "
                f"{done.tolist()} ticks."
            )

    def _answer(self, tick: int) -> None:
        """Choose the actions of all envs at this tick, in one batch."""
        run_schedule, mailbox, ring = self.run_schedule, self.memory.mailbox, self.memory.ring
        rows, mask = ring.stack_rows(np.arange(run_schedule.envs), np.full(run_schedule.envs, tick))
        stacks = ring.flat["frame"][rows]
        stacks[~mask] = 0
        actions = greedy(self._network.values(stacks)).astype(np.uint8)
        lanes, numbers = np.arange(run_schedule.lanes), mailbox.request.values.copy()
        if (Mailbox.tick_of(numbers) != tick).any():
            raise WrongResult(f"Lanes asked for ticks {Mailbox.tick_of(numbers).tolist()} instead of {tick}.")
        mailbox.answer(lanes, numbers, actions.reshape(run_schedule.lanes, run_schedule.lane_envs))

    def _commit(self) -> None:
        """Publish the parameters, and load them into the inference network for the next round."""
        weights, updates = self.memory.weights, self.run_schedule.updates_before(self.round)
        before = weights.current
        weights.publish(updates, self._engine.online_into)
        if weights.current != before:
            weights.read(self._network.load)
        self.memory.board.commits.publish(self.round)


def measure(serial: Serial, seconds: float) -> dict[str, Any]:
    """Speed over whole rounds, after learning has begun."""
    while serial.updates < WARM_UPDATES:
        serial.play_round()
    steps, updates, begun = serial.steps, serial.updates, time.perf_counter()
    while (took := time.perf_counter() - begun) < seconds:
        serial.play_round()
    return {"seconds": took, "steps": serial.steps - steps, "updates": serial.updates - updates}


def solve(serial: Serial, bound: float, minutes: float, begun: float) -> dict[str, Any]:
    """Play until the mean return of the last 100 episodes reaches `bound`; time counts from `begun` (`time.time()`)."""
    while (took := time.time() - begun) < 60 * minutes and serial.round < serial.run_schedule.rounds:
        serial.play_round()
        if serial.mean_return is not None and serial.mean_return >= bound:
            break
    return {"seconds": took, "steps": serial.steps, "mean_return": serial.mean_return}


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--gradients", action="store_true", help="leave gradients on in inference")
    parser.add_argument("--bound", type=float, help="play until this mean return instead")
    parser.add_argument("--minutes", type=float, default=60.0, help="give up after so long")
    parser.add_argument("words", nargs="*", help="flags of launch.py, after --")
    options = parser.parse_args()
    choose_workspace()
    try:
        plan = planning.check(configuration(options.words))
        prepare(plan.config)
        layers = Layers(plan, gradients=options.gradients)
        serial = Serial(plan, layers)
        serial.memory.weights.read(layers.check)
        if options.bound is None:
            result = measure(serial, options.seconds)
        else:
            result = solve(serial, options.bound, options.minutes, psutil.Process().create_time())
        serial.check()
    except WrongResult as error:
        result = {"wrong": str(error)}
    except (ConfigError, ArenaError) as error:
        raise SystemExit(str(error)) from None
    print(json.dumps(result))


if __name__ == "__main__":
    main()
