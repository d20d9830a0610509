"""Published scores and curves: sources and rules, points; and the lists of games."""

import math

import numpy as np
import pytest

from ringside.command.suite import SUITES
from ringside.records.scores import REFERENCE, human_normalized
from ringside.report.comparison import ATARI_100K, comparable_agents, comparable_curves, published, published_curves
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP


def test_every_curve_says_source_and_rules_and_is_of_a_known_game() -> None:
    curves, checked = published_curves()
    assert "by hand" in checked
    assert len({(curve.name, curve.agent, curve.game) for curve in curves}) == len(curves)
    for curve in curves:
        assert curve.game in REFERENCE
        assert ("commit" in curve.source, "sticky" in curve.protocol, curve.runs in (5, None)) == (True, True, True)
        assert len(curve.steps) == len(curve.returns) == 50
        assert np.isfinite(curve.returns).all()
        assert curve.returns.min() >= (-21 if curve.game == "pong" else 0)
        assert np.diff(curve.steps).tolist() == [1_000_000 / FRAME_SKIP] * (len(curve.steps) - 1)


def test_the_curves_are_those_that_were_copied() -> None:
    """As they came out when the curves were copied: a value that is changed, or put to another game, shows."""
    means = {
        "pong": {"DQN": 3.13, "Rainbow": 14.062, "IQN": 15.55, "BTR": 7.1182},
        "breakout": {"DQN": 57.894, "Rainbow": 47.74, "IQN": 102.35, "BTR": 409.7436},
        "qbert": {"DQN": 4419.61, "Rainbow": 11523.872, "IQN": 10077.034, "BTR": 9571.28},
        "space_invaders": {"DQN": 867.172, "Rainbow": 1191.432, "IQN": 1758.092, "BTR": 4036.608},
        "beam_rider": {"DQN": 3021.49, "Rainbow": 4564.388, "IQN": 5589.718},
        "freeway": {"DQN": 18.602, "Rainbow": 31.23, "IQN": 30.812},
    }
    curves = {game: comparable_curves("machado", game) for game in REFERENCE}
    found = {game: {each.agent: each.returns.mean() for each in curves[game]} for game in curves}
    expected = {game: list(means[game]) for game in REFERENCE if game in means}
    assert {game: list(agents) for game, agents in found.items() if agents} == expected
    for game, agents in means.items():
        assert found[game] == pytest.approx(agents, abs=1e-4)


def test_training_returns_stand_in_the_middle_of_an_iteration_and_evaluations_where_they_were_made() -> None:
    dopamine, _, _, btr = comparable_curves("dopamine", "pong")
    assert [each.steps[:2].tolist() for each in (dopamine, btr)] == [[125_000, 375_000], [250_000, 500_000]]
    labels = "DQN (Dopamine), sticky 0.25, 5 runs", "BTR (its authors), sticky 0.25"
    assert (dopamine.label, btr.label) == labels


def test_every_agent_says_source_and_protocol_and_names_known_games() -> None:
    """The means are those when the tables were checked: a score that is changed, or put to another game, shows."""
    agents, checked = published()
    nature, atari_100k = agents[:3], agents[3:]
    assert [(agent.name, len(agent.scores)) for agent in nature] == [("DQN", 49), ("Rainbow", 54), ("IQN", 54)]
    assert "transcriptions" in checked
    assert all("no-op starts" in agent.protocol for agent in nature)
    for agent in atari_100k:
        assert (agent.scores.keys() in (set(SUITES["atari26"]), set()), agent.frames) == (True, 400_000)
    figures = 2.1185818, 13.8895306, 19.8360520, 0.2854368, 0.4647295
    for agent, normalized in zip([each for each in agents if each.scores], figures, strict=True):
        assert "20" in agent.source
        assert agent.scores.keys() <= REFERENCE.keys()
        assert all(math.isfinite(score) for score in agent.scores.values())
        found = [human_normalized(game, score) for game, score in agent.scores.items()]
        assert float(np.mean(np.array(found, float))) == pytest.approx(normalized, abs=1e-6)


def test_sticky_and_not_are_never_mixed() -> None:
    for name, protocol in PROTOCOLS.items():
        found = [*comparable_agents(name), *comparable_curves(name, "pong")]
        assert {each.sticky for each in found} == {protocol.sticky}
    assert (len(comparable_agents("nature")), comparable_agents("machado")) == (3, ())
    assert (comparable_curves("nature", "pong"), len(comparable_curves("machado", "pong"))) == ((), 4)
    assert (comparable_agents("of another version"), comparable_curves("of another version", "pong")) == ((), ())


def test_agents_of_atari_100k_stand_beside_its_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS, ATARI_100K, PROTOCOLS["nature"])
    found = {agent.name: agent for agent in comparable_agents(ATARI_100K)}
    assert list(found) == ["DER", "DER, Dopamine", "DrQ(ε)"]
    assert found.keys().isdisjoint(agent.name for agent in comparable_agents("nature"))
    # As the papers print them: Schwarzer et al. 2021, Table 1, and 2023, Table A.1.
    for name, (mean, median) in {"DER": (0.285, 0.161), "DrQ(ε)": (0.465, 0.313)}.items():
        scores = np.concatenate(found[name].normalized(SUITES["atari26"]))
        assert (scores.mean(), np.median(scores)) == pytest.approx((mean, median), abs=5e-4)
    assert found["DER"].normalized(["pong", "asteroids"]) == []


def test_lists_of_games_have_their_numbers_and_every_game_is_in_atari57() -> None:
    sizes = {"atari5": 5, "atari26": 26, "atari57": 57}
    assert {name: len(games) for name, games in SUITES.items()} == sizes
    assert {name: len({*games} & {*SUITES["atari57"]}) for name, games in SUITES.items()} == sizes
