"""Export of an agent as an ONNX file, checked against the agent itself on frames that it has played."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actors.evaluation import Evaluation, play_episodes
from actors.make_env import action_names
from ringside.agents.evaluating import ROWS, EvaluationPolicy
from ringside.agents.stored_weights import play_of, require_actions, rules_of, weights_at
from shared.checkpoint.weights_file import StoredWeights
from shared.config import validate
from shared.config.sections import FRAME_SKIP, Play
from shared.errors import ConfigError, require
from shared.files.atomic import write_atomic
from shared.files.result_files import require_writable
from shared.text import refused

CHECKED_FRAMES = 256
"""Observations on which the two are compared."""
MOST_FRAMES = 100_000
"""Bound of `--frames`: the answers to so many observations are kept."""
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
    network: str | type | None = None,
    frames: int = CHECKED_FRAMES,
    seed: int = 1,
) -> Exported:
    """Write an agent as an ONNX file, after onnxruntime has given the agent's numbers on frames of its env.

    Args:
        load: a run directory, a checkpoint, a file of weights or the name of an agent in the zoo.
        onnx: file to write.
        env, plugin, network: as for `ringside.evaluate`.
        frames: observations to compare, rounded up to whole batches of eight; the agent plays them.

    Raises:
        ConfigError: a package is missing, there is no such agent, torch cannot trace it, or the numbers differ.
    """
    require("export", "export", "onnxscript", "onnxruntime")
    validate.require_between("--frames", frames, MOST_FRAMES)
    validate.seed_of_play(seed)
    path = Path(onnx)
    require_writable("--onnx", path, replaces=True, beside=Path(load))
    from ringside.agents.onnx_graph import make_onnx  # which loads torch

    weights = weights_at(load, env, plugin, network)
    play = play_of(weights)
    require_actions(weights, play)
    seen = play.frames
    about = {
        "game": weights.game,
        "protocol": weights.protocol,
        "method": weights.network.method,
        "actions": json.dumps(action_names(play)),
        "observation": f"uint8[n, {', '.join(map(str, seen.observation))}]: the newest {seen}, oldest first",
    }
    content = make_onnx(weights, about)
    ours, theirs = _answers(weights, play, content, frames, seed)
    difference, greatest = float(np.abs(ours - theirs).max()), float(np.abs(ours).max())
    if not difference <= TOLERANCE * max(1.0, greatest):
        raise ConfigError(
            f"onnxruntime gives other numbers than the agent, by {difference:.3g} of {greatest:.3g}: {path} was not "
            "written."
        )
    with refused(f"--onnx {path} cannot be written"):
        write_atomic(path, content)
    same = float(np.equal(*(found[:, : weights.network.actions].argmax(1) for found in (ours, theirs))).mean())
    return Exported(path, len(content), len(ours), difference, greatest, same)


def _answers(
    weights: StoredWeights, play: Play, content: bytes, frames: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Outputs float32[observations, n] of the agent and of onnxruntime, where the agent plays its best actions.

    The first columns are values of actions or logits, then come the value of a policy, and the next state of a
    recurrent network, which answers in the states that it meets.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    policy = EvaluationPolicy(weights, "cpu", captured=False).policy
    stacks, state = np.zeros((ROWS, *play.frames.observation), np.uint8), policy.fresh_state()
    inputs = {"observation": stacks} | ({"state": state} if weights.network.recurrent else {})
    ours: list[NDArray[np.float32]] = []
    theirs: list[NDArray[np.float32]] = []

    def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        state[starts] = 0
        values = policy.values(stacks, state)
        value = [policy.state_values[:, None]] if weights.network.value_output else []
        ours.append(np.concatenate([values, *value, policy.next_state.reshape(ROWS, -1)], 1))
        theirs.append(np.concatenate([each.reshape(ROWS, -1) for each in session.run(None, inputs)], 1))
        state[:] = policy.next_state
        return values.argmax(1).astype(np.uint8)

    # Each env plays its share, and then its episode is cut.
    rules = replace(rules_of(weights, play), max_frames=FRAME_SKIP * -(-frames // ROWS))
    play_episodes(Evaluation(play, rules, seed, 0), stacks, ask, steps=frames)
    return np.concatenate(ours), np.concatenate(theirs)
