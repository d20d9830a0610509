"""Export of an agent as an ONNX file, checked against the agent itself on frames that it has played."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actors.evaluation import Evaluation
from actors.make_env import action_names
from ringside.agents.evaluation_policy import EvaluationPolicy, make_evaluation_policy
from ringside.agents.stored_weights import play_of, require_actions, rules_of, weights_at
from shared.checkpoint.weights_file import StoredWeights
from shared.config.checks import validate
from shared.config.sections import Play
from shared.errors import ConfigError, missing_package
from shared.files.result_files import require_writable

CHECKED_FRAMES = 256
"""Observations on which the two are compared."""
MOST_FRAMES = 100_000
"""Bound of `--frames`: that many observations take 2.8 GB."""
BATCH = 8
TOLERANCE = 1e-3
"""Greatest difference that rounding explains, relative to the greatest number."""


@dataclass(frozen=True)
class Exported:
    """An ONNX file, and its check."""

    path: Path
    bytes: int
    frames: int
    """Observations that were compared."""
    difference: float
    """Greatest difference of an output."""
    greatest: float
    """Greatest output."""
    same_actions: float
    """Share of observations with the same best action."""


def export_onnx(
    load: str | Path,
    onnx: str | Path,
    *,
    env: str | None = None,
    plugin: str | None = None,
    frames: int = CHECKED_FRAMES,
    seed: int = 1,
) -> Exported:
    """Write an agent as an ONNX file, after onnxruntime has given the agent's numbers on frames of its env.

    Args:
        load: a run directory, a checkpoint, a file of weights or the name of an agent in the zoo.
        onnx: file to write.
        env, plugin: as for `ringside.evaluate`.
        frames: observations to compare, rounded up to whole batches of eight; the agent plays them.

    Raises:
        ConfigError: a package is missing, there is no such agent, or the numbers differ.
    """
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            raise missing_package("export", package, "export")
    validate.require_between("--frames", frames, MOST_FRAMES)
    validate.seed_of_play(seed)
    path = Path(onnx)
    require_writable("--onnx", path, replaces=True, beside=Path(load))
    from ringside.sharing.onnx_graph import make_onnx, run_onnx

    weights = weights_at(load, env, plugin)
    play = play_of(weights)
    require_actions(weights, play)
    model = make_onnx(weights, _about(weights, play))
    network = make_evaluation_policy(weights, "cpu", BATCH, captured=False, wanted="fp32")
    evaluation, steps = Evaluation(play, rules_of(weights, play), seed, 0), -(-frames // BATCH) * BATCH
    stacks, states = _played(evaluation, network, steps)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(model.SerializeToString())
        batches = zip(np.split(stacks, steps // BATCH), np.split(states, steps // BATCH), strict=True)
        ours = np.concatenate([network.policy.values(*rows) for rows in batches])
        theirs = run_onnx(str(part), stacks, states if weights.network.recurrent else None)[0]
        found = _compared(path, part.stat().st_size, ours, theirs)
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"--onnx {path} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return found


def _about(weights: StoredWeights, play: Play) -> dict[str, str]:
    """Metadata of the file."""
    seen = play.frames
    return {
        "game": weights.game,
        "protocol": weights.protocol,
        "method": weights.network.method,
        "actions": json.dumps(action_names(play)),
        "observation": f"uint8[n, {', '.join(map(str, seen.observation))}]: the newest {seen}, oldest first",
    }


def _compared(path: Path, size: int, ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> Exported:
    """Outputs of the agent and of onnxruntime side by side. Raises `ConfigError` if rounding does not explain it."""
    difference, greatest = float(np.abs(ours - theirs).max()), float(np.abs(ours).max())
    if not difference <= TOLERANCE * max(1.0, greatest):
        raise ConfigError(
            f"onnxruntime gives other numbers than the agent, by {difference:.3g} of {greatest:.3g}: {path} was not "
            "written."
        )
    same = float((ours.argmax(1) == theirs.argmax(1)).mean())
    return Exported(path, size, len(ours), difference, greatest, same)


def _played(
    evaluation: Evaluation, network: EvaluationPolicy, steps: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Observations uint8[steps, *frames.observation] of whole episodes that the agent plays with its best actions.

    With the states float32[steps, 2, units] in which a recurrent network meets them.
    """
    stacks = np.zeros((BATCH, *evaluation.play.frames.observation), np.uint8)
    seen: list[tuple[NDArray[np.uint8], NDArray[np.float32]]] = []
    env, policy = evaluation.env(), network.policy
    try:
        number = 0
        while len(seen) < steps:
            episode, state = evaluation.open(env, number, stacks[0]), policy.fresh_state()
            while not episode.over and len(seen) < steps:
                seen.append((stacks[0].copy(), state[0]))
                values = policy.values(stacks, state)
                state = policy.next_state
                episode.step(int(values[0].argmax()))
            number += 1
    finally:
        env.close()
    return np.stack([stack for stack, _ in seen]), np.stack([state for _, state in seen])
