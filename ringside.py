"""Ringside from Python: the same as the command line.

    import ringside

    if __name__ == "__main__":  # processes are spawned, and each imports the main module again
        summary = ringside.train(game="pong", preset="quick", total_steps=500_000, actors=4)

Settings have the flat names of the flags (`--total-steps` is `total_steps`). A wrong one raises `ConfigError` with
a sentence before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config import Config, ConfigError, PresetName
from shared.presets import PRESETS

if TYPE_CHECKING:
    from shared.memory import Plan
    from supervisor import Status

__all__ = ["Config", "ConfigError", "starting_point", "plan", "train"]


def train(
    *, preset: PresetName = "nature", on_status: Callable[[Status], None] | None = None, **settings: Any
) -> dict[str, Any]:
    """Train, and return what `summary.json` holds.

    Args:
        preset: what the settings that are not given default to; not together with `resume`.
        on_status: called several times a second with the state of the run.
        settings: any field of any section of `shared.config.Config`.
    """
    import supervisor

    config = starting_point(preset, settings.get("resume")).with_settings(**settings)
    ready = plan(config)
    return supervisor.train(ready.config, ready.actions, on_status)


def starting_point(preset: PresetName, resume: str | Path | None) -> Config:
    """The configuration that single settings override: a preset's, or that of the run to resume."""
    if resume is None:
        if preset not in PRESETS:
            raise ConfigError(f"There is no preset {preset!r}; there are {' and '.join(PRESETS)}.")
        return PRESETS[preset]
    from shared.manifest import find_checkpoint
    from shared.segments import CheckpointError

    try:
        checkpoint = find_checkpoint(Path(resume))
    except CheckpointError as error:
        raise ConfigError(f"--resume {resume} cannot be resumed. {error}") from error
    saved = Config.from_json(checkpoint.config)
    run_dir = checkpoint.directory.parent
    return replace(saved, run=replace(saved.run, run_dir=run_dir, resume=Path(resume), init_from=None, plain=False))


def plan(config: Config) -> Plan:
    """Check a configuration and answer what it leaves open; nothing is started or written.

    Raises `ConfigError` with a sentence when it cannot work on this machine.
    """
    from actors.env import EnvError, action_count
    from shared import machine, validate
    from shared.manifest import find_checkpoint, load_weights
    from shared.memory import Plan
    from shared.resolve import resolve
    from shared.segments import CheckpointError

    validate.settings(config)
    if config.play.env is None:
        from actors.atari import games

        config = config.with_settings(game=validate.game(config.play.game, games()))
    config = resolve(config)
    validate.resolved(config)
    run = config.run
    assert run.run_dir is not None
    validate.run_directory(run.run_dir, resumes=run.resume is not None)
    try:
        ready = Plan(config, action_count(config.play))
        if run.resume is not None:
            find_checkpoint(run.resume).require(config)
        if run.init_from is not None:
            load_weights(run.init_from).require(network=config.learn.network, actions=ready.actions)
    except (CheckpointError, EnvError) as error:
        raise ConfigError(str(error)) from error
    validate.memory(ready, machine.usable_memory())
    return ready
