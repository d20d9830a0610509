"""Other systems beside Ringside: what cannot be installed is named, what they say is checked, the best are compared."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.harness import CannotRun, Options, Report, WrongResult

REFUSAL = "pip install torch failed: ERROR: No matching distribution found for torch"


@pytest.fixture(autouse=True)
def fresh() -> None:
    """No environment is known yet."""
    peers.refusal.cache_clear()


def options(names: Sequence[str]) -> Options:
    sizes = {"seconds": 6.0, "repeats": 2, "peer_steps": 400}
    return Options(names=names, game="pong", words=["--device", "cpu"], cleanrl=None, **sizes)


def test_a_missing_peer_is_named_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(peers, "refusal", lambda: REFUSAL)
    peers.run(options(peers.NAMES), report)
    assert report.rows == {}, "without a peer there is nothing to compare Ringside with"
    labels = {peer.label for peer in peers.PEERS.values()} | {label for label, _ in peers.VECTORS.values()}
    assert report.missing.keys() == labels
    for name in ("CleanRL dqn_atari", "CleanRL ppo_atari"):
        assert "pass --cleanrl" in report.missing.pop(name)
    assert set(report.missing.values()) == {REFUSAL}


def fake_python(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an interpreter of the peers with pip that does what a shell script says."""
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\n{script}\n')
    python.chmod(0o755)
    monkeypatch.setattr(peers, "PYTHON", str(python))
    monkeypatch.setattr(peers, "PIP", (str(python), *peers.PIP[1:]))


def test_pip_is_quoted_and_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"echo asked >> {tmp_path}/asked; echo 'ERROR: No network' >&2; echo 'notice: a new pip' >&2; exit 1"
    fake_python(tmp_path / "venv", script, monkeypatch)
    for _ in range(2):
        with pytest.raises(CannotRun, match=r"torch==.* failed: ERROR: No network$"):
            peers.install("stable-baselines3")
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_torch_comes_first_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "venv", f'echo "$@" >> {tmp_path}/asked', monkeypatch)
    peers.install("pfrl==0.4.0", "ale-py")
    peers.install("gymnasium")
    first, second, third = (line.split()[7:] for line in (tmp_path / "asked").read_text().splitlines())
    assert [package.partition("==")[0] for package in first] == ["torch"]
    assert (second, third) == (["pfrl==0.4.0", "ale-py"], ["gymnasium"])


def test_the_last_line_is_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "venv", 'echo chatter; [ "$3" = sb3 ] && echo \'{"steps": 3}\'; exit 0', monkeypatch)
    assert peers.run_program(["sb3"], 10.0) == {"steps": 3}
    with pytest.raises(WrongResult, match="printed no result"):
        peers.run_program(["pfrl"], 10.0)
    with pytest.raises(CannotRun, match=r"did not end within 0 s\."):
        peers.run_command(["sleep", "10"], 0.1)


DONE = {"steps": 400, "updates": 100, "seconds": 4.0, "threads": 2}
SEEN = {"steps": 320, "seconds": 4.0, "looks": 10, "seen": 10}


CHECKED = [
    (True, DONE, ({"updates": 98}, {"updates": 102}, {"steps": 399}, {"threads": 1})),
    (False, SEEN, ({"seen": 9}, {"looks": 0, "seen": 0})),
]


@pytest.mark.parametrize(("learns", "told", "wrongs"), CHECKED)
def test_figures_of_a_peer_are_checked(
    monkeypatch: pytest.MonkeyPatch, *, learns: bool, told: dict[str, Any], wrongs: tuple[dict[str, int], ...]
) -> None:
    def speed(wrong: dict[str, int]) -> float:
        monkeypatch.setattr(peers, "run_program", lambda words, seconds: told | wrong)
        return peers.agent_speed("DQN", ["sb3"], 2, 400) if learns else peers.env_speed("ale", "pong", 32, 2, 4.0)

    assert speed({}) == (100.0 if learns else 80.0)
    for wrong in wrongs:
        with pytest.raises(WrongResult, match="were asked for" if learns else "It played"):
            speed(wrong)


def test_ours_stands_beside_the_better_setting_of_each_peer(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    speeds = {"sb3": (50.0, 60.0, 100.0), "pfrl": (60.0, 80.0, 40.0), "sb3-ppo": (30.0, 20.0, 10.0)}

    def agent_speed(job: str, words: Sequence[str], threads: int, least: int) -> float:
        return speeds[words[0]][threads - 1] * (2.0 if "--env-processes" in words else 1.0)

    monkeypatch.setattr(peers, "install", lambda *packages: None)
    monkeypatch.setattr(peers, "usable_cores", lambda: 3)
    monkeypatch.setattr(peers, "agent_speed", agent_speed)
    monkeypatch.setattr(peers, "run_speed", lambda words, seconds: 200.0 if "fp32" in words else 400.0)
    monkeypatch.setattr(peers, "env_speed", lambda kind, game, envs, threads, seconds: 100.0 * threads)
    monkeypatch.setattr(peers, "actors_at_random", lambda game, size, seconds: 150.0 * size + seconds)
    peers.run(options(["sb3", "pfrl", "sb3-ppo", "ale", "async"]), report)
    assert (report.missing, report.wrong) == ({}, {})
    most = pytest.approx(451 / 300)
    ratios = {name: (row.values[0], row.note) for name, row in report.rows.items() if row.unit == "times"}
    assert ratios == {
        "Ringside, DQN : Stable-Baselines3 DQN": (4.0, "Stable-Baselines3 DQN, 3 threads"),
        "Ringside, fp32, DQN : Stable-Baselines3 DQN": (2.0, "Stable-Baselines3 DQN, 3 threads"),
        "Ringside, DQN : PFRL DQN": (5.0, "PFRL DQN, 2 threads"),
        "Ringside, fp32, DQN : PFRL DQN": (2.5, "PFRL DQN, 2 threads"),
        "Ringside, PPO : Stable-Baselines3 PPO": (20 / 3, "Stable-Baselines3 PPO, 1 thread, envs in processes"),
        "Ringside, fp32, PPO : Stable-Baselines3 PPO": (10 / 3, "Stable-Baselines3 PPO, 1 thread, envs in processes"),
        "Ringside's actors, 1 process : AtariVectorEnv, 1 thread": (1.51, "AtariVectorEnv, 1 thread"),
        "Ringside's actors, 2 processes : AtariVectorEnv, 2 threads": (1.505, "AtariVectorEnv, 2 threads"),
        "Ringside's actors, 3 processes : AtariVectorEnv, 3 threads": (most, "AtariVectorEnv, 3 threads"),
        "Ringside's actors, 3 processes : AsyncVectorEnv, 12 envs": (most, "AsyncVectorEnv, 12 envs"),
    }


CLEANRL_PPO = """
import gymnasium, torch
from gymnasium.wrappers import FrameStack, GrayScaleObservation

envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
envs.reset(seed=1)
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
for _ in range(10):
    for _ in range(128):
        envs.step(envs.action_space.sample())
    for _ in range(16):
        optimizer.step()
"""


def result_of(*words: str) -> dict[str, Any]:
    """Result of the peers' program, run by this interpreter."""
    return json.loads(peers.run_command([sys.executable, "-P", str(peers.PROGRAM), *words], 100.0))


def test_whole_rollouts_of_an_unchanged_file_of_cleanrl_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "clone" / "cleanrl" / "ppo_atari.py"
    file.parent.mkdir(parents=True)
    file.write_text(CLEANRL_PPO)
    result = result_of("cleanrl-ppo", "--clone", str(tmp_path / "clone"), "--threads", "1", "--steps", "2000")
    assert (result["steps"], result["updates"], result["threads"], result["seconds"] > 0) == (2_048, 32, 1, True)


@pytest.mark.parametrize("kind", ["ale", "sync"])
def test_envs_at_random_are_looked_at(kind: str) -> None:
    result = result_of(kind, "--game", "pong", "--envs", "2", "--seconds", "0.1")
    assert result["seen"] == result["looks"] == result["steps"] // 64 > 0
