"""Published curves: what is there, where its points stand, and what a damaged file is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside.recording.scores import REFERENCE
from ringside.report.published_curves import MOST_POINTS, PATH, published_curves, published_curves_of_game
from shared.config.settings import FRAME_SKIP


def test_every_curve_says_source_and_rules_and_is_of_a_known_game() -> None:
    curves, checked = published_curves()
    assert "by hand" in checked
    assert len({(curve.name, curve.agent, curve.game) for curve in curves}) == len(curves)
    for curve in curves:
        assert curve.game in REFERENCE
        assert "commit" in curve.source
        assert "sticky" in curve.protocol
        assert curve.runs in (5, None)
        assert len(curve.steps) == len(curve.returns)
        assert np.isfinite(curve.returns).all()
        assert curve.returns.min() >= (-21 if curve.game == "pong" else 0)
        assert np.diff(curve.steps).tolist() == [1_000_000 / FRAME_SKIP] * (len(curve.steps) - 1)


@pytest.mark.parametrize(
    ("game", "agents"),
    [
        ("pong", ["DQN", "Rainbow", "IQN", "BTR"]),
        ("breakout", ["DQN", "Rainbow", "IQN", "BTR"]),
        ("qbert", ["BTR"]),
        ("space_invaders", ["BTR"]),
        ("freeway", []),
    ],
)
def test_the_curves_of_a_game_come_in_order(game: str, agents: list[str]) -> None:
    assert [curve.agent for curve in published_curves_of_game(game)] == agents


@pytest.mark.parametrize(
    ("game", "agent", "points", "mean"),
    # As they came out when the curves were copied: a value that is changed, or put to another game, shows.
    [
        ("pong", "DQN", 17, -7.6882),
        ("pong", "Rainbow", 20, 6.575),
        ("pong", "IQN", 20, 9.785),
        ("breakout", "DQN", 18, 22.1333),
        ("breakout", "Rainbow", 20, 41.745),
        ("breakout", "IQN", 20, 95.25),
        ("pong", "BTR", 50, 7.1182),
        ("breakout", "BTR", 50, 409.7436),
        ("qbert", "BTR", 50, 9571.28),
        ("space_invaders", "BTR", 50, 4036.608),
    ],
)
def test_the_curves_are_those_that_were_copied(game: str, agent: str, points: int, mean: float) -> None:
    (curve,) = (curve for curve in published_curves_of_game(game) if curve.agent == agent)
    assert len(curve.returns) == points
    assert curve.returns.mean() == pytest.approx(mean, abs=1e-4)


def test_training_returns_stand_in_the_middle_of_an_iteration_and_evaluations_where_they_were_made() -> None:
    dopamine, _, _, btr = published_curves_of_game("pong")
    assert dopamine.steps[:2].tolist() == [125_000, 375_000]
    assert btr.steps[:2].tolist() == [250_000, 500_000]
    assert dopamine.label == "DQN (Dopamine), sticky 0.25, 5 runs"
    assert btr.label == "BTR (its authors), sticky 0.25"


def damaged(tmp_path: Path, change: dict[str, Any], curve: dict[str, Any]) -> Path:
    """The file with only its first curve, changed: in what is said of its source, and of itself."""
    whole = json.loads(PATH.read_text())
    source = whole["sources"][0]
    source["curves"] = [source["curves"][0] | curve]
    (tmp_path / "curves.json").write_text(json.dumps(whole | {"sources": [source | change]}))
    return tmp_path / "curves.json"


def test_what_is_not_sticky_says_so(tmp_path: Path) -> None:
    ((curve,), _) = published_curves(damaged(tmp_path, {"sticky": 0.0}, {"runs": None}))
    assert curve.label == "DQN (Dopamine), not sticky"


@pytest.mark.parametrize(
    ("change", "curve", "said"),
    [
        ({"sticky": "0.25"}, {}, "sticky is '0.25'"),
        ({"sticky": 1.0}, {}, "out of range"),
        ({"frames_between": 0}, {}, "out of range"),
        ({"name": None}, {}, "name is None"),
        ({"curves": [7]}, {}, "agent is None"),
        ({}, {"game": "chess"}, "DQN on chess: there is no such game"),
        ({}, {"runs": True}, "runs is True"),
        ({}, {"returns": []}, "0 points"),
        ({}, {"returns": [0.0] * (MOST_POINTS + 1)}, "1,001 points"),
        ({}, {"returns": [1.0, "2"]}, "a return is no number"),
        ({}, {"returns": [1.0, False]}, "a return is no number"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any], curve: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        published_curves(damaged(tmp_path, change, curve))


def test_a_file_without_an_object_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match="no JSON object"):
        published_curves(path)
    with open(path, "wb") as file:
        file.truncate(1 << 21)
    with pytest.raises(ValueError, match="2,097,152 bytes"):
        published_curves.__wrapped__(path)
