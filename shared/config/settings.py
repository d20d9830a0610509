"""The configuration of a run in sections: `Config` as the user gives it, and `ResolvedConfig` as it runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from shared.config.field_checks import convert, marks_of
from shared.config.method_declaration import MethodDeclaration, Need, add_method, method_declaration, methods_with
from shared.config.sections import (
    OF_METHOD,
    OWN_SETTINGS,
    Algorithm,
    Count,
    Effect,
    EvalActions,
    Evaluate,
    Explore,
    Frames,
    Learn,
    Machine,
    Parts,
    Play,
    Run,
    Share,
)
from shared.env_name import with_kwargs
from shared.errors import ConfigError
from shared.text import class_name, flag_of, nearest, refused


def flat_of(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values of a `Config.to_json` by the flat names of the flags."""
    flat = {name: value for values in sections.values() for name, value in values.items()}
    own = flat.pop(OWN_SETTINGS, {})
    return flat | own if isinstance(own, dict) else flat


def digest_of(sections: dict[str, Any], without: frozenset[str] = frozenset()) -> str:
    """SHA-256 (hex) of the settings in a `Config.to_json` that the weights depend on, but those named `without`."""
    left_out = MAY_CHANGE_ON_RESUME | without
    kept = {name: value for name, value in flat_of(sections).items() if name not in left_out}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


TASK_OPTIONS = frozenset(
    {"preset", "config", "env_kwargs", "cgroup", "cpus", "memory", "games", "seeds", "out", "final_episodes", "json"}
    | {"ray", "ray_insecure", "nodes", "head_plays", "mixed_numerics", "cpus_per_run", "gpus_per_run"}
    | {"trials", "space", "prune", "repeat", "keep_replay"}
)
"""Options of the tasks that take settings of runs, too (train, suite, tune, doctor); no setting of a method may
be called so, since it would have the same flag."""


@dataclass(frozen=True)
class Config:
    """Settings of a run as a user gives them. Frozen; change it with `with_settings` or `dataclasses.replace`."""

    play: Play = field(default_factory=Play)
    learn: Learn = field(default_factory=Learn)
    algorithm: Algorithm = field(default_factory=Algorithm)
    explore: Explore = field(default_factory=Explore)
    evaluate: Evaluate = field(default_factory=Evaluate)
    machine: Machine = field(default_factory=Machine)
    run: Run = field(default_factory=Run)

    def to_json(self) -> dict[str, Any]:
        """Sections as plain JSON values; paths as strings."""
        return dict(msgspec.to_builtins(self, enc_hook=str))

    def to_flat(self) -> dict[str, Any]:
        """The same values by the flat names of the flags."""
        return flat_of(self.to_json())

    @classmethod
    def from_json(cls, sections: dict[str, Any]) -> Config:
        """The inverse of `to_json`.

        Raises `ConfigError` unless the names are exactly those of this version, and every value is of its type.
        """
        if not sections.keys() & {item.name for item in dataclasses.fields(Config)}:
            raise ConfigError("It has none of the sections of a configuration.")
        algorithm = sections.get("algorithm")
        method = algorithm.get("method") if isinstance(algorithm, dict) else "dqn"
        if not isinstance(method, str):
            raise ConfigError(f"The configuration is damaged: method is {method!r:.80}.")
        start = Config(algorithm=Algorithm(method=method))
        if _names_in(sections) != _names_in(start.to_json()):
            raise ConfigError("The configuration was written by another version of Ringside; use that one.")
        with refused("The configuration is damaged:", ConfigError):
            return start.with_settings(**flat_of(sections))

    def with_settings(self, **settings: Any) -> Self:
        """A copy with some settings changed, by the flat names of the flags (`total_steps=1_000`).

        Another method has its default settings unless they are given, too. Settings without an effect on it return to
        their defaults. Paths may be strings, and `network` a class. `env_kwargs`, a text or a mapping, become part of
        the name `env`.

        Raises `ConfigError` for a name that is no setting, or a value of another type.
        """
        kwargs = settings.pop("env_kwargs", None)
        if kwargs is not None:
            settings["env"] = with_kwargs(convert(Play, "env", settings.get("env", self.play.env)), kwargs)
        if "network" in settings:
            settings["network"] = class_name(settings["network"])
        changed = self._with_method(convert(Algorithm, "method", settings.get("method", self.algorithm.method)))
        parts = changed.sections | {OWN_SETTINGS: changed.algorithm.settings}
        homes = {item.name: part for part, section in parts.items() for item in dataclasses.fields(section)}
        del homes[OWN_SETTINGS]
        values: dict[str, dict[str, Any]] = {name: {} for name in parts}
        for name, value in settings.items():
            if name not in homes:
                raise ConfigError(_no_setting(name, homes, changed.algorithm.method))
            values[homes[name]][name] = convert(type(parts[homes[name]]), name, value)
        values["algorithm"][OWN_SETTINGS] = dataclasses.replace(parts.pop(OWN_SETTINGS), **values.pop(OWN_SETTINGS))
        return dataclasses.replace(
            changed, **{name: dataclasses.replace(section, **values[name]) for name, section in parts.items()}
        )

    def _with_method(self, method: str) -> Self:
        """A copy with another method and its default settings; the same configuration where it is that method."""
        if method == self.algorithm.method:
            return self
        algorithm = dataclasses.replace(self.algorithm, method=method, settings=OF_METHOD)
        sections = self.sections | {"algorithm": algorithm}
        declaration = method_declaration(method)
        unused = unused_settings(declaration)
        if declaration.samples_actions:  # a preset's epsilon of evaluation is of greedy actions
            sections["evaluate"] = dataclasses.replace(self.evaluate, eval_epsilon=None)
        for name, section in sections.items():
            defaults = {item.name: item.default for item in dataclasses.fields(section) if item.name in unused}
            sections[name] = dataclasses.replace(section, **defaults)
        return dataclasses.replace(self, **sections)

    @property
    def sections(self) -> dict[str, Any]:
        """The sections by name; a subclass may have more fields."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Config)}

    def digest(self) -> str:
        """SHA-256 (hex) of every setting that the trained weights depend on."""
        return digest_of(self.to_json())

    def experiment(self) -> str:
        """SHA-256 (hex) of the settings that all checkpoints of a run share: as `digest`, without the arithmetic."""
        return digest_of(self.to_json(), ARITHMETIC)


@dataclass(frozen=True, kw_only=True)
class ResolvedEvaluate(Evaluate):
    """`Evaluate` with every default filled in."""

    eval_episodes: Count
    eval_epsilon: Share
    eval_max_frames: Frames
    eval_actions: EvalActions


@dataclass(frozen=True, kw_only=True)
class ResolvedMachine(Machine):
    """`Machine` with every default filled in; the acting ones stay open where they are those of the learner."""

    actors: Count
    learner_parts: Parts
    learner_members: Parts
    inference_threads: Count
    inference_batch: Count


@dataclass(frozen=True, kw_only=True)
class ResolvedRun(Run):
    """`Run` with its directory."""

    run_dir: Path


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(Config):
    """Settings of a run that starts: the same sections, with every default that depends on the machine filled in."""

    evaluate: ResolvedEvaluate
    machine: ResolvedMachine
    run: ResolvedRun

    @classmethod
    def from_config(cls, config: Config) -> ResolvedConfig:
        """A configuration that says everything, as a run directory holds it.

        Raises `ConfigError` when it leaves something open that `shared.config.resolve` fills in.
        """
        kinds = {"evaluate": ResolvedEvaluate, "machine": ResolvedMachine, "run": ResolvedRun}
        sections = config.sections
        for name, kind in kinds.items():
            values = vars(sections[name])
            sections[name] = kind(**{each: convert(kind, each, value) for each, value in values.items()})
        return cls(**sections)


def _no_setting(name: str, known: Mapping[str, str], method: str) -> str:
    """The sentence about a name that is no setting of a method."""
    if methods := methods_with(name):
        return f"{flag_of(name)} is for --method {' and '.join(methods)}; omit it with --method {method}."
    return f"There is no setting {name!r}{nearest(name, known)}"


def _marked(kind: Any) -> dict[str, Any]:
    """Marks of a kind in the types of all settings, by the flat names of the flags."""
    sections = map(type, vars(Config()).values())
    return {name: mark for section in sections for name, mark in marks_of(section, kind).items()}


MAY_CHANGE_ON_RESUME = frozenset(name for name, effect in _marked(Effect).items() if effect is Effect.NONE)
"""Settings that do not touch the numbers of the steps already planned. `init_from` acts only at step 0."""

ARITHMETIC = frozenset(name for name, effect in _marked(Effect).items() if effect is Effect.LAST_BITS)
"""Settings that change only the last bits of numbers. A run that resumes with another value continues, but is no longer
exact."""


def unused_settings(method: MethodDeclaration) -> dict[str, Need]:
    """Settings that have no effect with a method, and what of it they need, by the flat names of the flags."""
    needs = _marked(Need)
    return {name: need for name, need in needs.items() if not method.provides(need) and name not in method.also_uses}


def _names_in(value: Any, path: str = "") -> set[str]:
    """Paths of all values in nested objects; that of an object ends with a slash."""
    if not isinstance(value, dict):
        return {path}
    return {f"{path}/"}.union(*(_names_in(inner, f"{path}/{name!r}") for name, inner in value.items()))


def register_method(declaration: MethodDeclaration) -> None:
    """Add a method to those that --method may name. A second registration of an equal declaration has no effect.

    Raises:
        ConfigError: another method has the name, or a setting of it has the name of one that every run has, or of an
            option of a task that takes settings.
    """
    for item in dataclasses.fields(declaration.settings):
        if item.name in Config().to_flat().keys() | TASK_OPTIONS:
            taken = f"a setting {item.name}, and {flag_of(item.name)} is an option already"
            raise ConfigError(f"The method {declaration.name} has {taken}: rename it.")
    add_method(declaration)
