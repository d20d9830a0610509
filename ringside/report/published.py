"""Published scores with source and protocol, from `published.json`, which also says how they were checked.

A score belongs to its rules. Agents evaluated without sticky actions are never compared with runs that have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.config.protocols import PROTOCOLS
from shared.files.atomic import read_json

FRAMES = 200_000_000
"""Training frames of all these agents."""


@dataclass(frozen=True)
class Published:
    """One agent of the literature."""

    name: str
    sticky: float
    """Probability of a sticky action in its evaluation."""
    source: str
    protocol: str
    """Other rules of its evaluation, as text."""
    scores: Mapping[str, float]
    """Mean return by game; games without a published score are missing."""


@cache
def published() -> tuple[tuple[Published, ...], str]:
    """All agents, and a text on how their scores were checked."""
    found = read_json(Path(__file__).parent / "published.json")
    return tuple(Published(**agent) for agent in found["agents"]), found["checked"]


def comparable_agents(protocol: str) -> tuple[Published, ...]:
    """Agents evaluated with the same probability of sticky actions as a protocol."""
    if protocol not in PROTOCOLS:
        return ()
    return tuple(agent for agent in published()[0] if agent.sticky == PROTOCOLS[protocol].sticky)
