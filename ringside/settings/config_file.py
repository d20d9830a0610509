"""Settings in a file, for `--config`: a TOML file, or the config.json of a run.

The trust rule holds (docs/trust.md): a file never chooses code, nor where files are written or sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from shared.config.checks import validate
from shared.config.checks.combinations import require_used
from shared.config.sections import Run
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE, require_env, require_plugin
from shared.errors import ConfigError, FileError
from shared.files.plain_files import exists
from shared.files.run_file_names import CONFIG_FILE
from shared.files.strict_json import read_json, read_toml
from shared.text import UNSET, flag_of

_SECTIONS = frozenset({item.name for item in fields(Config)} | {"settings"})
"""Tables that a TOML file may have, for its reader's sake."""


@dataclass(frozen=True)
class ConfigFile:
    """Settings of a file, as it holds them."""

    path: Path
    preset: str | None
    settings: dict[str, Any]
    """By flat name; empty where it is a whole configuration."""
    whole: Config | None = None
    """The configuration of a run."""

    def apply(self, start: Config, env: str | None, plugin: str | None, is_registered: Callable[[str], bool]) -> Config:
        """Return `start` with the settings of the file.

        Args:
            env: as the user names it; it replaces the one in the file.
            plugin: as the user names it.
            is_registered: True if Gymnasium has registered the id of an env.

        Raises:
            ConfigError: a setting is wrong, or is the user's to give.
        """
        try:
            if self.whole is not None:
                defaults = {name: getattr(Run(), name) for name in NEVER_FROM_A_FILE | {"plugin"}}
                recorded, changed = self.whole.run.plugin, self.whole
                changed = replace(changed, run=replace(changed.run, **defaults))
            else:
                recorded, changed = self.settings.get("plugin"), self._changed(start)
        except ConfigError as error:
            raise ConfigError(f"--config {self.path} cannot be used: {error}") from error
        what = f"The run of {self.path}"
        if recorded is not None:
            require_plugin(recorded, plugin, what=what)
        if env is not None:
            return replace(changed, play=replace(changed.play, env=env))
        require_env(changed.play, env, what=what, is_registered=is_registered)
        return changed

    def _changed(self, start: Config) -> Config:
        given = {name: value for name, value in self.settings.items() if name != "plugin"}
        for name in sorted(given.keys() & NEVER_FROM_A_FILE):
            raise ConfigError(f"{name} is never taken from a file; pass {flag_of(name)} on the command line.")
        changed = start.with_settings(**given)
        validate.ranges(changed)
        require_used(given, changed.algorithm.method)
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
    try:
        return _run_config(path)
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}.") from error
    except FileError as error:
        raise ConfigError(f"--config cannot be read: {error}") from error


def _run_config(path: Path) -> ConfigFile:
    try:
        whole = Config.from_json(read_json(path, follow=True))
        validate.recorded(whole)
    except ConfigError as error:
        raise ConfigError(f"--config {path} is not the configuration of a run: {error}") from error
    return ConfigFile(path, None, {}, whole)


def _toml(path: Path) -> ConfigFile:
    flat: dict[str, Any] = {}
    for name, value in _flattened(path, read_toml("--config", path)):
        if name in flat:
            raise ConfigError(f"--config {path} sets {name} twice: keep one.")
        flat[name] = None if value == UNSET else value
    preset = flat.pop("preset", None)
    if preset is not None and not isinstance(preset, str):
        raise ConfigError(f"--config {path} has the preset {preset!r:.80}, which is no name.")
    return ConfigFile(path, preset, flat)


def _flattened(path: Path, tables: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tables.items():
        name = key.replace("-", "_")
        if not isinstance(value, dict):
            found.append((name, value))
        elif name in _SECTIONS:
            found += _flattened(path, value)
        else:
            known = ", ".join(sorted(_SECTIONS))
            raise ConfigError(f"--config {path} has the table [{key:.40}], which is none of {known}.")
    return found
