"""Sentence about the processes that a run waits for at its start."""

from __future__ import annotations

from collections.abc import Sequence

from ringside.load.role_status import RoleStatus

_PREPARES = {
    "scribe": "preparing the memory",
    "learner": "loading PyTorch and the network",
    "ranks": "loading PyTorch and the network",
    "inference": "loading PyTorch and the network",
    "evaluator": "loading emulators and the game",
    "actors": "loading emulators and the game",
    "nodes": "looking for a node",
    "workers": "loading PyTorch, emulators and the game",
}
"""Work of a process before its first step, by group."""

_MOST_LISTED = 4


def startup_sentence(roles: Sequence[RoleStatus]) -> str:
    """Name the processes that have not started, and their work."""
    awaited: dict[str, list[str]] = {}
    for role in roles:
        if role.state == "starting":
            awaited.setdefault(_PREPARES[role.group], []).append(role.name)
    if not awaited:
        return "All processes have started; the first steps are being played."
    clauses = [f"{_listed(names)} ({work})" for work, names in awaited.items()]
    return f"Starting: waits for {_listed(clauses)}."


def _listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"; of more than four, the first and the number of the others."""
    if len(words) > _MOST_LISTED:
        return f"{words[0]} and {len(words) - 1} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
