"""Faults of a user's env, as a short play finds them."""

import pytest

from actors.env import EnvError
from actors.env_trial import _play
from actors.envs.gymnasium_env import GymnasiumEnv
from shared.errors import EnvFault
from shared.frame_shape import DEFAULT_FRAMES


def play(wrong: str) -> tuple[int, ...]:
    """Play the odd env with a fault in this process."""
    env = GymnasiumEnv(f"tests.support.odd_envs:factory@wrong={wrong}", seed=1, index=0)
    return _play(env, DEFAULT_FRAMES, lambda call: None)


FAULTS = [
    ("no_spaces", "does not tell its observation_space and action_space: AttributeError"),
    ("bad_space", "The actions of .* are None; a Discrete of 2 to 256 actions is needed"),
    ("old_reset", r"failed in reset\(\) of env 0 at tick 0: ValueError: too many values .* Gymnasium's API: reset"),
    ("old_step", r"failed in step\(\) of env 0 at tick 1: ValueError: not enough values .* Gymnasium's API: reset"),
    ("ragged", "gave an observation that is no array: ValueError"),
    ("reward_none", "gave the reward None; rewards must be finite numbers"),
    ("reward_text", "gave the reward '1'; rewards must be finite numbers"),
    ("reward_nan", "gave the reward nan; rewards must be finite numbers"),
    ("reward_big", r"gave the reward np.float32\(1.3e\+34\); rewards must be finite numbers up to 1e\+34"),
    ("reward_int", "gave the reward 10000.*; rewards must be finite numbers"),
    ("reward_tensor", "gave the reward .*; rewards must be finite numbers"),
    ("end_none", "gave None and False as ends of an episode; terminated and truncated must be True or False"),
    ("end_text", "gave 'no' and False as ends"),
    ("end_array", "as ends of an episode"),
    ("end_tensor", "as ends of an episode"),
    ("raises", r"at tick 17: KeyError: 'no\\nsuch key' \(odd_envs.py, line \d+\)"),
    ("exits", r"at tick 17: SystemExit: 7 \(odd_envs.py, line \d+\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), FAULTS)
def test_a_fault_of_an_env_is_a_sentence(wrong: str, sentence: str) -> None:
    with pytest.raises((EnvError, EnvFault), match=sentence) as error:
        play(wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", ["names", "metadata", "pace"])
def test_faults_of_decoration_are_ignored(wrong: str) -> None:
    env = GymnasiumEnv(f"tests.support.odd_envs:factory@wrong={wrong}", seed=1, index=0)
    assert env.action_names == (("0", "1", "2") if wrong == "names" else ("left", "stay", "right"))
    assert env.screens_per_second == 15.0


def test_the_same_seed_and_actions_give_the_same_checksums() -> None:
    assert play("nothing") == play("nothing")
    assert play("seed") != play("seed")
