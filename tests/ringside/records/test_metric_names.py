"""Names of a method's metrics in records, on dashboards and on screens."""

from __future__ import annotations

from pathlib import Path

from ringside.records.board_samples import Sample
from ringside.records.metric_names import _METRICS, displayed, metric_of, metrics_of, round_scalars
from ringside.records.metrics import MetricsLog, read_metrics
from ringside.records.record_values import record_values
from shared.config import method_declaration as declarations
from shared.config.method_declaration import A2C, DQN, PPO, RECORD_FIELDS
from shared.config.settings import Config
from shared.memory.board import RECORD_METRICS
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

RECORD = {"kind": "round", "round": 3, "steps": 40, "frames": 160, "seconds": 1.5, "epsilon": 0.1, "episodes": 2}


def test_fields_of_every_run_are_no_metrics_of_the_method() -> None:
    assert metrics_of(RECORD | {"learner_busy": 0.5, "mean_return_100": 1.0, "best_return": 2.0}) == []
    assert metrics_of(RECORD | dict.fromkeys(DQN.metrics, 0.5)) == list(DQN.metrics)


def test_no_metric_may_have_the_name_of_a_field_of_a_record(tmp_path: Path) -> None:
    """All fields that a record of any method has are reserved, also those of c51 alone, and of workers."""
    settings = {"envs": 4, "round_steps": 40, "replay_size": 100, "learning_starts": 80, "network": "small"}
    config = Config().with_settings(method="c51", actors=1, device="cpu", total_steps=400, **settings)
    memory = Memory.create(Plan(config, actions=6))
    memory.board.commits.publish(1)
    memory.board.metrics[0] = 0.5
    memory.board.metrics[0, -1] = 1
    values = record_values(memory, 0, 1, Sample.take(memory, 1), held=True)
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.log_round(0, 40, values, [], envs=4)
    memory.arena.close()
    (record,) = read_metrics(tmp_path / "metrics.jsonl")
    assert record.keys() - set(DQN.metrics) | {*RECORD_METRICS, "workers_busy"} == RECORD_FIELDS


def test_metrics_of_built_in_methods_are_explained() -> None:
    built_in = {name for each in declarations._REGISTRY.values() for name in each.metrics if each.name != "theirs"}
    assert built_in <= _METRICS.keys()
    for name in _METRICS:
        found = metric_of(name)
        assert found.meaning.endswith(".")
        assert len(found.meaning) < 100
    assert [metric_of(name).label for name in displayed(PPO.metrics)] == [
        *("loss", "mean value", "entropy", "KL", "explained variance", "clip fraction")
    ]


def test_dashboards_show_the_metrics_of_a_policy_under_cleanrls_names() -> None:
    tags = round_scalars(RECORD | dict.fromkeys(PPO.metrics, 0.5))
    assert {"losses/entropy", "losses/approx_kl", "losses/clipfrac", "losses/explained_variance"} <= tags.keys()
    assert "losses/loss" in round_scalars(RECORD | dict.fromkeys(A2C.metrics, 0.5)), "no TD error"
    assert "losses/td_loss" not in tags


def test_a_metric_of_a_plug_in_has_a_tag_and_a_label() -> None:
    tags = round_scalars(RECORD | {"loss": 0.5, "mean_baseline": 0.25, "entropy": None})
    assert tags == {"charts/epsilon": 0.1, "losses/loss": 0.5, "losses/mean_baseline": 0.25}
    assert metric_of("mean_baseline").label == "mean baseline"


def test_screens_of_dqn_show_loss_and_mean_q() -> None:
    assert [metric_of(name).label for name in displayed(DQN.metrics)] == ["loss", "mean Q"]
