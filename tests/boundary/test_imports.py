"""The import laws of docs/design.md, read from the source: no module needs to be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("[a-z]*/*.py")}

SHARED_MAY = {"numpy", "safetensors", "zstandard", "setproctitle"}
"""What shared/ may load beside the standard library; setproctitle names a process and brings nothing along."""

MAY_IMPORT = {
    "shared": {"shared"},
    "actors": {"actors", "shared"},
    "learner": {"learner", "shared"},
    "watch": {"watch", "shared"},
    "zoo": {"shared"},
    "spawning": {"shared"},
    "supervisor": {"spawning", "shared"},
    "scope": {"shared"},
    "selftest": {"shared"},
    "agent": {"actors", "learner", "watch", "zoo", "shared"},
    "player": {"agent", "actors", "learner", "watch", "shared"},
    "ringside": {"agent", "supervisor", "actors", "learner", "watch", "zoo", "shared"},
    "doctor": {"ringside", "selftest", "actors", "shared"},
    "benchmarks": {"benchmarks", "tasks", "ringside", "spawning", "actors", "learner", "watch", "shared"},
    "tasks": {"tasks", "benchmarks", "doctor", "scope", "player", "ringside", "agent"}
    | {"actors", "watch", "zoo", "shared"},
    "launch": {"tasks", "shared"},
    "examples": {"ringside"},
}
"""What each folder, or file beside them, may import of ours. Tests may import all, and nobody may import them."""

NEVER = {
    "actors": {"torch"},
    "learner": {"ale_py", "gymnasium"},
    "watch": {"torch", "ale_py"},
}
"""Libraries that a room must not load."""


def imports_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, top-level module) of every import statement, those inside functions and TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports here are absolute"
            yield node.lineno, (node.module or "").split(".")[0]


def offences(room: str, source: str) -> list[str]:
    """What a file of `room` imports although it must not."""
    found = []
    for line, module in imports_of(source):
        stranger = module not in OURS and module not in sys.stdlib_module_names
        if (
            (module in OURS and module not in MAY_IMPORT[room])
            or module in NEVER.get(room, set())
            or (room == "shared" and stranger and module not in SHARED_MAY)
        ):
            found.append(f"line {line}: {module}")
    return found


def test_there_is_a_law_for_everything() -> None:
    assert MAY_IMPORT.keys() | {"tests"} == OURS


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_they_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]
    broken = {str(path.relative_to(ROOT)): offences(room, path.read_text()) for path in files}
    assert not {path: lines for path, lines in broken.items() if lines}


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("actors", "import torch"),
        ("actors", "def f():\n    from torch import nn"),
        ("actors", "from learner import network"),
        ("learner", "import ale_py.roms"),
        ("learner", "import actors.env"),
        ("shared", "import torch"),
        ("shared", "import rich"),
        ("shared", "from watch import scribe"),
        ("watch", "import torch.nn"),
        ("watch", "import supervisor"),
        ("watch", "import selftest"),
        ("ringside", "from tasks import train"),
        ("benchmarks", "from tests.runs import start"),
    ],
)
def test_a_broken_law_is_seen(room: str, line: str) -> None:
    assert offences(room, line)


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in memory after a statement, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["launch", "ringside", "supervisor"])
def test_the_launcher_loads_neither_torch_nor_the_emulator(module: str) -> None:
    assert not loaded_after(f"import {module}") & {"torch", "ale_py", "gymnasium"}


def test_children_import_launch_again_so_it_is_light() -> None:
    assert not loaded_after("import launch") & {"numpy", "rich", "tyro", "multiprocess"}
