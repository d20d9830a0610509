"""Cores of a run by role, and the division of its lanes: rules of `resolve`."""

from __future__ import annotations

TEAMS = 3
"""Teams of a learner on a CPU, each of `--learner-threads` threads: layers, weight gradients, prefetching."""
MOST_THREADS = 4
"""Most threads of a team."""
OTHERS = 3
"""Cores that a learner on a CPU leaves free: one for inference and two for actors."""
CPU_ROWS = 32
"""Most rows of an inference batch on a CPU: larger ones cost as much a row (docs/lab/2026-11-cpu-learner.md)."""


def teams_of(shards: int | None) -> int:
    """Threads of a learner on a CPU that each compute with `--learner-threads`, one for each shard if there are any."""
    return max(TEAMS, shards or 1)


def learner_threads_of(cores: int, shards: int | None, *, on_cpu: bool) -> int:
    """Threads of a learner: one with a GPU; on a CPU the number for each of its teams.

    On a CPU it is as many as leave cores for inference and two actors, four at most. Several ranks have it each, since
    their number must not change the arithmetic; on a CPU they need fewer `--learner-threads`.

    The threads of a team wait for each other, spinning, several times an update: with another process on one of two
    cores for half of the time, two threads were 9 times slower than one
    (docs/lab/2026-11-cpu-learner.md). Two actors play several times as fast as a CPU learns.
    """
    return max(1, min(MOST_THREADS, (cores - OTHERS) // teams_of(shards))) if on_cpu else 1


def shards_of_rank(shards: int | None, ranks: int) -> int | None:
    """Shards of a minibatch that each rank of a learner computes."""
    return shards if shards is None else shards // ranks


def busy_threads(learner_threads: int, shards: int | None, *, on_cpu: bool) -> int:
    """Cores that a learner, or a rank with its shards, takes: teams of one thread wait asleep, larger ones spin."""
    return teams_of(shards) * learner_threads if on_cpu and learner_threads > 1 else learner_threads


def greatest_share(lanes: int, actors: int) -> int:
    """Lanes of the actor that has most of them, for which the others wait at the end of a round."""
    return -(-lanes // actors)


def fewest_actors(lanes: int, most: int) -> int:
    """Fewest actors, of at most `most`, whose greatest share is the least: more would not end a round earlier.

    48 lanes on 14 cores: with 14 actors, as with 12, some actor has 4 lanes. So 12 are as fast.
    """
    return greatest_share(lanes, greatest_share(lanes, most))


def largest_batch(lanes: int, lane_envs: int, most: int) -> int:
    """Most envs in whole lanes, at most `most` of them, of which all lanes make equal groups; at least one lane."""
    sizes = (count * lane_envs for count in range(1, lanes + 1) if lanes % count == 0)
    return max((size for size in sizes if size <= most), default=lane_envs)
