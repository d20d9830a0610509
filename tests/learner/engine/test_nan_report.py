"""Updates that are done again for a report are those that were done."""

from unittest.mock import Mock

import numpy as np
import pytest

from learner.engine.nan_report import repeat_updates
from shared.config.sections import Algorithm
from shared.network_parameters import parameters_of
from tests.support.played_ring import PlayedRing, make_test_engine, small_config, stored_state


@pytest.mark.parametrize("algorithm", [Algorithm(), Algorithm(double=True, n_step=3, prioritized=True)])
def test_rounds_since_the_snapshot_are_done_again_to_the_bit(algorithm: Algorithm) -> None:
    """Two of them, as schedule alternate has; what the first taught the priorities counts in the second."""
    config = small_config(algorithm)
    played = PlayedRing(config, ticks=24)
    engine = make_test_engine(played, config)
    kept = stored_state(engine)
    for round_ in (3, 4):
        engine.run(engine.begin_round(round_, round_ * 6))
        engine.end_round()
        engine.update_target()
    online = stored_state(engine)["online"]
    plan = Mock(config=config, parameters=parameters_of(engine._online.network))
    memory = Mock(run_schedule=played.run_schedule, plan=plan)
    memory.learner_snapshots = Mock(newest=lambda: 3, read={3: kept}.get)
    is_finite, arrays, update = repeat_updates(memory, Mock(), engine)
    assert (is_finite, update) == (True, 11)
    np.testing.assert_array_equal(arrays["parameters_after"], online)
    assert not np.array_equal(arrays["parameters_before"], online)
