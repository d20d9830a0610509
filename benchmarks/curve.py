"""A run's learning curve as a picture: returns of training episodes over steps and over wall-clock time.

python -m benchmarks.curve runs/pong --out docs/pong.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

from shared.config import CONFIG_FILE, METRICS_FILE
from watch.metrics import read_metrics

matplotlib.use("Agg")
from matplotlib import pyplot as plt

MEAN_OVER = 100


def main() -> None:
    """Draw both curves side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    records = list(read_metrics(options.run / METRICS_FILE))
    config = json.loads((options.run / CONFIG_FILE).read_text())
    episodes = [record for record in records if record["kind"] == "episode"]
    rounds = [record for record in records if record["kind"] == "round" and record["mean_return_100"] is not None]
    steps = np.array([record["steps"] for record in episodes])
    seconds = np.interp(steps, [record["steps"] for record in rounds], [record["seconds"] for record in rounds])
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for axis, at, mean_at, label in (
        (axes[0], steps / 1e3, [record["steps"] / 1e3 for record in rounds], "thousand steps (4 frames each)"),
        (axes[1], seconds / 60, [record["seconds"] / 60 for record in rounds], "minutes"),
    ):
        axis.plot(at, [record["return"] for record in episodes], ".", color="#9ab", ms=3, label="episode")
        axis.plot(mean_at, [r["mean_return_100"] for r in rounds], color="#d55e00", lw=2, label=f"mean of {MEAN_OVER}")
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("raw return of training episodes")
    axes[0].legend(loc="upper left")
    play, learn = config["play"], config["learn"]
    figure.suptitle(f"{play['game']}, protocol {play['protocol']}, {learn['schedule']}, seed {config['run']['seed']}")
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
