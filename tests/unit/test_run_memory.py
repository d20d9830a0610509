"""The layout of the shared region. It changes only where a field is meant to change."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.presets import PRESETS
from shared.memory.run_memory import Plan

ACTIONS = 4
MACHINE = {"actors": 3, "inference_batch": 32, "device": "cpu", "eval_episodes": 30}


@pytest.mark.parametrize(
    ("preset", "settings", "digest"),
    [
        ("nature", {}, "6bcf7540c0a004f9685c896ac19082177de4c8272d25ce3a7e196be1c19895c3"),
        (
            "nature",
            {"eval_every_steps": 250_000},
            "90b3521113058c7f885b0adff1e96fa8a5dc657378fdb60058e428eb41f8e586",
        ),
        ("nature", {"schedule": "alternate"}, "3b15074c7708c06177e4ce4a7fcfb371a8e02d08bb15cffeec1a6af221b6c74a"),
        ("nature", {"schedule": "free"}, "893bfd21a47a2d6df6ea40825419eedacdff0c69c9d129dfa30bb8c194b5d462"),
        ("rainbow", {"atoms": 51}, "b58723212023ce7782763744107d81cf7bbbd795c06766597b9f07f47c122729"),
        ("btr", {}, "879bf2ee8ca4cf28caf717e090b3af402f6e2999a62dca01e6f7ae95777628ec"),
    ],
)
def test_the_layout_of_methods_with_a_replay_is_pinned(preset: Any, settings: dict[str, Any], digest: str) -> None:
    """Names, types, shapes and offsets of all fields. Where one is meant to change, replace the digest."""
    plan = Plan(PRESETS[preset].with_settings(**MACHINE, **settings), ACTIONS)
    assert plan.layout().digest().hex() == digest
