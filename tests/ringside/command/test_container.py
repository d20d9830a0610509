"""The Dockerfile, as far as it can be judged without building it."""

import json
import re
import subprocess
import sys
from pathlib import PurePosixPath

from packaging.specifiers import SpecifierSet

from shared.root import ROOT


def instructions() -> list[tuple[str, str]]:
    """Name and words of each instruction of the Dockerfile, its continuations joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, words) for name, words in (line.split(maxsplit=1) for line in joined.splitlines())]


def named(name: str) -> list[str]:
    """The words of all instructions of one name."""
    return [words for each, words in instructions() if each == name]


def test_images_are_public_and_their_python_suits() -> None:
    stages = {words.split(" AS ")[1] for words in named("FROM") if " AS " in words}
    foreign = [words.split()[0] for words in named("FROM") if words.split()[0] not in stages]
    assert (foreign, stages) == (["docker.io/library/python:3.11-slim", "${DEVICE}"], {"cpu", "gpu"})
    assert "DEVICE=cpu" in named("ARG")
    ranges = re.search(r"python_requires = (\S+)", (ROOT / "setup.cfg").read_text())
    assert SpecifierSet(ranges[1]).contains("3.11")


def test_it_installs_what_is_locked_as_the_makefile_does() -> None:
    assert [words for words in named("RUN") if "make install" in words]
    assert "pip install" not in " ".join(named("RUN"))
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^install: ", makefile, re.MULTILINE)
    assert "-r requirements.lock" in makefile


def test_the_code_that_shrinks_frames_is_compiled_in_the_image() -> None:
    """By a line of Python that this checkout has, after the installation."""
    _, python = named("RUN")[-1].split("make install", 1)
    code = re.search(r'\.venv/bin/python -c "(.*)"', python)
    assert code[1].endswith("compile_kernels()")
    subprocess.run([sys.executable, "-c", code[1]], cwd=ROOT, timeout=100, check=True)


def test_it_runs_as_an_ordinary_user_who_owns_its_files() -> None:
    order = [name for name, _ in instructions()]
    assert (named("USER"), order.index("USER") < order.index("COPY")) == (["ringside"], True)
    assert "useradd --create-home --uid 1000 ringside" in named("RUN")[0]
    assert all(words.startswith("--chown=ringside:ringside ") for words in named("COPY"))


def test_copied_files_exist_and_run_files_are_copied() -> None:
    for words in named("COPY"):
        assert all((ROOT / source).exists() for source in words.split()[1:-1])
    python, script = json.loads(named("ENTRYPOINT")[0])
    assert (ROOT / script).is_file()
    venv = re.search(r"^VENV +:= (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert (python, json.loads(named("CMD")[0])) == (f"{venv[1]}/bin/python", ["doctor"])
    assert PurePosixPath(named("VOLUME")[0]) == PurePosixPath(named("WORKDIR")[0]) / "runs"


def test_files_of_this_machine_stay_out() -> None:
    left_out = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()}
    needed = {"launch.py", "requirements.lock", "setup.cfg", "pyproject.toml", "Makefile", "README.md"}
    assert (left_out >= {".git", ".venv", "runs", "__pycache__"}, left_out & needed) == (True, set())
