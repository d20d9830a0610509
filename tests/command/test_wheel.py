"""The wheel, installed away from the repository: every module, every data file, the console script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared.root import ROOT

PACKAGES = ("actors", "learner", "shared", "ringside", "workers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy, since a build writes beside its sources."""
    directory = tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / "source" / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("launch.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, directory / "source")
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, directory / "source")
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True, timeout=100)
    (built,) = directory.glob("*.whl")
    return built


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    files = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    expected = {str(file) for file in files if "__pycache__" not in file.parts and file != Path("shared/README.md")}
    with zipfile.ZipFile(wheel) as archive:
        assert expected | {"launch.py"} <= set(archive.namelist())


def test_it_works_beside_files_of_a_user_with_names_like_ours(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    for name in ("agent", "play", "watch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user was imported')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": ""}

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import ringside, ringside.run.planning; print(ringside.__file__); print(ringside.train.__name__)"
    assert python("-c", where).split() == [str(tmp_path / "site/ringside/__init__.py"), "train"]
    assert "--total-steps" in python("-c", "import launch; launch.cli()", "--help")
    # -S: without the packages that the wheel requires
    words = [sys.executable, "-S", "-c", "import launch; launch.cli()", "--help"]
    bare = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert bare.returncode == 2
    assert bare.stderr.endswith(f"is not installed for {sys.executable}. Run pip check, and install what it names.\n")
