"""Catalogue of the trained agents in the repository, with a directory each; nothing in it is executed.

`zoo/NAME/` holds `weights.safetensors`, the `summary.json` of the run, `evaluation.json` (the result of
`launch.py eval`) and a `README.md` with the command that trained them. `curve.png` shows its training, `video.mp4`
an episode. `launch.py zoo` lists and adds. The wheel has `pong_ppo` alone, without its video; so it lies in this
package, and a link in the folder zoo of a clone leads to it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from shared.errors import ConfigError
from shared.files.plain_files import exists
from shared.root import IN_A_CLONE, ROOT

ZOO = ROOT / "zoo" if IN_A_CLONE else Path(__file__).parent
WEIGHTS = "weights.safetensors"
EVALUATION = "evaluation.json"
README = "README.md"
CURVE = "curve.png"
VIDEO = "video.mp4"
SHOWN = {CURVE: "![Returns in training](curve.png)", VIDEO: "[An episode](video.mp4)"}
"""Files for people, with the lines of the README that show them; an entry may lack them."""
MOST_BYTES = 10_000_000
"""Largest weights of an entry, so that a clone stays small."""
MOST_SHOWN_BYTES = 4_000_000
"""Largest file for people."""


def name_of_entry(text: str) -> str:
    """Name of an entry that resembles a game, an env or, without its user, a repository of the Hub.

    It has small letters, digits and underscores.
    """
    return re.sub(r"[^a-z0-9]+", "_", text.rpartition("/")[2].lower()).strip("_")


def names() -> tuple[str, ...]:
    """Names of the agents."""
    return tuple(sorted(path.parent.name for path in ZOO.glob(f"*/{WEIGHTS}")))


def hashes() -> dict[str, str]:
    """SHA-256 of the weights of the project's agents, by name. A clone holds them all, a wheel one."""
    sums = Path(__file__).with_name("SHA256SUMS").read_text()
    return {path.partition("/")[0]: digest for digest, path in map(str.split, sums.splitlines())}


def weights_in(zoo: Path, load: str | Path) -> Path:
    """Weights of an agent of the project in another directory. Raises `ConfigError` unless they have its hash."""
    path, digest = zoo / Path(load).name / WEIGHTS, hashes().get(Path(load).name)
    if not os.path.isfile(path) or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise ConfigError(f"--zoo: {path} is missing or has a wrong hash; the agents are {', '.join(hashes())}.")
    return path


def find_weights(load: str | Path, flag: str = "--load") -> Path:
    """Path that a user means by --load, or another flag: an existing path, else a zoo agent `NAME` or `zoo/NAME`.

    Raises `ConfigError` if there is neither.
    """
    path = Path(load)
    if not exists(path):
        name = path.name if path.parts[:-1] in ((), (ZOO.name,)) else ""
        if name not in names():
            lies = f"lies in zoo/ of a clone: pass CLONE/zoo/{name}; play, eval and export also take --zoo CLONE/zoo"
            none = f"does not exist: no such run, checkpoint or weights; the agents in the zoo are {', '.join(names())}"
            raise ConfigError(f"{flag} {load} {lies if name in hashes() else none}.")
        path = ZOO / name
    return path / WEIGHTS if os.path.isfile(path / WEIGHTS) else path
