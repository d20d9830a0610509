"""The configuration of a command or a call: a preset, a file for `--config` or the run to resume, and single settings.

A file is TOML, or the config.json of a run. The trust rule holds (docs/trust.md): a file never chooses code, nor where
files are written or sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from shared.config import validate
from shared.config.presets import PRESETS
from shared.config.sections import Run
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE, load_plugin, require_env, require_network, require_plugin
from shared.config.validate import require_consistent, require_used
from shared.env_name import with_kwargs
from shared.errors import CheckpointError, ConfigError, FileError
from shared.files.lock import is_locked
from shared.files.plain_files import exists
from shared.files.run_file_names import CHECKPOINTS, CONFIG_FILE
from shared.files.strict_json import read_json, read_object, read_toml
from shared.text import UNSET, class_name, flag_of, refused, require_name

DEFAULT_PRESET = "nature"
_SECTIONS = frozenset({item.name for item in fields(Config)} | {"settings"})
"""Tables that a TOML file may have, for its reader's sake."""


class ConfigFile(NamedTuple):
    """Settings of a file, as it holds them."""

    path: Path
    preset: str | None
    settings: dict[str, Any]
    """By flat name; of a whole configuration only the plug-in."""
    whole: Config | None = None
    """The configuration of a run, without what no file decides."""

    def apply(self, start: Config, env: str | None, plugin: str | None, network: str | None) -> Config:
        """Return `start` with the settings of the file.

        Args:
            env, network: as the user names them; they replace those in the file.
            plugin: as the user names it.

        Raises:
            ConfigError: a setting is wrong, or is the user's to give.
        """
        from actors.make_env import registered  # which loads NumPy

        what, given = f"The run of {self.path}", dict(self.settings)
        recorded = given.pop("plugin", None)
        with refused(f"--config {self.path} cannot be used:", ConfigError):
            for name in sorted(given.keys() & NEVER_FROM_A_FILE):
                raise ConfigError(f"{name} is never taken from a file; pass {flag_of(name)} on the command line.")
            changed = (self.whole or start).with_settings(**given)
            validate.ranges(changed)
            require_used(given, changed.algorithm.method)
            require_consistent(given)
        require_plugin(recorded, plugin, what=what)
        if network is None and (self.whole is not None or "network" in given):
            require_network(changed.learn.network, None, what=what)
        if env is None:
            require_env(changed.play, env, what=what, registered=registered)
        return changed


def read_config(config: str | Path) -> ConfigFile:
    """Read a TOML file, or the config.json of a run, which may be named by its directory.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    path = Path(config)
    if not exists(path):
        raise ConfigError(f"--config {config!s:.200} does not exist: name a TOML file, or the directory of a run.")
    path = path / CONFIG_FILE if path.is_dir() else path
    if path.suffix != ".json":
        return _toml(path)
    with refused("--config cannot be read:", FileError), refused(f"--config {path} cannot be read"):
        found = read_json(path, follow=True)
    with refused(f"--config {path} is not the configuration of a run:", ConfigError):
        whole = validate.recorded(found)
    return ConfigFile(path, None, {"plugin": whole.run.plugin}, _without(whole, run_dir=None, plugin=None))


def starting_point(
    preset: str | None,
    resume: str | Path | None,
    env: str | None = None,
    plugin: str | None = None,
    config: str | Path | None = None,
    network: str | type | None = None,
) -> Config:
    """Configuration that single settings override: that of a preset (default: nature), or of the run to resume.

    Args:
        config: settings on top of the preset: a TOML file, or the config.json of a run.
        env: as the user names it; like plug-in and network it becomes part of the result. A run to resume that was
            trained on an env `module:factory` requires it: no file chooses code (shared/config/trust.py).
        plugin: as the user names it; it is imported here. A run to resume that was trained with one requires it.
        network: as the user names it. A run to resume that was trained with a class of the user requires it.
    """
    load_plugin(plugin)
    named: str | None = class_name(network)
    if resume is not None:
        for flag, given in (("--preset", preset), ("--config", config)):
            if given is not None:
                raise ConfigError(f"--resume keeps the settings of its run: omit {flag}.")
        return _resumed(Path(resume), env, plugin, named)
    file = None if config is None else read_config(config)
    if file is not None and file.whole is not None and preset is not None:
        raise ConfigError(f"--config {config} holds every setting: omit --preset.")
    preset = preset or (file and file.preset) or DEFAULT_PRESET
    require_name("--preset", preset, list(PRESETS))
    start = PRESETS[preset] if file is None else file.apply(PRESETS[preset], env, plugin, named)
    code = {"env": env, "plugin": plugin, "network": named}
    return start.with_settings(**{name: value for name, value in code.items() if value is not None})


def config_of_call(preset: str | None, config: str | Path | None, settings: Mapping[str, Any]) -> Config:
    """Configuration of a command or a call with flat settings, unchecked.

    Args:
        preset, config: as for `starting_point`.
        settings: those that are given, by name.

    Raises:
        ConfigError: a name or a value is wrong, or settings have no effect or contradict each other.
    """
    env, kwargs, resume, plugin, network = map(settings.get, ("env", "env_kwargs", "resume", "plugin", "network"))
    named = env if env is None or kwargs is None else with_kwargs(env, kwargs)
    start = starting_point(preset, resume, named, plugin, config, network)
    chosen = start.with_settings(**settings)
    require_used(settings, chosen.algorithm.method)
    require_consistent({**settings, "env": chosen.play.env})
    return chosen


def _resumed(resume: Path, env: str | None, plugin: str | None, network: str | None) -> Config:
    """Configuration of the run to resume; `training` verifies the pieces, under the lock. Raises `ConfigError`."""
    from actors.make_env import registered
    from shared.checkpoint.finding import newest_usable
    from shared.process.ownership import LIVING, LOCK_FILE

    what = "This run"
    try:
        checkpoint = newest_usable(resume, lambda manifest: manifest)
    except CheckpointError as error:
        if is_locked(resume / LOCK_FILE):
            raise ConfigError(f"--resume {resume} belongs to {LIVING}.") from error
        raise ConfigError(f"--resume {resume} cannot be resumed. {error}") from error
    require_plugin(checkpoint.config.get("run", {}).get("plugin"), plugin, what=what)
    in_run = checkpoint.directory.absolute().name == CHECKPOINTS
    with refused(f"--resume {resume} cannot be resumed.", ConfigError):
        saved = validate.recorded(checkpoint.config)
        if in_run:
            saved = _newest_start(checkpoint.run_dir, checkpoint.experiment) or saved
    require_env(saved.play, env, what=what, registered=registered)
    require_network(saved.learn.network, network, what=what)
    # Nothing is written next to a checkpoint outside a run.
    return _without(saved, run_dir=checkpoint.run_dir if in_run else None, resume=resume, plugin=plugin)


def _newest_start(run_dir: Path, experiment: str) -> Config | None:
    """Configuration of the newest start of a checkpoint's run, which may have made no checkpoint; None: not known."""
    try:
        newest = validate.recorded(read_object(run_dir / CONFIG_FILE))
    except ConfigError:
        return None
    return newest if newest.experiment() == experiment else None


def _without(config: Config, **run: Any) -> Config:
    """A copy with the defaults of what no file decides, and some settings of the run."""
    defaults = {name: getattr(Run(), name) for name in NEVER_FROM_A_FILE}
    return replace(config, run=replace(config.run, **defaults | run))


def _toml(path: Path) -> ConfigFile:
    flat, tables = dict[str, Any](), [read_toml("--config", path)]
    for table in tables:
        for key, value in table.items():
            name = key.replace("-", "_")
            if isinstance(value, dict):
                if name not in _SECTIONS:
                    known = ", ".join(sorted(_SECTIONS))
                    raise ConfigError(f"--config {path} has the table [{key:.40}], which is none of {known}.")
                tables.append(value)
            elif name in flat:
                raise ConfigError(f"--config {path} sets {name} twice: keep one.")
            else:
                flat[name] = None if value == UNSET else value
    preset = flat.pop("preset", None)
    if preset is not None and not isinstance(preset, str):
        raise ConfigError(f"--config {path} has the preset {preset!r:.80}, which is no name.")
    return ConfigFile(path, preset, flat)
