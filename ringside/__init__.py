"""Ringside from Python: the same as the command line.

    import ringside

    if __name__ == "__main__":  # processes are spawned, and each imports the main module again
        summary = ringside.train(game="pong", preset="quick", actors=4)

Settings have the flat names of the flags (`--total-steps` is `total_steps`). A wrong setting raises `ConfigError`
before anything starts. Names are resolved when they are used: the import itself loads no library.

Read run/, records/ and watch/ in this order, then agents/, report/, command/ and cluster/; zoo/ lists agents.
"""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("actors", "learner", "shared", "workers")
"""Other packages of this project."""


def _require_own_packages() -> None:
    """Exit with an error if a module of the user shadows one of these packages."""
    for name in _PACKAGES:
        spec = find_spec(name)
        own = _ROOT / name / "__init__.py"
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() != own and own.exists():
            raise SystemExit(f"{spec.origin} hides the package {name} of Ringside: rename it, or move it away.")


_require_own_packages()

_API = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
_HOME = {each.name: node.module for node in _API.body if isinstance(node, ast.ImportFrom) for each in node.names}
"""Modules of the names of the API. Each is imported at its first use, so a plug-in loads only what it names."""
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ringside' has no attribute {name!r}")
