"""Ringside from Python: the same as the command line.

    import ringside

    if __name__ == "__main__":  # processes are spawned, and each imports the main module again
        summary = ringside.train(game="pong", preset="quick", actors=4)

Settings have the flat names of the flags (`--total-steps` is `total_steps`). A wrong one raises `ConfigError` with
a sentence before anything starts. Names are resolved when they are used: the import itself loads no library.

Read in this order: api, supervisor, recording, watch; then what stands around a run: agents, report, doctor, bench.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside.api import (
        Agent,
        ArenaError,
        Config,
        ConfigError,
        RunFailed,
        evaluate,
        load_agent,
        plan,
        run,
        starting_point,
        train,
    )

__all__ = [
    "Agent",
    "ArenaError",
    "Config",
    "ConfigError",
    "RunFailed",
    "evaluate",
    "load_agent",
    "plan",
    "run",
    "starting_point",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ringside import api

        return getattr(api, name)
    raise AttributeError(f"module 'ringside' has no attribute {name!r}")
