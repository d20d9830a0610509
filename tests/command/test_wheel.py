"""The wheel away from the repository, and the console script from any directory."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared.root import ROOT
from tests.command.conftest import SCRIPT

PACKAGES = ("actors", "learner", "shared", "ringside", "workers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy, since a build writes beside its sources."""
    directory = tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / "ringside" / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("launch.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, directory / "ringside")
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, directory / "ringside")
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True, timeout=100)
    (built,) = directory.glob("*.whl")
    return built


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    files = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    files -= {Path("shared/README.md"), Path("ringside/zoo/pong_ppo/video.mp4")}
    expected = {"launch.py", *(str(file) for file in files if "__pycache__" not in file.parts)}
    assert wheel.stat().st_size < 5e6
    with zipfile.ZipFile(wheel) as archive:
        assert expected == {name for name in archive.namelist() if ".dist-info/" not in name}


def test_an_editable_installation_is_found_from_the_folder_that_holds_the_clone(wheel: Path) -> None:
    backend = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_editable('..')"]
    subprocess.run(backend, cwd=wheel.parent / "ringside", check=True, capture_output=True, timeout=60)
    shutil.unpack_archive(next(wheel.parent.glob("*editable*")), wheel.parent, "zip")
    where = [sys.executable, "-S", "-c", "import site; site.addsitedir('.'); import ringside; print(ringside.__file__)"]
    found = subprocess.check_output(where, cwd=wheel.parent, env=os.environ | {"PYTHONPATH": ""}, text=True, timeout=60)
    assert found == f"{wheel.parent}/ringside/ringside/__init__.py\n"


def test_it_works_beside_files_of_a_user_with_names_like_ours(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    for name in ("agent", "play", "watch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user was imported')\n")
    (tmp_path / "shared").mkdir()  # a folder without __init__.py comes after packages
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": ""}

    def python(*words: str) -> str:
        return subprocess.check_output([sys.executable, *words], cwd=tmp_path, env=environment, text=True, timeout=60)

    where = "import ringside, ringside.run.planning; print(ringside.__file__); print(ringside.train.__name__)"
    assert python("-c", where).split() == [str(tmp_path / "site/ringside/__init__.py"), "train"]
    assert "--total-steps" in python("-c", "import launch; launch.cli()", "--help")
    # -S: without the packages that the wheel requires
    words = [sys.executable, "-S", "-c", "import launch; launch.cli()", "--help"]
    bare = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert bare.returncode == 2
    assert bare.stderr.endswith(f"is not installed for {sys.executable}. Run pip check, and install what it names.\n")


HIDING = [("shared", "shared/__init__.py"), ("actors", "actors.py"), ("learner", "learner.py")]


@pytest.mark.parametrize(("package", "file"), HIDING)
def test_a_module_of_the_user_that_hides_ours_is_named_in_one_sentence(tmp_path: Path, package: str, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    says = f"{tmp_path / file} hides the package {package} of Ringside: rename it, or move it away.\n"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for command in ([sys.executable, "-c", "import ringside; ringside.Config"], [str(SCRIPT), "--help"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", says)
