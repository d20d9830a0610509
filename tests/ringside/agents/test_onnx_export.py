"""`export`: every network in ONNX gives the agent's numbers; a file that does not is not written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringside
from ringside.agents.evaluating import EvaluationPolicy
from ringside.agents.stored_weights import weights_at
from shared.errors import ConfigError
from tests.conftest import Launch, Refused
from tests.support.checkpoints import random_weights

onnx = pytest.importorskip("onnx", reason="there is no onnx here: the extra export of setup.cfg")
onnxruntime = pytest.importorskip("onnxruntime", reason="there is no onnxruntime here: the extra export of setup.cfg")
pytest.importorskip("onnxscript", reason="there is no onnxscript here: the extra export of setup.cfg")

from ringside.agents import onnx_graph  # noqa: E402  (after the packages that it needs)


def answers(content: bytes, **inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of a file by onnxruntime."""
    return onnxruntime.InferenceSession(content).run(None, inputs)


NETWORKS: list[dict[str, Any]] = [
    {"method": "c51"},
    {"method": "qr-dqn", "dueling": True},
    {"method": "iqn", "iqn_policy_samples": 8},
    {"dueling": True, "noisy": True},
    {"value_rescaling": True, "normalize": "all", "frame_size": 48, "frame_stack": 2, "frame_color": "rgb"},
    {"network": "impala", "spectral_norm": True, "pooling": True, "normalize": "last"},
    {"method": "ppo", "network": "small"},
    {"method": "a2c", "network": "a3c", "normalize": "last", "recurrent": True},
]


@pytest.mark.parametrize("settings", NETWORKS, ids=lambda each: "-".join(map(str, each.values())))
def test_every_network_gives_the_numbers_of_the_agent(tmp_path: Path, settings: dict[str, Any]) -> None:
    weights = weights_at(random_weights(tmp_path, **settings))
    content = onnx_graph.make_onnx(weights, {"game": weights.game})
    policy = EvaluationPolicy(weights, "cpu", captured=False).policy
    stacks = np.random.default_rng(2).integers(0, 256, (8, *weights.network.frames.observation), np.uint8)
    state = np.random.default_rng(3).normal(size=(8, 2, 256)).astype(np.float32)
    given = {"state": state} if weights.network.recurrent else {}
    ours = policy.values(stacks, **given)
    expected = [ours, *([policy.state_values] if weights.network.value_output else [])]
    expected += [policy.next_state] if given else []
    theirs = answers(content, observation=stacks, **given)
    few = answers(content, observation=stacks[:3], **{name: rows[:3] for name, rows in given.items()})
    for each, their, its_few in zip(expected, theirs, few, strict=True):
        close = 1e-4 * max(1.0, float(np.abs(each).max()))
        np.testing.assert_allclose(their, each, atol=close)
        np.testing.assert_allclose(its_few, each[:3], atol=close)
    assert np.ptp(ours, axis=0).max() > 1e-4, "the outputs depend on the observation"
    assert not given or np.abs(ours - policy.values(stacks)).max() > 1e-3, "and on the state"


def test_the_agent_of_the_zoo_is_exported_and_checked_on_frames_that_it_plays(tmp_path: Path, launch: Launch) -> None:
    done = launch("export", "--load", "pong", "--onnx", "pong.onnx", "--frames", "60")
    assert (done.returncode, done.stderr) == (0, "")
    assert "On 64 observations onnxruntime differs by" in done.stdout
    model = onnx.load(str(tmp_path / "pong.onnx"))
    onnx.checker.check_model(model, full_check=True)
    about = {prop.key: prop.value for prop in model.metadata_props}
    assert (about["game"], json.loads(about["actions"])[:2]) == ("pong", ["NOOP", "FIRE"])
    stacks = np.random.default_rng(2).integers(0, 256, (8, 4, 84, 84), np.uint8)
    (values,) = answers((tmp_path / "pong.onnx").read_bytes(), observation=stacks)
    agent = ringside.load_agent("pong", device="cpu")
    np.testing.assert_allclose(values, agent.q_values(stacks), rtol=1e-3, atol=1e-3)


def test_a_recurrent_agent_is_checked_in_the_states_that_it_meets(tmp_path: Path) -> None:
    load = random_weights(tmp_path, "tests.support.pixel_game:factory", actions=3, method="a2c", recurrent=True)
    done = ringside.export_onnx(load, tmp_path / "a.onnx", env="tests.support.pixel_game:factory", frames=20)
    assert (done.frames, done.same_actions) == (24, 1.0)
    graph = onnx.load(str(tmp_path / "a.onnx")).graph
    assert [each.name for each in graph.input] == ["observation", "state"]
    assert [each.name for each in graph.output] == ["logits", "state_value", "next_state"]


def test_other_outputs_than_the_first_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = random_weights(tmp_path, "tests.support.pixel_game:factory", actions=3, method="a2c", recurrent=True)
    answer = onnx_graph._Answer.forward

    def wrong(self: Any, observation: Any, state: Any) -> Any:
        logits, value, after = answer(self, observation, state)
        return logits, value, after + 0.1

    monkeypatch.setattr(onnx_graph._Answer, "forward", wrong)
    with pytest.raises(ConfigError, match="gives other numbers than the agent"):
        ringside.export_onnx(load, tmp_path / "a.onnx", env="tests.support.pixel_game:factory", frames=8)


def test_numbers_that_differ_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = onnx_graph.make_onnx
    other = replace(weights_at("pong"), flat=weights_at("pong").flat * np.float32(1.01))
    monkeypatch.setattr(onnx_graph, "make_onnx", lambda weights, about: make(other, about))
    with pytest.raises(ConfigError, match="gives other numbers than the agent"):
        ringside.export_onnx("pong", tmp_path / "pong.onnx", frames=8)
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_torch_cannot_trace_is_refused(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def values(self: object, outputs: Any) -> Any:
        return outputs[..., 0] if outputs.sum() > 0 else -outputs[..., 0]

    monkeypatch.setattr("learner.methods.dqn.DQN.values", values)
    said = refused("export", "--load", "pong", "--onnx", "pong.onnx")
    assert "The outputs of --method dqn cannot be written as ONNX: " in said
    assert not Path("pong.onnx").exists()


def test_mistakes_are_told_in_a_sentence(refused: Refused) -> None:
    assert "--onnx is missing" in refused("export", "--load", "pong")
    Path("file").touch()
    for path, why in (
        ("nowhere/x.onnx", "its directory does not exist"),
        (".", "it names no file"),
        ("file/x.onnx", "its directory does not exist"),
        (f"{'x' * 300}.onnx", "File name too long"),
    ):
        said = refused("export", "--load", "pong", "--onnx", path, "--frames", "8")
        assert f"--onnx {path} cannot be written: {why}." in said
