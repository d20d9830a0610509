"""Digest of a configuration: the settings that the trained weights depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from shared.config.sections import OWN_SETTINGS
from shared.errors import ConfigError
from shared.frame_shape import FRAME_SIDE, STACK

ADDED: Mapping[str, Any] = {
    "frame_size": FRAME_SIDE,
    "frame_color": "gray",
    "frame_stack": STACK,
    "recurrent": False,
    "acting_device": None,
    "acting_precision": None,
    "learner_ranks": 1,
}
"""Settings that earlier versions did not have, with the value that stands for them. A digest leaves them out where they
have it, so runs and checkpoints of earlier versions stay what they are."""

MAY_CHANGE_ON_RESUME = frozenset(
    {
        "actors",
        "learner_ranks",
        "total_steps",
        "eval_every_steps",
        "eval_episodes",
        "eval_video",
        "pin",
        "balance",
        "replay_on",
        "graph_updates",
        "mps",
        "run_dir",
        "resume",
        "init_from",
        "stop_at",
        "checkpoint_every_minutes",
        "checkpoint_replay",
        "plugin",
        "plain",
        "track",
        "wandb_entity",
        "wandb_group",
        "wandb_tags",
    }
)
"""Settings that do not touch the numbers of the steps already planned. `init_from` acts only at step 0."""

ARITHMETIC = frozenset(
    {
        "device",
        "precision",
        "acting_device",
        "acting_precision",
        "deterministic",
        "learner_threads",
        "learner_shards",
        "inference_threads",
        "inference_batch",
    }
)
"""Settings that change only the last bits of numbers. A run that resumes with another value continues, but is no longer
exact."""


def flat_of(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values of a `Config.to_json` by the flat names of the flags."""
    flat = {name: value for values in sections.values() for name, value in values.items()}
    own = flat.pop(OWN_SETTINGS, {})
    return flat | own if isinstance(own, dict) else flat


def digest_of(sections: dict[str, Any], without: frozenset[str] = frozenset()) -> str:
    """SHA-256 (hex) of the settings in a `Config.to_json` that the weights depend on, but those named `without`.

    Raises `ConfigError` when these are no sections.
    """
    if not all(isinstance(values, dict) for values in sections.values()):
        raise ConfigError("The configuration is damaged: a section of it is not an object.")
    left_out = MAY_CHANGE_ON_RESUME | without
    kept = {
        name: value
        for name, value in flat_of(sections).items()
        if name not in left_out and not (name in ADDED and value == ADDED[name])
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
