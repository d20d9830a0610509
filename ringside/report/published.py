"""Scores of published agents with source and protocol, from `published.json`, which also says how it was checked.

A score belongs to its rules. Agents that were judged without sticky actions are never set beside runs with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.config.protocols import PROTOCOLS
from shared.files.atomic import read_json

FRAMES = 200_000_000
"""Frames that all agents here were trained for."""


@dataclass(frozen=True)
class Published:
    """One agent of the literature."""

    name: str
    sticky: float
    """Chance of a sticky action under which it was judged."""
    source: str
    protocol: str
    """The rest of the rules it was judged by, in words."""
    scores: Mapping[str, float]
    """Mean return by game; a game that is not there was not found."""


@cache
def published() -> tuple[tuple[Published, ...], str]:
    """All agents, and how their scores were checked."""
    found = read_json(Path(__file__).parent / "published.json")
    return tuple(Published(**agent) for agent in found["agents"]), found["checked"]


def comparable(protocol: str) -> tuple[Published, ...]:
    """The agents that were judged with the same chance of sticky actions as a protocol of ours has."""
    if protocol not in PROTOCOLS:
        return ()
    return tuple(agent for agent in published()[0] if agent.sticky == PROTOCOLS[protocol].sticky)
