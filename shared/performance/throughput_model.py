"""The performance model: each part's time for a round, and the speed of a run. docs/model.md has the same equations.

Symbols: E envs in lanes of e, N actors, batches of B rows, rounds of R steps, an update every k steps, c cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from shared.performance.queueing import Mailbox, greatest_of, speedup
from shared.performance.service_times import RunShape, ServiceTimes

Part = Literal["emulation", "inference", "mailbox", "displacement", "learner", "cores", "network", "turns"]
SENTENCES: dict[Part, str] = {
    "emulation": "emulation limits it",
    "inference": "inference limits it",
    "mailbox": "lanes wait for answers, with too few batches to hide that",
    "displacement": "an answer takes the core of an actor, which waits for it",
    "learner": "the learner limits it",
    "cores": "all cores are in use",
    "network": "the network limits it",
    "turns": "playing and learning take turns",
}


NICE_WEIGHT = 110 / 1024
"""Share of an actor beside a process of niceness 0 in the kernel's scheduler (`sched_prio_to_weight` at 10)."""
FIRST_THREADS = 2
"""Threads of a learner that run at niceness 0; what prepares ahead has that of actors."""


@dataclass(frozen=True)
class Prediction:
    """Speed of a run by the model."""

    steps_per_second: float
    part: Part
    """Part that limits the run."""
    bounds: dict[Part, float]
    """Steps/s that each part would allow if it alone limited the run."""

    @property
    def reason(self) -> str:
        """End of a sentence about the limit."""
        return SENTENCES[self.part]


def predict(times: ServiceTimes, shape: RunShape) -> Prediction:
    """Steps/s of a run at steady state, whole rounds with their commits.

    With rounds, playing and learning overlap, and the commit follows both. In turns, one follows the other. Without a
    barrier the slowest of playing, learning and the cores decides.
    """
    steps = shape.round_steps
    alone = replace(shape, steps_per_update=None)
    played = max(play_seconds(times, shape), steps * core_seconds(times, alone) / free_cores(shape))
    learned = steps / shape.steps_per_update * update_seconds(times, shape) if shape.steps_per_update else 0.0
    busy = steps * core_seconds(times, shape) / free_cores(shape)
    bounds = bounds_of_play(times, shape)
    bounds["cores"] = steps / busy
    if learned:
        bounds["learner"] = steps / learned
    if shape.alternates and learned:
        return Prediction(steps / (played + learned + times.commit), "turns", bounds)
    if shape.barrier:
        seconds = together_seconds(times, shape, played, learned) + times.commit
    else:
        seconds = max(played, learned + (times.commit if learned else 0.0), busy)
    slowest = min(bounds, key=lambda part: bounds[part])
    return Prediction(steps / seconds, slowest, bounds)


def together_seconds(times: ServiceTimes, shape: RunShape, played: float, learned: float) -> float:
    """Time for playing and learning a round on the same cores, of which one ends before the other.

    Learner and inference come before actors, which have a higher niceness. So actors get the cores that the learner
    leaves, and at least the share of their weights. But the thread that prepares updates ahead has the niceness of
    actors: where these want more than is left, it gets as much as each of them, and the learner waits for it. Its other
    threads wait longer for each other, too, by the measured contention. When one side has done its part, the other has
    all cores.
    """
    if not learned:
        return played
    cores, steps = free_cores(shape), shape.round_steps
    playing = steps * core_seconds(times, replace(shape, steps_per_update=None)) / played  # cores in use, if alone
    updating = steps * update_core_seconds(times, shape) / learned
    if playing + updating <= cores:
        return max(played, learned)
    all_played = updating / (cores - playing) if playing < cores else math.inf
    ahead = updating * times.update_ahead / times.update_cores if times.update_ahead else 0.0
    waits = times.contention * max(1.0, min(equal_shares(updating, ahead, shape.actors, cores), all_played))
    weights = shape.actors * NICE_WEIGHT
    by_weight = cores * weights / (weights + FIRST_THREADS + NICE_WEIGHT)
    for_actors = min(playing, max(cores - updating / waits, by_weight))
    slower_play, slower_learner = playing / for_actors, max(waits, updating / (cores - for_actors))
    first = min(played * slower_play, learned * slower_learner)
    return first + max(0.0, played - first / slower_play, learned - first / slower_learner)


def equal_shares(updating: float, ahead: float, actors: int, cores: float) -> float:
    """Slowdown of a learner whose thread ahead gets as much of the cores as each actor.

    Args:
        updating: cores that its threads use alone.
        ahead: the part of them that the thread ahead uses.
    """
    return (updating + actors * ahead) / cores


# --- playing


def answer_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Time of an inference batch: s_I = a + b B / S(threads), S being Amdahl's law."""
    return times.answer + times.answer_row * shape.inference_batch / speedup(
        shape.inference_threads, times.parallel_share
    )


def crowded(times: ServiceTimes, busy: float, cores: int) -> float:
    """Speed of a core while `busy` of `cores` work: from 1, in a straight line, to `crowding` where all do."""
    if cores == 1:
        return 1.0
    return 1 - (1 - times.crowding) * (min(max(busy, 1.0), cores) - 1) / (cores - 1)


def step_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Time of an env's step beside all actors that never wait, and the inference that they need."""
    per_row = answer_seconds(times, shape) / shape.inference_batch
    inference = min(1.0, shape.actors * per_row / times.step)
    return times.step / crowded(times, shape.actors + inference, shape.cores)


def bounds_of_play(times: ServiceTimes, shape: RunShape) -> dict[Part, float]:
    """Steps/s that emulation, inference, the mailbox and the network allow, each by itself.

    The actor with most lanes decides for emulation. Nodes add up, and each has an inference server.

    With as many actors as cores an answer takes the core of an actor. That one waits for the answer, or until another
    core is idle and the kernel moves it there: A / (c - 1). On two cores it waits for all of A, as measured; that it
    waits for less where there are more cores is an estimate.
    """
    site, sites = shape.site, max(1, shape.nodes)
    lane = site.lane_envs * step_seconds(times, site)
    answer = answer_seconds(times, site)
    bounds: dict[Part, float] = {"emulation": sites * site.envs / (site.share * lane)}
    if site.on_gpu:
        # A request finds the server within an answer to others: half of that is left, and its own follows. Its actor
        # steps half of its other lanes before.
        cycle = max(2 * answer, (site.share + 1) / 2 * lane + 1.5 * answer) + 2 * times.wake
        bounds["mailbox"] = sites * site.envs / cycle
    else:
        cycle = site.together * step_seconds(times, site) + answer + 2 * times.wake
        bounds["inference"] = sites * site.inference_batch / answer
        bounds["mailbox"] = sites * site.envs / cycle
        if 1 < site.cores == site.actors:
            emulated = site.inference_batch * step_seconds(times, site) / site.cores
            bounds["displacement"] = sites * site.inference_batch / (emulated + answer / (site.cores - 1))
    if shape.nodes:
        bounds["network"] = shape.link.bytes_per_second / bytes_back(shape)
    return bounds


def bytes_back(shape: RunShape) -> float:
    """Bytes that a node returns for a step: its slots, and its part of the snapshots at the end of a round."""
    return shape.link.step_bytes + shape.link.snapshot_bytes * shape.envs / shape.round_steps


def play_rate(times: ServiceTimes, site: RunShape) -> float:
    """Steps/s with which one machine plays, by the queue at its mailbox."""
    bounds = bounds_of_play(times, site)
    if site.on_gpu:
        return min(bounds.values())
    spread = times.step_spread / site.together**0.5
    actors_of_batch = min(site.actors, site.batch_lanes)
    playing = site.together * step_seconds(times, site)
    mailbox = Mailbox(
        batches=site.batches,
        per_actor=max(1.0, site.share * site.lane_envs / site.together),
        playing=playing,
        slowest=playing * greatest_of(actors_of_batch, spread),
        answering=answer_seconds(times, site),
        delay=2 * times.wake,
        spread=spread,
    )
    return min(mailbox.batches_per_second() * site.inference_batch, bounds.get("displacement", math.inf))


def play_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Time in which all lanes play a round: T_play = max(R / v, the slowest actor's steps) + begin and end.

    At its beginning every lane waits for the first answers, and at its end for the last steps. A node also waits for
    the parameters, which the head sends to one after another.
    """
    site, sites, link = shape.site, max(1, shape.nodes), shape.link
    step, steps = step_seconds(times, site), shape.round_steps
    actors = sites * site.actors
    slowest = greatest_of(actors, times.step_spread / (steps / actors) ** 0.5)
    emulated = steps / bounds_of_play(times, shape)["emulation"] * slowest
    begin_and_end = min(site.together * step, answer_seconds(times, site)) + 2 * times.wake
    seconds = max(steps / (sites * play_rate(times, site)), emulated) + begin_and_end
    if shape.nodes:
        returned = steps * bytes_back(shape) / link.bytes_per_second
        sent = shape.nodes * shape.parameter_bytes / link.bytes_per_second
        seconds = max(seconds, returned) + sent + link.round_seconds
    return seconds


# --- learning


def update_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Time of an update: T_u = max(busiest thread / S(threads), all threads / cores), and what waits cost it.

    On one core the threads take turns, and none waits for another. On a GPU it is the device's time.
    """
    if shape.on_gpu:
        return times.update
    if shape.cores == 1:
        return times.update_cores
    threads = shape.learner_threads
    alone = times.update / speedup(threads, times.parallel_share)
    return times.update_overhead * max(alone, times.update_cores / shape.cores)


# --- cores


def core_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Core time of a step: what is played and answered on this machine, updates, and filing for nodes."""
    seconds = update_core_seconds(times, shape)
    if shape.nodes:
        return seconds + shape.link.filing
    answer = 0.0 if shape.on_gpu else answer_seconds(times, shape) / shape.inference_batch
    return seconds + (times.step + answer) / crowded(times, shape.cores, shape.cores)


def update_core_seconds(times: ServiceTimes, shape: RunShape) -> float:
    """Core time of a step's part of an update: teams of several threads spin while they wait for each other."""
    if shape.steps_per_update is None:
        return 0.0
    spins = shape.learner_threads > 1 and not shape.on_gpu
    threads = shape.teams * shape.learner_threads
    return (threads * update_seconds(times, shape) if spins else times.update_cores) / shape.steps_per_update


def free_cores(shape: RunShape) -> float:
    """Cores for this work: a GPU's inference server keeps one busy, or half of a single one."""
    serves = shape.on_gpu and not shape.nodes
    return max(shape.cores - 1, shape.cores / 2) if serves else float(shape.cores)
