"""Every link, file, module and option that a document names exists."""

import re
from importlib import import_module

import pytest

from benchmarks.__main__ import BENCHMARKS, make_parser
from ringside.command import completion
from shared.config.settings import MAY_CHANGE_ON_RESUME
from shared.root import ROOT
from shared.text import flag_of

TOP = ("actors", "benchmarks", "docs", "examples", "learner", "ringside", "shared", "tests", "workers")
PATTERNS = ("*.md", "docs/**/*.md", "shared/**/*.md", "ringside/**/*.md", "zoo/**/*.md")
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern))
PRESENT = [document for document in DOCUMENTS if not document.startswith(("docs/lab/", "CHANGELOG"))]
"""Documents without those of the past, which may name files and options that are gone."""
SOURCES = sorted(path for top in TOP for path in (ROOT / top).rglob("*.py"))

IMAGINED = {"learner/methods/log_cosh.py"}
"""Files that a reader of docs/extending.md writes."""

FOREIGN = {"--cpuset-cpus", "--gpus", "--shm-size", "--prioritised", "--layer-norm", "--sharpness"}
FOREIGN |= {"--lr", "--num-envs", "--gamma", "--version", "--user", "--scope"}
"""Options of other programs and libraries, the former names that CHANGELOG.md mentions, the option of the plug-in that
docs/extending.md shows, and the one that stands in place of a task."""

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
FILE = re.compile(rf"(?<![\w./~-])(?:{'|'.join(TOP)})/[\w./-]*\w")
MODULE = re.compile(rf"(?<![\w./-])(?:{'|'.join(TOP)})(?:\.\w+)+")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
SPAN = re.compile(r"`(?:python launch\.py|launch\.py|python -m benchmarks|make|--)[^`]*`")
COMMAND = re.compile(r"^    .*(?:launch\.py|-m benchmarks|make run).*$", re.MULTILINE)


@pytest.fixture(scope="module")
def options() -> set[str]:
    """Every option of every task and benchmark."""
    parsers = [make_parser(name, import_module(f"benchmarks.{name}")) for name in BENCHMARKS]
    return set(FLAG.findall(completion.script("bash") + "".join(parser.format_help() for parser in parsers)))


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _module_exists(name: str) -> bool:
    """True if the first two parts are a module, a package or a name of the Python API."""
    top, part = name.split(".")[:2]
    names = "".join(path.read_text() for path in (ROOT / top).glob("__init__.py*"))
    return (ROOT / top / part).is_dir() or (ROOT / top / f"{part}.py").is_file() or part in names


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    broken = []
    for pair in LINK.findall(path.read_text()):
        link = "".join(pair)
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", PRESENT)
def test_files_and_modules_that_are_named_exist(document: str) -> None:
    text, beside = (ROOT / document).read_text(), (ROOT / document).parent
    files = set(FILE.findall(text)) - IMAGINED
    missing = [name for name in files if not (ROOT / name).exists() and not (beside / name).exists()]
    missing += [name for name in set(MODULE.findall(text)) if not _module_exists(name)]
    assert sorted(missing) == []


@pytest.mark.parametrize("document", PRESENT)
def test_options_that_are_named_exist(document: str, options: set[str]) -> None:
    text = (ROOT / document).read_text()
    named = set(FLAG.findall("\n".join(SPAN.findall(text) + COMMAND.findall(text))))
    assert sorted(named - options - FOREIGN) == []


def test_settings_that_may_change_on_a_resume_are_named() -> None:
    text = (ROOT / "docs/reliability.md").read_text()
    # --plugin must be the same; --resume names the run, and --init-from begins another.
    settings = MAY_CHANGE_ON_RESUME - {"plugin", "resume", "init_from"}
    paragraphs = [set(FLAG.findall(part)) for part in re.split(r"\n\n|\n\|", text)]
    assert any(paragraph >= set(map(flag_of, settings)) for paragraph in paragraphs)


def test_files_that_the_code_names_exist() -> None:
    named = {(name, path) for path in SOURCES for name in FILE.findall(path.read_text())}
    assert named
    missing = [(name, path.name) for name, path in named if name not in IMAGINED and not (ROOT / name).exists()]
    assert sorted(missing) == []


def test_the_design_draws_the_folders_that_exist() -> None:
    (tree,) = re.findall(r"^    launch\.py .*\n(?:    .*\n)+", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
    room, drawn = "", set()
    for line in tree.splitlines()[1:]:
        head = re.split(r"\s{2,}(?![\w/]+/\s)", line.strip())[0]
        folders = re.findall(r"([\w/]+)/(?=\s|$)", head)
        if not line.startswith("      "):
            room = folders[0]
        drawn |= {room, *(f"{room}/{name}" for name in folders if name != room)}
    inside = ("shared", "ringside")
    there = {f"{top}/{path.parent.name}" for top in inside for path in (ROOT / top).glob("*/__init__.py")}
    assert {name for name in drawn if name.startswith(inside) and "/" in name} == there
    assert sorted(name for name in drawn if not (ROOT / name).is_dir()) == []
