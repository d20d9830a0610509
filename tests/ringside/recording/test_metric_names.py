"""Names of a method's metrics in records, on dashboards and on screens."""

from __future__ import annotations

from ringside.recording.metric_names import displayed, label_of, metrics_of, round_scalars
from shared.config.method_declaration import DQN

RECORD = {"kind": "round", "round": 3, "steps": 40, "frames": 160, "seconds": 1.5, "epsilon": 0.1, "episodes": 2}


def test_fields_of_every_run_are_no_metrics_of_the_method() -> None:
    assert metrics_of(RECORD | {"learner_busy": 0.5, "mean_return_100": 1.0, "best_return": 2.0}) == []
    assert metrics_of(RECORD | dict.fromkeys(DQN.metrics, 0.5)) == list(DQN.metrics)


def test_a_metric_of_a_plug_in_has_a_tag_and_a_label() -> None:
    tags = round_scalars(RECORD | {"loss": 0.5, "explained_variance": 0.25, "entropy": None})
    assert tags == {"charts/epsilon": 0.1, "losses/td_loss": 0.5, "losses/explained_variance": 0.25}
    assert label_of("explained_variance") == "explained variance"


def test_screens_of_dqn_show_loss_and_mean_q() -> None:
    assert [label_of(name) for name in displayed(DQN.metrics)] == ["loss", "mean Q"]
