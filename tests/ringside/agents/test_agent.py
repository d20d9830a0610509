"""A trained agent as a function, found by name, beside Gymnasium and beside plain torch."""

import re
from dataclasses import replace
from pathlib import Path

import gymnasium
import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import ringside
from ringside.agents.stored_weights import play_of, require_actions, weights_at
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.root import ROOT
from tests.support.checkpoints import random_weights
from tests.support.runs import finish, start_words

STACKS = np.random.default_rng(2).integers(0, 256, (3, 4, 84, 84), np.uint8)


def test_one_observation_or_several(tmp_path: Path) -> None:
    agent = ringside.load_agent(random_weights(tmp_path), device="cpu")
    values = agent.q_values(STACKS)
    assert (values.shape, values.dtype) == ((3, 6), np.float32)
    actions = agent(STACKS)
    assert (actions.dtype, actions.tolist()) == (np.int64, values.argmax(axis=1).tolist())
    for stack, of_batch, action in zip(STACKS, values, actions, strict=True):
        np.testing.assert_allclose(agent.q_values(stack), of_batch, rtol=1e-4, atol=1e-5)
        assert agent(stack) == action
    assert isinstance(agent(STACKS[0]), int)
    assert sorted(agent._policies) == [1, 4], "environments may end one by one, and need no network each time"
    assert agent(STACKS[:2]).tolist() == actions[:2].tolist()
    assert (agent.game, agent.protocol, agent.actions) == ("pong", "nature", 6)
    for stacks, chosen in ((STACKS, actions), (STACKS[0], actions[0])):
        action, state = agent.predict(stacks, None, np.array([True]), deterministic=True)
        assert (action.dtype, action.tolist(), state) == (np.int64, chosen.tolist(), None)


FRAMES = [
    ({"frame_size": 48, "frame_stack": 1}, (1, 48, 48)),
    ({"frame_size": 36, "frame_stack": 2, "frame_color": "rgb"}, (2, 3, 36, 36)),
]


@pytest.mark.parametrize(("frames", "shape"), FRAMES)
def test_an_agent_has_the_frames_of_its_run(tmp_path: Path, frames: dict[str, object], shape: tuple[int, ...]) -> None:
    weights = random_weights(tmp_path, **frames)
    agent = ringside.load_agent(weights, device="cpu")
    assert agent.observation_shape == shape
    stacks = np.random.default_rng(2).integers(0, 256, (3, *shape), np.uint8)
    assert agent(stacks).tolist() == [agent(stack) for stack in stacks]
    lengths = ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=re.escape(f"An observation is uint8[{lengths}], or uint8[n, {lengths}]")):
        agent(STACKS)
    assert play_of(weights_at(weights)).frames.observation == shape


def test_an_agent_in_color_cannot_play_a_game(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sees 4 rgb frames of 84x84, and games of Atari are played in gray"):
        ringside.evaluate(random_weights(tmp_path, frame_color="rgb"), device="cpu", episodes=1)


def test_an_agent_with_a_policy_samples_by_its_seed_and_says_what_it_has(tmp_path: Path) -> None:
    weights = random_weights(tmp_path, method="a2c")
    agent, same, other, greedy, predicting = (
        ringside.load_agent(weights, device="cpu", **settings)
        for settings in ({"seed": 5}, {"seed": 5}, {"seed": 6}, {"eval_actions": "greedy"}, {"seed": 5})
    )
    probabilities = agent.probabilities(STACKS)
    assert (probabilities.shape, probabilities.dtype) == ((3, 6), np.float32)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(agent.probabilities(STACKS[0]), probabilities[0], rtol=1e-4)
    assert agent.value(STACKS).shape == (3,)
    assert isinstance(agent.value(STACKS[0]), float)
    sampled = [[each(STACKS).tolist() for _ in range(8)] for each in (agent, same, other)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert [predicting.predict(STACKS)[0].tolist() for _ in range(8)] == sampled[0]
    best = predicting.predict(STACKS, deterministic=True)[0]
    assert isinstance(agent(STACKS[0]), int)
    calls = [agent(np.repeat(STACKS[:1], 64, axis=0)) for _ in range(16)]
    many = np.concatenate(calls)
    assert calls[0].tolist() != calls[1].tolist(), "every call has draws of its own"
    np.testing.assert_allclose(np.bincount(many, minlength=6) / 1_024, probabilities[0], atol=0.06)
    assert greedy(STACKS).tolist() == best.tolist() == probabilities.argmax(axis=1).tolist()
    with pytest.raises(ValueError, match=r"An agent of --method a2c has no Q-values: ask for probabilities"):
        agent.q_values(STACKS)


def test_an_agent_with_action_values_has_no_policy(tmp_path: Path) -> None:
    agent = ringside.load_agent(random_weights(tmp_path), device="cpu")
    np.testing.assert_array_equal(agent.value(STACKS), agent.q_values(STACKS).max(axis=1))
    with pytest.raises(ValueError, match=r"An agent of --method dqn has no policy .*: ask for q_values"):
        agent.probabilities(STACKS)
    with pytest.raises(ConfigError, match="--eval-actions sample draws from a policy, and --method dqn learns action"):
        ringside.load_agent(random_weights(tmp_path), device="cpu", eval_actions="sample")
    with pytest.raises(ConfigError, match="eval_actions 'best' is not one of auto, sample, greedy"):
        ringside.load_agent(random_weights(tmp_path), device="cpu", eval_actions="best")


def test_a_recurrent_agent_remembers_until_it_is_reset(tmp_path: Path) -> None:
    agent = ringside.load_agent(random_weights(tmp_path, method="a2c", recurrent=True), device="cpu")
    assert agent.recurrent
    fresh = agent.probabilities(STACKS)
    np.testing.assert_array_equal(agent.probabilities(STACKS), fresh, err_msg="only a call is remembered")
    agent(STACKS)
    later = agent.probabilities(STACKS)
    assert (later != fresh).any(axis=1).all()
    agent.reset(np.array([False, True, False]))
    np.testing.assert_array_equal(agent.probabilities(STACKS)[1], fresh[1])
    np.testing.assert_array_equal(agent.probabilities(STACKS)[::2], later[::2])
    for call in (agent, agent.probabilities, agent.value):
        with pytest.raises(ValueError, match=r"remembers 3 environments, and was called with 1: call reset\(\)"):
            call(STACKS[0])
    with pytest.raises(ValueError, match="remembers 3 environments, and was called with 2"):
        agent.reset(np.ones(2, bool))
    agent.reset()
    np.testing.assert_allclose(agent.probabilities(STACKS[0]), fresh[0], rtol=1e-4)
    _, state = agent.predict(STACKS)
    np.testing.assert_array_equal(agent.probabilities(STACKS), later, err_msg="without a state episodes begin")
    _, begun = agent.predict(STACKS, state, np.array([False, True, False]))
    assert (begun == state).all(axis=(1, 2)).tolist() == [False, True, False]
    agent.predict(STACKS, state)
    again = agent.probabilities(STACKS)
    agent.reset()
    for _ in range(2):
        agent(STACKS)
    np.testing.assert_array_equal(agent.probabilities(STACKS), again, err_msg="the caller's state is its own")
    agent.reset()
    assert (type(agent(STACKS[0])), type(agent.value(STACKS[0]))) == (int, float)
    plain = ringside.load_agent(random_weights(tmp_path / "plain", method="a2c"), device="cpu")
    plain.reset()
    assert not plain.recurrent


OTHERS = [STACKS[0] / 255, STACKS[0, 0], STACKS[None], STACKS[:0], STACKS[0].transpose(1, 2, 0)]


@pytest.mark.parametrize("wrong", OTHERS)
def test_another_observation_is_refused(tmp_path: Path, wrong: np.ndarray) -> None:
    agent = ringside.load_agent(random_weights(tmp_path), device="cpu")
    with pytest.raises(ValueError, match=r"uint8\[4, 84, 84\].*this one is"):
        agent(wrong)


ENVS = [("nature", 4, 0.0, 25, 4, 84), ("machado", 18, 0.25, 0, 4, 84), ("envpool", 4, 0.0, 25 + 4, 3, 64)]


@pytest.mark.parametrize(("protocol", "actions", "sticky", "played", "stack", "size"), ENVS)
def test_its_env_follows_the_protocol(
    tmp_path: Path, protocol: str, actions: int, sticky: float, played: int, stack: int, size: int
) -> None:
    """After as many frames of no-ops as the seed says, and four of FIRE."""
    seen = {"frame_stack": stack, "frame_size": size}
    weights = random_weights(tmp_path, "breakout", actions=actions, protocol=protocol, **seen)
    agent = ringside.load_agent(weights, device="cpu")
    env = agent.env()
    assert env.unwrapped.spec.kwargs["repeat_action_probability"] == sticky
    assert env.action_space == gymnasium.spaces.Discrete(actions)
    observation, _ = env.reset(seed=3)
    assert (observation.shape, observation.dtype) == ((stack, size, size), np.uint8)
    assert (observation[-1].any(), observation[:-1].any()) == (True, False)
    assert env.unwrapped.ale.getEpisodeFrameNumber() == played
    observation, *_ = env.step(agent(observation))
    assert (observation[-2].any(), observation[:-2].any()) == (True, False)


def test_an_env_of_another_kind_has_no_gymnasium_twin(tmp_path: Path) -> None:
    agent = ringside.load_agent(random_weights(tmp_path, "tests.support.pixel_game:factory", actions=3), device="cpu")
    with pytest.raises(ConfigError, match="make that environment yourself"):
        agent.env()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    example = ("examples/play_with_gymnasium.py", str(random_weights(tmp_path)))
    said = finish(start_words("--steps", "20", program=example))
    assert ("pong: " in said, "after 20 steps" in said) == (True, True), said


def test_the_notebook_runs_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # a batch of one is too small for several threads
    notebook = nbformat.read(ROOT / "examples" / "first_run.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * 10
    NotebookClient(notebook, timeout=100).execute()
    assert sum("image/png" in output.get("data", ()) for cell in cells for output in cell.outputs) == 2
    assert {path.name for path in tmp_path.iterdir()} <= {"profile_default", "runtime"}


def test_the_snippet_of_plain_torch_is_the_network(tmp_path: Path) -> None:
    weights = random_weights(tmp_path, network="nature")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "agents.md").read_text(), re.DOTALL)
    (snippet,) = [block for block in blocks if "load_file" in block]
    assert len([line for line in snippet.splitlines() if line and not line.startswith(("import", "from"))]) == 5
    assert "import ringside" not in snippet
    names = {"observation": torch.from_numpy(STACKS)}
    exec(snippet.replace("zoo/pong/weights.safetensors", str(weights)), names)
    expected = ringside.load_agent(weights, device="cpu").q_values(STACKS)
    np.testing.assert_allclose(names["q"].numpy(), expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected).max() > 0.1


def test_a_network_plays_only_games_with_its_actions(tmp_path: Path) -> None:
    weights = weights_at(random_weights(tmp_path))
    for game in ("pong", "space_invaders"):
        require_actions(weights, Config().with_settings(game=game).play)
    with pytest.raises(ConfigError, match=r"qbert has the actions NOOP FIRE UP .* but the agent was trained on pong"):
        require_actions(weights, Config().with_settings(game="qbert").play)
    machado = Config().with_settings(game="pong", protocol="machado").play
    with pytest.raises(ConfigError, match=r"machado has 18"):
        require_actions(replace(weights, protocol="machado"), machado)


@pytest.mark.parametrize("load", ["nowhere", "zoo/nowhere", "runs/nowhere", "zoo/../secret"])
def test_a_missing_agent_is_refused(load: str) -> None:
    with pytest.raises(ConfigError, match=f"--load {load} does not exist: no such run.*zoo"):
        ringside.load_agent(load)
