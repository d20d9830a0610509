"""Ringside beside Stable-Baselines3's DQN: the same game, batch and ratio, on this machine, in one call.

    python -m benchmarks.peers --game breakout --seconds 60 --repeats 3 --json benchmarks/results/peers.json

The peer is installed into an environment of its own (`.venv-peers`) and measured with one thread and with as many as
there are cores; its better setting counts. Ringside is measured as a user gets it, and in fp32. Measurements alternate,
so that a machine that changes its pace changes it for all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import venv
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.runs import ROOT, measure
from shared import machine

PEERS = ROOT / ".venv-peers"
PEER_PACKAGES = ("stable-baselines3==2.9.2", "ale-py", "gymnasium", "opencv-python-headless")


def peer_python() -> Path:
    """The interpreter of the peers' environment, made and filled when it is not there."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        venv.create(PEERS, with_pip=True)
        torch = next(
            line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("torch==")
        )
        for packages in ((torch,), PEER_PACKAGES):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def peer_speed(python: Path, game: str, threads: int, steps: int) -> float:
    """Steps/s of the peer."""
    name = "".join(part.capitalize() for part in game.split("_"))
    script = str(ROOT / "benchmarks" / "peer_sb3.py")
    done = subprocess.run(
        [python, script, "--game", name, "--threads", str(threads), "--steps", str(steps)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def main() -> None:
    """Measure everybody in turn, several times; print a table with medians and spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--seconds", type=float, default=60.0, help="of one measurement of Ringside")
    parser.add_argument("--peer-steps", type=int, default=4_000, help="of one measurement of the peer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("words", nargs="*", help="further flags of launch.py, after --")
    options = parser.parse_args()
    python, cores = peer_python(), machine.usable_cores()
    figures: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for threads in sorted({1, cores}):
            speed = peer_speed(python, options.game, threads, options.peer_steps)
            figures.setdefault(f"Stable-Baselines3 DQN, {threads} thread(s)", []).append(speed)
        for label, words in (("Ringside", []), ("Ringside, fp32", ["--precision", "fp32"])):
            speed = measure(options.game, options.seconds, [*words, *options.words]).steps_per_second
            figures.setdefault(label, []).append(speed)
    medians = {label: statistics.median(speeds) for label, speeds in figures.items()}
    peer = max(value for label, value in medians.items() if label.startswith("Stable"))
    table = Table("", "steps/s, median", "least", "most", "ratio to the peer's best", title=f"DQN on {options.game}")
    for label, speeds in figures.items():
        row = (medians[label], min(speeds), max(speeds))
        table.add_row(label, *(f"{value:.0f}" for value in row), f"{medians[label] / peer:.2f}")
    Console().print(table)
    if options.json:
        result = {
            "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
            "game": options.game,
            "steps_per_second": figures,
        }
        options.json.write_text(json.dumps(result | {"machine": machine.describe()}, indent=1))


if __name__ == "__main__":
    main()
