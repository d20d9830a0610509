"""Discrete-event simulation of a run, the reference of the performance model.

Actors step the lanes that are answered, in turn. The inference server answers one batch at a time, on a CPU when all
its lanes have asked. The learner updates and commits. All of them share the cores by their weights. The times of steps
are drawn from a gamma distribution. A process that sleeps runs a wake-up after the ring.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count

from shared.performance.service_times import RunShape, ServiceTimes

NICE_WEIGHT = 110 / 1024
"""Weight of niceness 10 beside that of 0 in the kernel (`sched_prio_to_weight`)."""
AHEAD = "learner, ahead"
"""The thread of the learner that has the niceness of actors."""


class SimulatedRun:
    """One run without crowding, nodes or threads within a team."""

    def __init__(self, times: ServiceTimes, shape: RunShape, seed: int) -> None:
        self._times, self._shape, self._random = times, shape, random.Random(seed)
        self._now, self._order = 0.0, count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._work: dict[str, tuple[float, Callable[[], None]]] = {}
        lanes = range(shape.lanes)
        self._ticks = [0] * shape.lanes
        self._asks = [True] * shape.lanes
        self._answered = [False] * shape.lanes
        owners = [lane % shape.actors for lane in lanes]
        self._lanes_of = [[lane for lane in lanes if owners[lane] == actor] for actor in range(shape.actors)]
        self._actor_of = owners
        self._next = [0] * shape.actors
        self._asleep = {"server": True, "learner": True} | {f"actor {actor}": True for actor in range(shape.actors)}
        self._committed, self._round_ticks = 0, shape.round_steps // shape.envs
        self._updates_left = self._updates_of_round()
        self._running = 0
        self._last_group = -1

    def steps_per_second(self, rounds: int) -> float:
        """Speed over so many rounds, after one that does not count."""
        began = 0.0
        self._ring("server")
        self._ring("learner")
        while self._committed <= rounds:
            before = self._committed
            self._advance()
            if before == 0 and self._committed == 1:
                began = self._now
        return rounds * self._shape.round_steps / (self._now - began)

    # --- time

    def _advance(self) -> None:
        """Go to the next end of work or timer."""
        speeds = self._speeds()
        first = min(self._work, key=lambda name: self._work[name][0] / speeds[name], default=None)
        until = self._work[first][0] / speeds[first] if first is not None else float("inf")
        timer = self._timers[0][0] - self._now if self._timers else float("inf")
        step = min(until, timer)
        assert step < float("inf"), "the simulated run hangs"
        self._now += step
        self._work = {name: (left - step * speeds[name], then) for name, (left, then) in self._work.items()}
        if timer <= until:
            heapq.heappop(self._timers)[2]()
        else:
            assert first is not None
            self._work.pop(first)[1]()

    def _speeds(self) -> dict[str, float]:
        """Share of a core by process. An answer takes the core of an actor where each core has one."""
        speeds, cores = self._shares(), self._shape.cores
        if 1 < cores == self._shape.actors and {"server", "actor 0"} <= speeds.keys():
            speeds["actor 0"] *= max((cores - 2) / (cores - 1), 1e-9)
        return speeds

    def _shares(self) -> dict[str, float]:
        """Share of a core by process: in proportion to weights, at most one core each."""
        cores, open_ = float(self._shape.cores), dict.fromkeys(self._work, 0.0)
        speeds: dict[str, float] = {}
        while open_:
            total = sum(self._weight(name) for name in open_)
            whole = [name for name in open_ if self._weight(name) * cores >= total]
            if not whole:
                return speeds | {name: self._weight(name) * cores / total for name in open_}
            for name in whole:
                speeds[name] = 1.0
                cores -= 1.0
                del open_[name]
        return speeds

    @staticmethod
    def _weight(name: str) -> float:
        """Weight in the scheduler; actors and what a learner prepares ahead have a higher niceness."""
        return NICE_WEIGHT if name.startswith("actor") or name == AHEAD else 1.0

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self._now + seconds, next(self._order), then))

    def _compute(self, name: str, seconds: float, then: Callable[[], None], *, on_device: bool = False) -> None:
        """Work on a core, or on a device that nothing else uses."""
        if on_device:
            self._after(seconds, then)
        else:
            self._work[name] = (seconds, then)

    def _ring(self, name: str) -> None:
        """Wake a process that sleeps."""
        if self._asleep[name]:
            self._asleep[name] = False
            self._after(self._times.wake, {"server": self._serve, "learner": self._learn}.get(name, self._act(name)))

    # --- roles

    def _act(self, name: str) -> Callable[[], None]:
        def act() -> None:
            actor = int(name.split()[-1])
            lanes = self._lanes_of[actor]
            for offset in range(len(lanes)):
                lane = lanes[(self._next[actor] + offset) % len(lanes)]
                if self._answered[lane]:
                    self._next[actor] = (self._next[actor] + offset + 1) % len(lanes)
                    seconds = sum(self._step() for _ in range(self._shape.lane_envs))
                    self._compute(name, seconds, partial(self._stepped, lane, act))
                    return
            self._asleep[name] = True

        return act

    def _step(self) -> float:
        mean, spread = self._times.step, self._times.step_spread
        return mean if spread == 0 else self._random.gammavariate(1 / spread**2, mean * spread**2)

    def _stepped(self, lane: int, act: Callable[[], None]) -> None:
        self._ticks[lane] += 1
        self._answered[lane], self._asks[lane] = False, True
        if self._ticks[lane] == (self._committed + 1) * self._round_ticks:
            self._ring("learner")
        else:
            self._ring("server")
        act()

    def _serve(self) -> None:
        lanes = self._due()
        if not lanes:
            self._asleep["server"] = True
            return
        for lane in lanes:
            self._asks[lane] = False
        times, shape = self._times, self._shape
        seconds = times.answer + times.answer_row * shape.inference_batch
        self._compute("server", seconds, lambda: self._replied(lanes), on_device=shape.on_gpu)

    def _due(self) -> list[int]:
        """Lanes of the next batch: on a GPU all that ask, else the next group in which all do."""
        shape = self._shape
        until = (self._committed + 1) * self._round_ticks
        asking = [lane for lane in range(shape.lanes) if self._asks[lane] and self._ticks[lane] < until]
        if shape.on_gpu:
            return asking
        for offset in range(1, shape.batches + 1):
            group = (self._last_group + offset) % shape.batches
            lanes = [lane for lane in asking if lane // shape.batch_lanes == group]
            if len(lanes) == shape.batch_lanes:
                self._last_group = group
                return lanes
        return []

    def _replied(self, lanes: list[int]) -> None:
        for lane in lanes:
            self._answered[lane] = True
        for actor in {self._actor_of[lane] for lane in lanes}:
            self._ring(f"actor {actor}")
        self._serve()

    def _updates_of_round(self) -> int:
        every = self._shape.steps_per_update
        return 0 if every is None else round(self._shape.round_steps / every)

    def _learn(self) -> None:
        played = min(self._ticks) >= (self._committed + 1) * self._round_ticks
        if self._updates_left and (played or not self._shape.alternates):
            self._updates_left -= 1
            self._update()
        elif played and not self._updates_left:
            self._compute("learner", self._times.commit, self._commit)
        else:
            self._asleep["learner"] = True

    def _update(self) -> None:
        """One update: its threads work at the same time, and it ends with the last of them."""
        times = self._times
        if self._shape.on_gpu:
            self._compute("learner", times.update, self._learn, on_device=True)
            return
        others, parts = times.update_cores - times.update - times.update_ahead, {"learner 0": times.update}
        while others > 1e-12:
            parts[f"learner {len(parts)}"] = min(times.update, others)
            others -= times.update
        parts[AHEAD] = times.update_ahead
        self._running = len(parts)

        def ended() -> None:
            self._running -= 1
            if not self._running:
                self._learn()

        for name, seconds in parts.items():
            self._compute(name, seconds, ended)

    def _commit(self) -> None:
        self._committed += 1
        self._updates_left = self._updates_of_round()
        self._ring("server")
        self._learn()
