"""What a file may name for execution: nothing but code of the user's own."""

from __future__ import annotations

import site
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

from shared.config import ConfigError


def require_own(env: str, said_by: str) -> None:
    """Refuse an env `module:factory` that a file names unless the module is the user's own.

    Whoever passes a checkpoint on could else have any function of any installed library called. Own is what Python
    finds outside of the standard library and of what is installed; nothing is imported to see it. A Gymnasium id has
    no colon.

    Args:
        env: as in `--env`.
        said_by: the file, for the sentence.

    Raises:
        ConfigError: it is not.
    """
    module, colon, _ = env.partition(":")
    if not colon:
        return
    top = module.partition(".")[0]
    spec = None if top in sys.builtin_module_names else PathFinder.find_spec(top)
    found = [] if spec is None else [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    theirs = [Path(place).resolve() for place in installed]
    if not found or any(Path(place).resolve().is_relative_to(path) for place in found for path in theirs):
        raise ConfigError(
            f"{said_by} names the env {env!r}, which is no code of your own: a file may not choose what is called. If "
            f"you trust it, begin a new run with --env {env} --init-from, or wrap the env in a module of yours."
        )
