"""Docstrings and names of tests begin with a noun phrase or an imperative, never with a question word or "Of"."""

import ast
import re
from collections.abc import Iterator

from shared.root import ROOT

PACKAGES = ("actors", "learner", "shared", "ringside", "workers", "tests")
REFUSED = re.compile(r"\s*(What|Whether|Of|How|That|Who|Whose|Whoever|Which|Where|When|Why|Those)\b")
TEST_NAME = re.compile(r"^ *def test_(what|whether|of|how|that|who|whose|which|where|when|why|those|nor)_", re.M)


def refused(source: str) -> Iterator[int]:
    """Lines of the docstrings that begin with a refused word: of modules, classes, functions, and assigned names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if REFUSED.match(text):
                yield node.lineno


def test_docstrings_begin_with_a_noun_phrase_or_an_imperative() -> None:
    files = [ROOT / "launch.py", *(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))]
    found = {f"{path.relative_to(ROOT)}:{line}" for path in files for line in refused(path.read_text())}
    assert not found


def test_each_kind_of_docstring_is_read() -> None:
    source = '"""What."""\nX = 1\n"""Of X."""\nclass A:\n    """Whether."""\n    def f(self):\n        """How so."""\n'
    assert list(refused(source)) == [1, 3, 5, 7]
    assert not list(refused('"""Whatever follows is not the word itself."""'))


def test_names_of_tests_begin_with_their_subject() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert not {name[0]: path for path in files for name in TEST_NAME.finditer(path.read_text())}
