"""Reference scores and summaries of returns."""

import pytest

from ringside.records.scores import REFERENCE, SOURCE, human_normalized, summarize


def test_random_play_is_zero_and_the_human_is_one_on_all_57_games() -> None:
    assert len(REFERENCE) == 57
    for game, (random, human) in REFERENCE.items():
        assert human > random
        assert [human_normalized(game, score) for score in (random, human)] == [0.0, 1.0]
    assert "1511.06581" in SOURCE


KNOWN = [
    # The first two scores are those of DQN in Mnih et al. 2015; the quotients were worked out by hand.
    ("breakout", 401.2, 13.87),
    ("pong", 18.9, 1.12),
]


@pytest.mark.parametrize(("game", "score", "normalized"), KNOWN)
def test_known_scores(game: str, score: float, normalized: float) -> None:
    assert human_normalized(game, score) == pytest.approx(normalized, abs=0.005)


def test_every_reference_is_a_game_of_ale_py() -> None:
    from ale_py import roms

    assert REFERENCE.keys() <= set(roms.get_all_rom_ids())


def test_a_game_without_reference_has_no_normalized_score() -> None:
    assert human_normalized("adventure", 1.0) is summarize("adventure", [1.0]).human_normalized is None


def test_a_summary_of_returns() -> None:
    found = summarize("breakout", [1.7, 30.5, 30.5, 59.3])
    assert (found.episodes, found.median, found.best) == (4, 30.5, 59.3)
    figures = found.mean, found.sd, found.human_normalized
    assert figures == pytest.approx((30.5, (2 * 28.8**2 / 4) ** 0.5, 1.0))
