"""The size of the house: lines of code by room, words, folders, functions and dependencies within their budgets.

A line of code holds code: no docstring, comment or blank line. Files in other languages count by their lines with text.
A change that needs more lines says what it takes away elsewhere. Budgets only fall.
"""

import ast
import io
import statistics
import tokenize
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

from shared.root import ROOT

LINES = {
    "launch.py": 80,
    "actors": 1_500,
    "learner": 4_330,
    "workers": 470,
    "shared": 5_050,
    "ringside": 8_700,
    "benchmarks": 2_050,
    "examples": 50,
    "tests": 24_950,
}
"""Most lines of code of each room."""
HOUSE = 22_160
"""Most lines of code of the product, which is all rooms but the tests."""
PAGE = 1_000
"""Most lines of the page in the browser; no other room has a file in another language."""
WORDS = 18_000
"""Most words of docs/, without the lab."""
FOLDERS = 34
DEPENDENCIES = 14
LONGEST_FUNCTION, MEDIAN_FUNCTION = 56, 4

OTHER_LANGUAGES = {".js", ".css", ".html", ".c", ".cpp"}
_NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}


def _files(room: str) -> list[Path]:
    top = ROOT / room
    return [top] if top.is_file() else sorted(top.rglob("*.py"))


@cache
def lines_with_code(source: str) -> set[int]:
    """Numbers of the lines that hold code."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found - texts


def _count(room: str) -> int:
    return sum(len(lines_with_code(path.read_text())) for path in _files(room))


PRODUCT = [room for room in LINES if room != "tests"]


@pytest.mark.parametrize("room", LINES)
def test_a_room_is_within_its_budget(room: str) -> None:
    assert _count(room) <= LINES[room]


def test_the_house_is_within_its_budget() -> None:
    assert sum(map(_count, PRODUCT)) <= HOUSE
    folders = {path.parent for room in PRODUCT if room != "examples" for path in _files(room)}
    assert len(folders) <= FOLDERS
    assert sum(len(path.read_text().split()) for path in (ROOT / "docs").glob("*.md")) <= WORDS


def test_other_languages_stay_in_the_page() -> None:
    found = [path for room in LINES for path in (ROOT / room).rglob("*") if path.suffix in OTHER_LANGUAGES]
    assert {path.relative_to(ROOT).parts[1] for path in found} <= {"watch", "report"}
    assert sum(bool(line.strip()) for path in found for line in path.read_text().splitlines()) <= PAGE


def test_functions_are_short() -> None:
    lengths = []
    for path in (path for room in PRODUCT for path in _files(room)):
        source = path.read_text()
        lines = lines_with_code(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
                lengths.append((len(lines.intersection(body)), f"{path}:{node.lineno} {node.name}"))
    assert max(lengths)[0] <= LONGEST_FUNCTION, max(lengths)
    assert statistics.median(length for length, _ in lengths) <= MEDIAN_FUNCTION


def test_required_packages_are_few() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert len(setup["options"]["install_requires"].split()) <= DEPENDENCIES
