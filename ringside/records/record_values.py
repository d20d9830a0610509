"""Values of the record of some rounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ringside.records.board_samples import NEWEST, Sample, roles_between
from ringside.records.role_status import groups_of
from shared.config.method_declaration import C51Settings
from shared.config.settings import Config
from shared.memory.board import METRIC_RECORDS
from shared.memory.run_memory import Memory


def record_values(
    memory: Memory, first: int, stop: int, sample: Sample, *, held: bool
) -> dict[str, float | int | None]:
    """Values of the record of the rounds [first, stop), without its episodes.

    Args:
        sample: of the board, taken when they are recorded.
        held: True if the rings still hold their slots.
    """
    run_schedule, board, config = memory.run_schedule, memory.board, memory.plan.config
    steps, frames = (stop - first) * run_schedule.round_steps, config.play.frames_per_step
    updates = run_schedule.updates_before(stop) - run_schedule.updates_before(first)
    ticks = first * run_schedule.round_ticks, stop * run_schedule.round_ticks
    values: dict[str, float | int | None] = {
        "frames": None if frames is None else stop * run_schedule.round_steps * frames,
        "updates": run_schedule.updates_before(stop),
        "epsilon": run_schedule.epsilon(ticks[1], config.explore) if run_schedule.method.has_epsilon else None,
        "learning_rate": run_schedule.learning_rate(stop - 1, config.learn),
        "samples_per_step": updates * run_schedule.update_samples / steps,
        "valid_steps": None,
    }
    if held:
        ring = memory.ring.field
        values["valid_steps"] = int(ring["valid"][:, np.arange(*ticks) % run_schedule.capacity].sum())
        if config.algorithm.method == "c51":
            values["outside_support"] = outside_support(ring, *ticks, config)
    number = run_schedule.record_number(stop)
    former, row = (
        dict(zip(board.metric_names, board.metrics[each % METRIC_RECORDS].tolist(), strict=True))
        for each in (number - 1, number)
    )
    if row["boundary"] == stop:  # else the learner has reused the row
        begun, at = float(board.begun_ns[0]) / 1e9, row["committed_at"]
        # The first record after a start, with no row before it, is measured from the start.
        seconds = at - (former["committed_at"] if former["committed_at"] < at else begun)
        values |= {name: row[name] for name in memory.plan.method.metrics}
        values["seconds"] = float(board.before[0]) + at - begun
        values["steps_per_second"] = steps / seconds
        values["frames_per_second"] = None if frames is None else steps * frames / seconds
        values["updates_per_second"] = row["updates"] / seconds  # counted by the learner
    # Busy shares since the newest record. Where nodes play, theirs is that of the actors.
    groups = groups_of(roles_between(memory, Sample.kept(memory, NEWEST), sample))
    shares = {name: group.busy for name, group in groups.items()}
    shares |= {"actors": shares["nodes"]} if "nodes" in shares else {}
    names = ("workers",) if run_schedule.workers else ("learner", "inference", "actors")
    return values | {f"{name}_busy": shares.get(name) for name in names}


def outside_support(ring: Mapping[str, NDArray[np.generic]], first_tick: int, stop_tick: int, config: Config) -> float:
    """Share of the states of a record whose discounted return lies outside --v-min to --v-max, in [0, 1].

    The projection of Bellemare et al. 2017, Algorithm 1, moves such a return to the nearer end of the support. A return
    counts up to the end of its episode or of the record.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; the ticks are committed.
        first_tick, stop_tick: ticks of the record, [first_tick, stop_tick).
        config: its discount, clipping and support.
    """
    support = config.algorithm.settings
    assert isinstance(support, C51Settings), "only c51 has a support"
    slots = np.arange(first_tick, stop_tick) % ring["valid"].shape[1]
    reward = ring["raw_reward"][:, slots].astype(np.float64)
    if config.learn.clip_rewards:
        reward = np.sign(reward)
    valid = ring["valid"][:, slots].astype(bool)
    ends = np.logical_or.reduce([ring[name][:, slots] for name in ("terminated", "truncated", "life_lost")])
    outside, value = 0, np.zeros_like(reward[:, 0])
    for tick in reversed(range(len(slots))):
        later = np.where(ends[:, tick], 0.0, config.learn.discount * value)
        value = np.where(valid[:, tick], reward[:, tick] + later, 0.0)
        outside += int(np.count_nonzero((value < support.v_min) | (support.v_max < value)))
    return outside / max(1, int(valid.sum()))
