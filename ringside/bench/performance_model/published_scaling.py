"""Published speeds by number of workers, and the model's figures for them.

Each curve is one program on one machine. Two of its points give the service time of a step and the crowding: one
worker, and one on every physical core. The model says what lies between. The figures are frames/s of Pong with random
actions and no learning, four frames a step; "Highest FPS" and "Result" of EnvPool's benchmark page
(content/benchmark of its documentation, envpool 0.5.3.post1).

Other published figures do not say enough. fast-dqn (arXiv:2111.01264) gives 25 and 9 hours for 50 million steps, and
tensorpack's A3C-Gym 6 to 10 batches of 128 a second on a GPU and 12 cores or more; neither gives the time of a step, of
an answer and of an update on its machine. Sample Factory (arXiv:2006.11751) measures other games.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.performance.service_times import RunShape, ServiceTimes
from shared.performance.throughput_model import play_rate

FRAMES = 4
"""Frames of a step."""


@dataclass(frozen=True)
class Curve:
    """Speeds of a program by number of workers, at most one for each physical core."""

    program: str
    machine: str
    speeds: dict[int, float]
    """Frames/s by number of workers, the last of which is the number of physical cores."""

    @property
    def cores(self) -> int:
        """Physical cores of the machine."""
        return max(self.speeds)

    @property
    def times(self) -> ServiceTimes:
        """Service times by the first and the last point; nothing is answered or learned."""
        single, all_cores = self.speeds[1], self.speeds[self.cores]
        return ServiceTimes(
            step=FRAMES / single,
            step_spread=0.0,
            answer=1e-9,
            answer_row=0.0,
            wake=0.0,
            update=0.0,
            update_cores=0.0,
            update_ahead=0.0,
            contention=1.0,
            update_overhead=1.0,
            commit=0.0,
            crowding=all_cores / (self.cores * single),
            parallel_share=0.0,
            processors=self.cores,
        )

    def predicted(self, workers: int) -> float:
        """Frames/s of so many workers by the model."""
        shape = RunShape(self.cores, 2 * workers, 1, workers, 1, 10_000, None)
        return FRAMES * play_rate(self.times, shape)

    def greatest_error(self) -> float:
        """Greatest relative error between the first and the last point."""
        between = [workers for workers in self.speeds if 1 < workers < self.cores]
        return max(abs(self.predicted(workers) / self.speeds[workers] - 1) for workers in between)


LAPTOP, WORKSTATION = "i7-8750H, 6 cores", "Ryzen 9 5950X, 16 cores"
VIRTUAL, SERVER = "Xeon 2.0 GHz, 48 cores", "two EPYC 7742, 128 cores"
CURVES = (
    Curve("EnvPool, async", LAPTOP, {1: 10213.75, 2: 18880.65, 3: 26599.45, 4: 36375.89, 6: 48390.40}),
    Curve("Sample Factory's sampler", LAPTOP, {1: 5844.7, 2: 11148.0, 3: 15567.5, 4: 18236.7, 6: 25879.3}),
    Curve(
        "EnvPool, async",
        WORKSTATION,
        {1: 14577.17, 2: 28383.39, 4: 55106.44, 8: 106992.10, 12: 153258.47, 16: 188554.16},
    ),
    Curve(
        "Sample Factory's sampler",
        WORKSTATION,
        {1: 9259.5, 2: 18429.2, 4: 36776.8, 8: 71435.0, 12: 101555.5, 16: 106382.5},
    ),
    Curve(
        "EnvPool, async",
        VIRTUAL,
        {1: 8836.44, 2: 17815.91, 4: 35524.72, 8: 69888.53, 16: 127106.74, 24: 184798.27, 32: 246497.85, 48: 352195.40},
    ),
    Curve(
        "Sample Factory's sampler",
        VIRTUAL,
        {1: 4906.3, 2: 9751.2, 4: 19450.3, 8: 38828.2, 16: 76206.7, 24: 108471.7, 32: 137571.6, 48: 203113.6},
    ),
    Curve(
        "EnvPool, async by NUMA node",
        SERVER,
        {1: 8790.69, 8: 70629.88, 16: 140528.93, 32: 279113.15, 64: 555426.41, 96: 762417.99, 128: 936443.47},
    ),
    Curve(
        "Sample Factory's sampler",
        SERVER,
        {1: 5563.2, 2: 11003.0, 4: 21976.3, 8: 43891.1, 16: 87702.0, 32: 175408.8, 64: 350855.5}
        | {96: 476048.4, 128: 505494.8},
    ),
)
"""EnvPool's benchmark page; one worker of the NUMA curve is that of `async`, which it equals there."""
