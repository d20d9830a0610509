"""Published scores and curves: sources and rules, points, a damaged file; and the lists of games."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ringside.recording.scores import REFERENCE, human_normalized
from ringside.report.published import (
    CURVES,
    comparable_agents,
    published,
    published_curves,
    published_curves_of_game,
)
from ringside.suites.suite_games import SUITES
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP


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
        ("qbert", ["DQN", "Rainbow", "IQN", "BTR"]),
        ("freeway", ["DQN", "Rainbow", "IQN"]),
        ("seaquest", []),
    ],
)
def test_the_curves_of_a_game_come_in_order(game: str, agents: list[str]) -> None:
    assert [curve.agent for curve in published_curves_of_game(game)] == agents


@pytest.mark.parametrize(
    ("game", "agent", "points", "mean"),
    # As they came out when the curves were copied: a value that is changed, or put to another game, shows.
    [
        ("pong", "DQN", 50, 3.13),
        ("pong", "Rainbow", 50, 14.062),
        ("pong", "IQN", 50, 15.55),
        ("breakout", "DQN", 50, 57.894),
        ("breakout", "Rainbow", 50, 47.74),
        ("breakout", "IQN", 50, 102.35),
        ("qbert", "DQN", 50, 4419.61),
        ("qbert", "Rainbow", 50, 11523.872),
        ("qbert", "IQN", 50, 10077.034),
        ("space_invaders", "DQN", 50, 867.172),
        ("space_invaders", "Rainbow", 50, 1191.432),
        ("space_invaders", "IQN", 50, 1758.092),
        ("beam_rider", "DQN", 50, 3021.49),
        ("beam_rider", "Rainbow", 50, 4564.388),
        ("beam_rider", "IQN", 50, 5589.718),
        ("freeway", "DQN", 50, 18.602),
        ("freeway", "Rainbow", 50, 31.23),
        ("freeway", "IQN", 50, 30.812),
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
    whole = json.loads(CURVES.read_text())
    source = whole["sources"][0]
    source["curves"] = [source["curves"][0] | curve]
    (tmp_path / "curves.json").write_text(json.dumps(whole | {"sources": [source | change]}))
    return tmp_path / "curves.json"


def test_scores_without_sticky_actions_say_so(tmp_path: Path) -> None:
    ((curve,), _) = published_curves(damaged(tmp_path, {"sticky": 0.0}, {"runs": None}))
    assert curve.label == "DQN (Dopamine), not sticky"


@pytest.mark.parametrize(
    ("change", "curve", "where"),
    [
        ({"sticky": "0.25"}, {}, "sticky"),
        ({"sticky": 1.0}, {}, "sticky"),
        ({"frames_between": 0}, {}, "frames_between"),
        ({"name": None}, {}, "name"),
        ({"curves": [7]}, {}, "curves"),
        ({}, {"runs": True}, "runs"),
        ({}, {"returns": []}, "returns"),
        ({}, {"returns": [1.0, "2"]}, "returns"),
        ({}, {"returns": [1.0, False]}, "returns"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any], curve: dict[str, Any], where: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=where):
        published_curves(damaged(tmp_path, change, curve))


def test_every_agent_says_source_and_protocol_and_names_known_games() -> None:
    agents, checked = published()
    assert [agent.name for agent in agents] == ["DQN", "Rainbow", "IQN"]
    assert [len(agent.scores) for agent in agents] == [49, 54, 54]
    assert "transcriptions" in checked
    for agent in agents:
        assert "20" in agent.source
        assert "no-op starts" in agent.protocol
        assert agent.scores.keys() <= REFERENCE.keys()
        assert all(math.isfinite(score) for score in agent.scores.values())


@pytest.mark.parametrize(
    ("name", "normalized"),
    # As they came out when the tables were checked: a score that is changed, or put to another game, shows.
    [("DQN", 2.1185818), ("Rainbow", 13.8895306), ("IQN", 19.8360520)],
)
def test_the_tables_are_those_that_were_checked(name: str, normalized: float) -> None:
    agent = next(agent for agent in published()[0] if agent.name == name)
    found = [human_normalized(game, score) for game, score in agent.scores.items()]
    assert float(np.mean(np.array(found, float))) == pytest.approx(normalized, abs=1e-6)


def test_sticky_and_not_are_never_mixed() -> None:
    for name, protocol in PROTOCOLS.items():
        assert all(agent.sticky == protocol.sticky for agent in comparable_agents(name))
    assert len(comparable_agents("nature")) == 3
    assert comparable_agents("machado") == ()
    assert comparable_agents("of another version") == ()


def test_lists_of_games_have_their_numbers_and_every_game_is_in_atari57() -> None:
    assert {name: len(games) for name, games in SUITES.items()} == {"atari5": 5, "atari26": 26, "atari57": 57}
    for games in SUITES.values():
        assert len(set(games)) == len(games)
        assert set(games) <= set(SUITES["atari57"])
