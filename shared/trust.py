"""What a file may name for execution: nothing but code of the user's own."""

from __future__ import annotations

import site
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

from shared.config import ConfigError


def is_own(env: str) -> bool:
    """Whether an env `module:factory`, or `module:Id-v0`, which imports the module, is code of the user's own.

    Own is what Python finds outside of the standard library and of what is installed; nothing is imported to see it. A
    Gymnasium id without a module may be named by anybody.
    """
    module, colon, _ = env.partition(":")
    if not colon:
        return True
    top = module.partition(".")[0]
    spec = None if top in sys.builtin_module_names else PathFinder.find_spec(top)
    found = [] if spec is None else [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    theirs = [Path(place).resolve() for place in installed]
    return bool(found) and not any(Path(place).resolve().is_relative_to(path) for place in found for path in theirs)


def require_own(env: str, said_by: str, *, advice: str) -> None:
    """Refuse an env that a file names unless it is the user's own.

    Whoever passes a checkpoint on could else have any function of any installed library called.

    Args:
        env: as in `--env`.
        said_by: the file, for the sentence.
        advice: what to do for an env that is trusted.

    Raises:
        ConfigError: it is not.
    """
    if not is_own(env):
        raise ConfigError(
            f"{said_by} names the env {env!r}, which is not in a module of your own: a file may not choose which "
            f"function of a library is called. If you trust it, {advice}."
        )
