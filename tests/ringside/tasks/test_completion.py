"""Completion, by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ringside.tasks import TASKS, module_of
from ringside.tasks.completion import script
from ringside.zoo import catalogue

CASES = {
    "ringside pl": ["play"],
    "./launch.py comp": ["completion"],
    "python launch.py comp": ["completion"],
    "python .venv/launch.py --game po": ["pong", "pooyan"],
    "ringside --schedule ": ["alternate", "async", "concurrent", "free", "ordered"],
    "ringside --proto": ["--protocol"],
    "ringside --preset rain": ["rainbow"],
    "ringside train --game frees": [],
    "ringside suite --games atari2": ["atari26"],
    "ringside suite --gam": ["--games"],
    "ringside suite --see": ["--seeds"],
    "ringside tune --res": [],
    "ringside play --sc": ["--scale", "--screen"],
    "./launch.py play --screen w": ["window"],
    "ringside bench sca": ["scaling"],
    "ringside bench limits --rep": ["--repeats"],
    "ringside eval --load ": ["FILES", *catalogue.names()],
    "ringside --total-steps ": [],
    "ringside report ru": ["FILES"],
    "ringside --v-mi": ["--v-min"],
    "python other.py --ga": [],
}
FALLS_BACK = "python other.py --ga"
"""Line of another program, for which zsh offers files and bash what it would without us."""

BASH = """
complete() { REGISTERED="$REGISTERED $*"; }
source "$1"
compgen() { if [ "$1" = -f ]; then echo FILES; else builtin compgen "$@"; fi; }
IFS=' ' read -r -a COMP_WORDS <<< "$2"
[[ "$2" == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[[ "$REGISTERED " == *"_ringside launch.py ringside "* ]] || exit 1
if [ "${COMP_WORDS[0]}" = python ]; then _ringside_python; else _ringside; fi
printf '%s\\n' "${COMPREPLY[@]}"
exit 0
"""

ZSH = """
compdef() { REGISTERED="$REGISTERED $*" }
compadd() { shift; for each in "$@"; do [[ "$each" == "$words[CURRENT]"* ]] && print -l -- "$each"; done; return 0 }
_files() { print FILES }
source "$1"
words=(${=2})
[[ "$2" == *' ' ]] && words+=("")
CURRENT=${#words}
[[ "$REGISTERED " == *"_ringside launch.py ringside "* ]] || exit 1
if [ "$words[1]" = python ]; then _ringside_python; else _ringside; fi
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the script of each shell."""
    directory = tmp_path_factory.mktemp("completion")
    (directory / "bash").write_text(script("bash"))
    (directory / "zsh").write_text(script("zsh"))
    return directory


@pytest.mark.parametrize("line", CASES)
@pytest.mark.parametrize(("shell", "program"), [("bash", BASH), ("zsh", ZSH)])
def test_the_shell_completes(scripts: Path, shell: str, program: str, line: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run(
        [shell, "-c", program, shell, str(scripts / shell), line],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = ["FILES"] if (shell, line) == ("zsh", FALLS_BACK) else CASES[line]
    assert (sorted(done.stdout.split()), done.stderr) == (expected, "")


def test_every_task_has_options() -> None:
    for task in TASKS:
        if task not in ("train", "bench"):  # the first is there without a word, the second has words of its own
            assert isinstance(module_of(task).OPTIONS, type)
