"""The breakdown of an update: every part of every kind of learner is found and timed."""

from __future__ import annotations

import pytest

from ringside.bench.network_parts.shares import BESIDE, REST, Shares
from tests.support.played_ring import PlayedRing, make_algorithm, make_test_engine, small_config

WITH_REPLAY = {"frames", "target values", "draw", "forward", "loss", "backward", "optimizer"}
WITH_ROUNDS = {"frames", "targets of the round", "minibatches", "forward", "loss", "backward", "optimizer"}
ROUND = 2


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("method", "parts"), [("dqn", WITH_REPLAY), ("a2c", WITH_ROUNDS)])
def test_the_parts_of_an_update_are_timed(method: str, parts: set[str]) -> None:
    config = small_config(make_algorithm(method=method))
    played = PlayedRing(config)
    played.play(20)
    engine = make_test_engine(played, config)
    shares = Shares(engine, lambda: None, on_cpu=True, on_policy=played.run_schedule.method.on_policy)
    shares.begin()
    engine.run(engine.begin_round(ROUND, played.run_schedule.window_end(ROUND)))
    engine.end_round()
    found = shares.end()
    assert parts <= {part.removeprefix(BESIDE) for part, share in found.items() if share > 0}
    assert sum(share for part, share in found.items() if not part.startswith(BESIDE)) == pytest.approx(1.0)
    assert 0 <= found[REST] < 1
