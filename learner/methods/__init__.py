"""Methods, a file each: docs/extending.md says how to add one."""

from __future__ import annotations

import pkgutil


def method_names() -> list[str]:
    """The methods there are, by the names of their files; none of them is imported, since all bring torch along."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))
