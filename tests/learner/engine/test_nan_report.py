"""Updates that are done again for a report are those that were done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from learner.engine.nan_report import repeat_updates
from shared.config.sections import Algorithm
from shared.config.settings import Config
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from tests.support.played_ring import ACTIONS, PlayedRing, make_test_engine, small_config, stored_state

NETWORK = Network("small", ACTIONS)
EXTENDS = [Algorithm(), Algorithm(double=True, n_step=3, prioritized=True)]


def _memory(played: PlayedRing, config: Config, boundary: int, state: dict[str, np.ndarray]) -> Any:
    """The parts of a run's memory that the report reads, with one snapshot."""
    return SimpleNamespace(
        plan=SimpleNamespace(config=config, parameters=parameters_of(NETWORK)),
        run_schedule=played.run_schedule,
        learner_snapshots=SimpleNamespace(newest=lambda: boundary, read={boundary: state}.get),
    )


@pytest.mark.parametrize("algorithm", EXTENDS, ids=["plain", "prioritized"])
def test_rounds_since_the_snapshot_are_done_again_to_the_bit(algorithm: Algorithm) -> None:
    """Two of them, as schedule alternate has; what the first taught the priorities counts in the second."""
    config = small_config(algorithm)
    played = PlayedRing(config)
    played.play(24)
    engine = make_test_engine(played, config)
    kept = stored_state(engine)
    for round_ in (3, 4):
        engine.run(engine.begin_round(round_, round_ * 6))
        engine.end_round()
        engine.update_target()
    online = np.zeros_like(kept["online"])
    engine.online_into(online)

    memory = _memory(played, config, 3, kept)
    is_finite, arrays, update = repeat_updates(memory, SimpleNamespace(heartbeat=lambda: None), engine, 4)  # type: ignore[arg-type]
    assert (is_finite, update) == (True, 11)
    np.testing.assert_array_equal(arrays["parameters_after"], online)
    assert not np.array_equal(arrays["parameters_before"], online)
