"""Inputs of the performance model: service times of the parts of a run, its shape, and the link to its nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from shared.performance.allocation import greatest_share


@dataclass(frozen=True)
class ServiceTimes:
    """Seconds that each part takes on one core that it need not share, unless the field says otherwise."""

    step: float
    """One step of one env in the loop of an actor: emulator, frame, slot, and its part of the lane's request."""
    step_spread: float
    """Standard deviation of `step`, divided by its mean."""
    answer: float
    """An inference batch of any size: requests, replies, calls."""
    answer_row: float
    """Each row of a batch, in addition."""
    wake: float
    """From the ring of a doorbell until the process that sleeps on it runs."""
    update: float
    """The busiest thread of the learner, for one update with one thread in each team; on a GPU the device's time."""
    update_cores: float
    """All threads of the learner together, for one update; on a GPU the cores' part."""
    update_ahead: float
    """The part of `update_cores` in the thread that prepares ahead, which has the niceness of actors; on a GPU 0."""
    update_overhead: float
    """Time of an update divided by the time that its threads allow; 1: none waits in vain."""
    contention: float
    """Time of an update beside an actor that never waits, divided by its time alone, beyond what shares explain; 1: no
    more. The learner's threads wait for each other, so it loses more than the time of the actor."""
    commit: float
    """End of a round: draw the next one, keep a snapshot, publish the weights."""
    crowding: float
    """Speed of a core while all cores work, divided by its speed alone: shared caches, memory, clock."""
    parallel_share: float
    """Share of a pass through the network that more threads divide among them (Amdahl)."""
    processors: int
    """Cores at which `crowding` was measured."""

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each value lies in its range."""
        for item in fields(self):
            value = getattr(self, item.name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{item.name} {value} must be finite and at least 0.")
        if (
            self.step <= 0
            or self.answer + self.answer_row <= 0
            or self.processors < 1
            or not self.crowding > 0
            or not self.parallel_share <= 1
            or min(self.update_overhead, self.contention) < 1
            or self.update_ahead > self.update_cores
        ):
            raise ValueError(f"These are no service times: {self}.")

    def to_json(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Service times from `to_json`. Raises `ValueError` for other content."""
        names = {item.name for item in fields(cls)}
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
        if values.keys() != names or not numbers:
            raise ValueError("These are no service times.")
        return cls(**values)


def learning_on_counted_gpu(times: ServiceTimes) -> ServiceTimes:
    """The same machine with a learner on an H200, by the counts of docs/lab/2026-11-gpu.md: nothing is measured.

    An update takes 184 us, with everything around it 190.
    """
    return replace(
        times,
        update=190e-6,
        update_cores=190e-6,
        update_ahead=0.0,
        update_overhead=1.0,
        contention=1.0,
        commit=10e-3,
    )


def on_counted_gpu(times: ServiceTimes) -> ServiceTimes:
    """The same machine with learner and inference on an H200, counted likewise.

    An answer starts some 20 kernels and two copies; a row is gathered in 5 us and uploaded in 1.
    """
    return replace(learning_on_counted_gpu(times), answer=250e-6, answer_row=6e-6)


@dataclass(frozen=True)
class Link:
    """Network between the head of a cluster and its nodes, by docs/clusters.md and docs/model.md."""

    bytes_per_second: float = 117e6
    """The head's link, each way. 1 GbE: 117e6; 10 GbE: 1.17e9."""
    step_bytes: float = 114.0
    """A step on its way back, compressed: 27 to 262 by game, the mean of twelve games 114."""
    snapshot_bytes: float = 2_000.0
    """Snapshot of an env at the end of a round, compressed."""
    filing: float = 5e-6
    """Seconds in which the head checks a step and writes it into its ring."""
    round_seconds: float = 0.046
    """Calls and copies of a round, by docs/model.md; half of the parameters took as long."""


@dataclass(frozen=True)
class RunShape:
    """The settings of a run that decide its speed, and its cores."""

    cores: int
    envs: int
    lane_envs: int
    actors: int
    inference_batch: int
    round_steps: int
    steps_per_update: float | None
    """Steps played for each update; None: nothing learns."""
    inference_threads: int = 1
    learner_threads: int = 1
    teams: int = 3
    """Threads of the learner on a CPU that each compute with `learner_threads`."""
    alternates: bool = False
    """True if playing and learning take turns."""
    barrier: bool = True
    """True if lanes wait at the end of a round for its commit."""
    on_gpu: bool = False
    """True if learner and inference compute on a GPU; then a batch answers the lanes that wait, full or not."""
    parameter_bytes: int = 0
    """Parameters of a version on their way to a node, which gets them once a round."""
    nodes: int = 0
    """Nodes that play the lanes, each with `actors` actors and an inference server; 0: this machine plays them."""
    link: Link = Link()

    @property
    def site(self) -> RunShape:
        """The run as each machine that plays sees it: a node has its part of the envs, and answers on its cores."""
        return replace(self, envs=self.envs // self.nodes, nodes=0, on_gpu=False) if self.nodes else self

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self.envs // self.lane_envs

    @property
    def batch_lanes(self) -> int:
        """Lanes of an inference batch."""
        return self.inference_batch // self.lane_envs

    @property
    def batches(self) -> int:
        """Inference batches of one tick of all lanes."""
        return self.envs // self.inference_batch

    @property
    def share(self) -> int:
        """Lanes of the actor with most of them."""
        return greatest_share(self.lanes, self.actors)

    @property
    def together(self) -> int:
        """Envs of an inference batch that the actor with most of its lanes steps."""
        return greatest_share(self.batch_lanes, self.actors) * self.lane_envs
