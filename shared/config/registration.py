"""Registration of methods by plug-ins, and the names that their settings may not have."""

from __future__ import annotations

from dataclasses import fields

from shared.config.method_declaration import MethodDeclaration, add_method
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.text import flag_of

TASK_OPTIONS = frozenset(
    {"preset", "config", "env_kwargs", "cgroup", "cpus", "memory", "games", "seeds", "out", "final_episodes", "json"}
    | {"ray", "ray_insecure", "nodes", "head_plays", "mixed_numerics", "cpus_per_run", "gpus_per_run"}
    | {"trials", "space", "prune"}
)
"""Options of the tasks that take settings of runs, too (train, suite, tune, doctor); no setting of a method may
be called so, since it would have the same flag."""


def register_method(declaration: MethodDeclaration) -> None:
    """Add a method to those that --method may name. A second registration of an equal declaration has no effect.

    Raises:
        ConfigError: another method has the name, or a setting of it has the name of one that every run has, or of an
            option of a task that takes settings.
    """
    names = [item.name for item in fields(declaration.settings)]
    for name in names:
        if name in Config().to_flat():
            raise ConfigError(f"The method {declaration.name} has a setting {name}, as every run has: rename it.")
        if name in TASK_OPTIONS:
            raise ConfigError(
                f"The method {declaration.name} has a setting {name}, and {flag_of(name)} is an option of the command: "
                "rename it."
            )
    add_method(declaration)
