"""Completion, by the shell itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ringside.command.completion import script
from ringside.zoo import catalogue

CASES = {
    **{"ringside pl": ["play"], "./launch.py comp": ["completion"], "ringside --game po": ["pong", "pooyan"]},
    "ringside --schedule ": ["alternate", "async", "concurrent", "free", "ordered"],
    **{"ringside --proto": ["--protocol"], "ringside --preset rain": ["rainbow"], "ringside train --game frees": []},
    **{"ringside suite --games atari2": ["atari26"], "ringside suite --gam": ["--games"]},
    **{"ringside suite --see": ["--seeds"], "ringside tune --res": [], "ringside play --sc": ["--scale"]},
    **{"./launch.py play --eval-actions gr": ["greedy"], "ringside eval --load ": ["FILES", *catalogue.names()]},
    **{"ringside --total-steps ": [], "ringside report ru": ["FILES"], "ringside --v-mi": ["--v-min"]},
    "./launch.py export space": ["FILES", "space_invaders"],
}

BASH = """
complete() { REGISTERED="$REGISTERED $*"; }
source "$1"
compgen() { if [ "$1" = -f ]; then echo FILES; else builtin compgen "$@"; fi; }
IFS=' ' read -r -a COMP_WORDS <<< "$2"
[[ "$2" == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[[ "$REGISTERED" == *"_shtab_ringside ringside"*"_shtab_ringside launch.py" ]] || exit 1
_shtab_ringside
printf '%s\\n' "${COMPREPLY[@]}"
exit 0
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash."""
    path = tmp_path_factory.mktemp("completion") / "bash"
    path.write_text(script("bash"))
    return path


@pytest.mark.parametrize("line", CASES)
def test_bash_completes(bash_script: Path, line: str) -> None:
    command = ["bash", "-c", BASH, "bash", str(bash_script), line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (sorted(done.stdout.split()), done.stderr) == (CASES[line], "")


def test_zsh_takes_the_script_and_knows_the_same_options(bash_script: Path) -> None:
    text = script("zsh")
    assert set(re.findall(r"--[a-z-]{2,}", bash_script.read_text())) <= set(re.findall(r"--[a-z-]{2,}", text))
    assert "compdef _shtab_ringside launch.py" in text
    if shutil.which("zsh") is not None:
        subprocess.run(["zsh", "-n"], input=text, text=True, timeout=60, check=True)
