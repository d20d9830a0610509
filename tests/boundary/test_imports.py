"""The import rules of docs/design.md, read from the source: no module needs to be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from shared.root import ROOT

TOP = ("actors", "learner", "shared", "ringside", "workers")
"""The packages; `launch.py`, `examples`, `benchmarks` and `tests` stand beside them."""
EXAMPLES = "examples"
BENCHMARKS = "benchmarks"

SHARED_MAY = {"msgspec", "numpy", "psutil", "safetensors", "zstandard", "setproctitle"}
"""Packages that shared/ may load beside the standard library; setproctitle names a process and imports nothing."""

_WORDS = {"shared.errors", "shared.text", "shared.env_name", "shared.frame_shape", "shared.root"}
_FACTS = _WORDS | {"shared.machine", "shared.files"}
_SETTINGS = _FACTS | {"shared.config", "shared.network_spec", "shared.network_parameters"}
_MEMORY = _SETTINGS | {"shared.memory", "shared.prng", "shared.exploration"}
MAY_IMPORT = {
    "shared": _WORDS | {"shared.config"},
    "shared.machine": _WORDS,
    "shared.files": _FACTS,
    "shared.config": _SETTINGS,
    "shared.memory": _MEMORY,
    "shared.memory.layout": _WORDS | {"shared.memory.sequence"},
    "shared.memory.sequence": _WORDS,
    "shared.memory.arena": _WORDS | {"shared.memory.layout"},
    "shared.checkpoint": _MEMORY | {"shared.checkpoint"},
    "shared.process": _MEMORY | {"shared.checkpoint", "shared.process"},
    "actors": {"actors"} | _MEMORY | {"shared.process"},
    "learner": {"learner"} | _MEMORY | {"shared.process"},
    "workers": {"workers", "actors", "learner"} | _MEMORY | {"shared.process"},
    "ringside.zoo": {"shared"},
    "ringside.records": {"shared"},
    "ringside.watch": {"shared", "ringside.records"},
    "ringside.report": {"shared", "ringside.records"},
    "ringside.run": {"shared", "actors"}
    | {"ringside.records", "ringside.run.supervisor", "ringside.watch", "ringside.zoo"},
    "ringside.run.supervisor": {"shared", "ringside.run"},
    "ringside.cluster": {"shared", "ringside.run"},
    "ringside.agents": {"shared", "actors", "learner"}
    | {"ringside.records", "ringside.report", "ringside.run", "ringside.zoo"},
    "ringside.command": {"shared", "actors", "ringside"},
    "ringside": {"shared", "ringside.agents", "ringside.command", "ringside.run"},
    "launch": {"shared", "ringside.command"},
    EXAMPLES: {"ringside"},
    BENCHMARKS: {"shared", "actors", "learner", "ringside"},
}
"""Our modules that each folder, or file beside them, may import; always itself. The deepest folder decides."""

NEVER = {"actors": {"torch"}, "learner": {"ale_py", "gymnasium"}}
NEVER |= {f"ringside.{room}": {"torch", "ale_py"} for room in ("records", "watch", "report", "run", "cluster")}
"""Libraries that a package must not load."""
OF_CLUSTER = {"ray", "grpc"}
"""Libraries that `ringside.cluster` alone may load."""


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ours() -> list[Path]:
    """Every Python file but the tests."""
    found = [path for top in (*TOP, EXAMPLES, BENCHMARKS) for path in (ROOT / top).rglob("*.py")]
    return sorted([*found, ROOT / "launch.py"])


def within(module: str, package: str) -> bool:
    """True if a module is a package or lies in it."""
    return module == package or module.startswith(f"{package}.")


def package_of(module: str) -> str:
    """The deepest package with a rule; empty for tests, which have none."""
    return max((package for package in MAY_IMPORT if within(module, package)), key=len, default="")


def imports_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement, those inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports here are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES else node.module or ""


def offences(module: str, source: str) -> list[str]:
    """Imports of a module that its rule forbids."""
    package = package_of(module)
    found = []
    for line, name in imports_of(source):
        top = name.partition(".")[0]
        if top in (*TOP, BENCHMARKS, "launch", "tests"):
            allowed = package_of(name) == package or any(within(name, other) for other in MAY_IMPORT[package])
            broken = top in ("launch", "tests") or not allowed
        else:
            stranger = top not in sys.stdlib_module_names
            banned = next((NEVER[above] for above in NEVER if within(module, above)), set())
            foreign = top in OF_CLUSTER and not within(module, "ringside.cluster")
            broken = foreign or top in banned or (within(module, "shared") and stranger and top not in SHARED_MAY)
        found += [f"line {line}: {name}"] * broken
    return found


MODULES = {module_of(path) for path in ours()}


def test_every_file_has_a_package() -> None:
    assert all(any(within(module, package) for package in MAY_IMPORT) for module in MODULES)
    assert {path.name for path in ROOT.glob("*.py")} == {"launch.py"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_they_may(package: str) -> None:
    files = [path for path in ours() if package_of(module_of(path)) == package]
    assert files
    broken = {module_of(path): offences(module_of(path), path.read_text()) for path in files}
    assert not {module: lines for module, lines in broken.items() if lines}


BROKEN = [
    ("actors.lane", "import torch"),
    ("actors.envs.atari", "def f():\n    from torch import nn"),
    ("actors.lane", "from learner import inference"),
    ("actors.lane", "from shared.checkpoint import manifest"),
    ("learner.learner", "import ale_py.roms"),
    ("learner.engine.engine", "import actors.env"),
    ("learner.learner", "from shared.checkpoint.manifest import read_manifest"),
    ("shared.errors", "import torch"),
    ("shared.text", "import rich"),
    ("shared.memory.board", "from ringside.records import scribe"),
    ("shared.machine.facts", "from shared.config.settings import Config"),
    ("shared.files.atomic", "from shared.config import settings"),
    ("shared.config.validate", "from shared.memory.ring import ring_fields"),
    ("shared.memory.ring", "from shared.checkpoint import manifest"),
    ("shared.memory.layout", "from shared.memory.board import Board"),
    ("shared.checkpoint.manifest", "from shared.process import child"),
    ("ringside.records.scribe", "import torch.nn"),
    ("ringside.records.scribe", "from ringside.watch import status"),
    ("ringside.records.metrics", "import ale_py"),
    ("ringside.watch.server", "from ringside.run import supervisor"),
    ("ringside.report.plots", "from ringside.watch import status"),
    ("ringside.run.supervisor", "from ringside.records import scribe"),
    ("ringside.run.planning", "from ringside.command import train"),
    ("benchmarks.limits", "from tests.support.runs import start"),
    ("ringside.zoo.catalogue", "from learner import inference"),
    ("launch", "from ringside.agents import agent"),
    ("ringside.command.suite", "import ray"),
    ("ringside.run.supervisor", "def f():\n    from ray import exceptions"),
    ("ringside.cluster.node_object", "import torch"),
    ("ringside.cluster.node_object", "from ringside.command import suite"),
]


@pytest.mark.parametrize(("module", "line"), BROKEN)
def test_a_broken_law_is_seen(module: str, line: str) -> None:
    assert offences(module, line)


def test_no_two_files_have_one_name() -> None:
    names = [path.name for path in ours() if path.name != "__init__.py" and EXAMPLES not in path.parts]
    assert sorted(names) == sorted(set(names))


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions count; those of a package's own `__init__` are names that it offers."""
    graph = {module_of(path): {name for _, name in imports_of(path.read_text())} & MODULES for path in ours()}
    graph = {module: found - {"ringside"} for module, found in graph.items()} | {"ringside": set()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in memory after a statement, in a fresh interpreter."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True, timeout=60).split())


EMULATOR_AND_TORCH = {"torch", "ale_py", "gymnasium", "matplotlib", "tensorflow"}
LOADED = [
    ("launch", {"numpy", "rich", "multiprocess"} | EMULATOR_AND_TORCH),  # children import it again
    ("ringside", {"numpy", "rich", "multiprocess"} | EMULATOR_AND_TORCH),
    ("ringside.run.planning, ringside.run.training", EMULATOR_AND_TORCH),
    ("ringside.agents.evaluating", EMULATOR_AND_TORCH),
    ("ringside.records.scribe", EMULATOR_AND_TORCH),
    ("ringside.command.suite, ringside.command.train, ringside.watch.display, ringside.run.training", OF_CLUSTER),
]


@pytest.mark.parametrize(("modules", "foreign"), LOADED)
def test_modules_load_nothing_of_weight_that_they_do_not_need(modules: str, foreign: set[str]) -> None:
    assert not loaded_after(f"import {modules}") & foreign


def test_help_is_shown_before_anything_of_weight_is_loaded() -> None:
    loaded = loaded_after("import launch\ntry: launch.main(['--help'])\nexcept SystemExit: pass")
    assert "argparse" in loaded
    assert not loaded & {"numpy", "rich", "multiprocess", "torch", "ale_py", "gymnasium", "numba"}
