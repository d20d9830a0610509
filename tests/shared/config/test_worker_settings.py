"""Settings of runs of workers: what is refused, and the sizes that follow."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config import validate
from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.frame_shape import STACK
from shared.machine import facts

WORKERS: dict[str, Any] = {"schedule": "ordered", "workers": 4, "lane_envs": 2, "method": "a2c", "network": "a3c"}
REPLAY: dict[str, Any] = WORKERS | {"method": "dqn", "local_replay": 1_000}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"actors": 5}, "--actors 5 is more than --workers 4"),
        ({"learner_ranks": 2}, "--learner-ranks 2 cannot be with --schedule ordered"),
        ({"learner_threads": 2}, "--learner-threads 2 cannot be with --schedule ordered"),
        ({"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
        ({"inference_batch": 4, "schedule": "async"}, "--inference-batch 4 cannot be with --schedule async"),
    ],
)
def test_sizes_of_processes_of_workers(settings: dict[str, Any], sentence: str) -> None:
    config = resolve(Config().with_settings(**WORKERS))
    validate.settings(config)
    validate.settings(config.with_settings(envs=config.play.emulators))
    validate.resolved(config)
    assert (config.machine.device, config.machine.precision, config.machine.learner_threads) == ("cpu", "fp32", 1)
    with pytest.raises(ConfigError) as refused:
        validate.resolved(resolve(Config().with_settings(**WORKERS | settings)))
    assert sentence in str(refused.value)


def test_only_batches_of_a_local_replay_are_worth_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "bf16_flags", lambda: ["avx512_bf16"])
    resolved = [resolve(PRESETS[preset]).machine.precision for preset in ("a3c-async", "nq-async", "dqn-async")]
    assert resolved == ["fp32", "fp32", "bf16"]


def test_an_lstm_adds_its_state_to_the_slots_and_a_tick_before_the_first() -> None:
    """Its state lies in the slot before, which a stack of one frame does not need."""
    settings = WORKERS | {"frame_stack": 1, "snapshot_every_steps": 200}
    plain, recurrent = (
        make_run_schedule(Config().with_settings(**settings, recurrent=recurrent)) for recurrent in (False, True)
    )
    validate.settings(Config().with_settings(**settings, recurrent=True))
    assert (plain.recurrent_units, recurrent.recurrent_units) == (0, 256)
    assert (plain.history_ticks, recurrent.history_ticks) == (0, 1)
    assert recurrent.capacity == plain.capacity + 1


@pytest.mark.parametrize("preset", ["a3c-async", "q-async", "nq-async", "dqn-async"])
@pytest.mark.parametrize("schedule", ["ordered", "async"])
def test_rings_hold_what_gradients_and_a_late_scribe_need(preset: str, schedule: str) -> None:
    planned = make_run_schedule(PRESETS[preset].with_settings(schedule=schedule))
    span = planned.snapshot_rounds * planned.round_ticks
    assert planned.updates_in(planned.rounds - 1) == planned.workers
    for boundary in (span, 40 * span):
        # A commit need not wait for the scribe while it records the span before.
        before = (boundary // planned.round_ticks) * planned.round_ticks - span
        assert planned.oldest_readable_tick(boundary // planned.round_ticks) <= before
    # A gradient of the newest round reads its window, and the stacks before it, while lanes play the round.
    oldest = planned.window_end(50) - planned.window_ticks - STACK + 1
    assert planned.oldest_readable_tick(50) <= oldest


def test_the_target_network_of_a_version_follows_its_changes() -> None:
    planned = make_run_schedule(PRESETS["nq-async"])
    changes = 0
    for boundary in range(300):
        assert planned.target_changes_before(boundary) == changes
        changes += planned.target_changes_after(boundary)
    assert changes == 300 * 80 // 10_000
