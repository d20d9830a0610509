"""The task `export`: a trained agent as an ONNX file, for programs without Ringside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.agents.onnx_export import CHECKED_FRAMES, export_onnx
from ringside.command.arguments import AgentOptions, parse
from shared.text import printable


@dataclass(frozen=True, kw_only=True)
class Options(AgentOptions):
    """Write a trained agent as an ONNX file, for programs without Ringside. Before that, onnxruntime must give the
    agent's numbers on frames that the agent plays."""

    onnx: Path
    """File to write."""
    frames: int = CHECKED_FRAMES
    """Observations on which onnxruntime must give the agent's numbers, rounded up to eights; the agent plays them."""
    seed: int = 1
    """Seed of that play."""


def main(arguments: Sequence[str]) -> int:
    """Export an agent."""
    options = parse(Options, arguments, "export")
    done = export_onnx(options.load, options.onnx, frames=options.frames, seed=options.seed, **options.named)
    print(
        printable(
            f"{done.path}: {done.bytes / 1e6:.1f} MB. On {done.frames} observations onnxruntime differs by "
            f"{done.difference:.1e} at most, of numbers up to {done.greatest:.3g}, and chooses the same action in "
            f"{100 * done.same_actions:.4g}%."
        )
    )
    return 0
