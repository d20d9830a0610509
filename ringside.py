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
    saved, run_dir = saved_run(Path(resume))
    kept = replace(saved.run, run_dir=run_dir, resume=Path(resume), init_from=None, plain=False)
    return replace(saved, run=kept)


def plan(config: Config) -> Plan:
    """Check a configuration and answer what it leaves open; nothing is started or written.

    Raises `ConfigError` with a sentence when it cannot work on this machine.
    """
    from actors.atari import games
    from actors.env import action_count
    from shared import machine, validate
    from shared.memory import Plan
    from shared.resolve import resolve

    validate.settings(config)
    if config.play.env is None:
        config = config.with_settings(game=validate.game(config.play.game, games()))
    config = resolve(config)
    validate.resolved(config)
    if config.run.resume is not None:
        validate.same_run(saved_run(config.run.resume)[0], config)
    assert config.run.run_dir is not None
    validate.run_directory(config.run.run_dir, resumes=config.run.resume is not None)
    ready = Plan(config, action_count(config.play))
    validate.memory(ready, machine.usable_memory())
    return ready


def saved_run(path: Path) -> tuple[Config, Path]:
    """Configuration and directory of the run that `path`, a run directory or one of its checkpoints, belongs to."""
    import json

    from shared.validate import CONFIG_FILE

    for directory in (path, *path.absolute().parents[:2]):
        if (directory / CONFIG_FILE).is_file():
            try:
                sections = json.loads((directory / CONFIG_FILE).read_text())
            except ValueError as error:
                raise ConfigError(f"{directory / CONFIG_FILE} is damaged: {error}.") from error
            return Config.from_json(sections), directory
    raise ConfigError(f"{path} is neither a run directory nor a checkpoint of one: it has no {CONFIG_FILE}.")
