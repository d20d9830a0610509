"""Frames of another size, color and number: a run trains, is evaluated beside and after training, and is exact."""

from pathlib import Path

import pytest

import ringside
from tests.support.runs import finish, records, start, summary

CATCH = "tests.support.pixel_game:ColorCatch"
FRAMES = {"env": CATCH, "frame_size": "48", "frame_color": "rgb", "frame_stack": "2"}


@pytest.mark.stress
def test_other_frames_train_and_evaluate_and_actors_change_nothing(tmp_path: Path) -> None:
    sizes = {"total_steps": "1_920", "learning_starts": "480", "eval_every_steps": "960", "eval_episodes": "4"}
    for actors in ("1", "2"):
        finish(start(tmp_path / actors, actors=actors, env_kwargs="side=60", **FRAMES, **sizes))
    one, two = (summary(tmp_path / actors) for actors in ("1", "2"))
    assert one["weights_sha256"] == two["weights_sha256"]
    assert one["updates"] == 3 * 480 // 4
    assert len(records(tmp_path / "1", "evaluation")) == 2
    where = {"env": f"{CATCH}@side=60", "device": "cpu"}
    assert ringside.load_agent(tmp_path / "1", **where).observation_shape == (2, 3, 48, 48)
    assert len(ringside.evaluate(tmp_path / "1", episodes=3, **where)["returns"]) == 3
