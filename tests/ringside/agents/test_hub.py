"""`zoo push` and `zoo pull` against a local stand-in of the Hub."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import ringside
from ringside.zoo import catalogue
from tests.conftest import Launch, Refused
from tests.ringside.zoo.test_zoo import CATCH, make_run
from tests.support.fake_hub import COMMIT, FakeHub, fake_hub

pytest.importorskip("huggingface_hub", reason="there is no huggingface_hub here: the extra hub of setup.cfg")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The stand-in, and a zoo of its own with the agent of Pong."""
    shutil.copytree(catalogue.ZOO / "pong", tmp_path / "zoo" / "pong")
    monkeypatch.setattr(catalogue, "ZOO", tmp_path / "zoo")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with fake_hub() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def test_an_agent_is_pushed_with_a_model_card_and_pulled_again(hub: FakeHub, launch: Launch) -> None:
    ours = catalogue.ZOO / "pong"
    (ours / catalogue.CURVE).write_bytes(b"a picture")
    shown = catalogue.SHOWN[catalogue.CURVE]
    (ours / catalogue.README).write_text(f"{(ours / catalogue.README).read_text()}\n{shown}\n")
    done = launch("zoo", "push", "pong", "--repo", "someone/pong-dqn", "--private")
    assert (done.returncode, done.stderr, hub.private) == (0, "", {"someone/pong-dqn"})
    assert done.stdout == f"pong is at {hub.endpoint}/someone/pong-dqn/commit/{COMMIT}.\n"
    files = hub.files["someone/pong-dqn"]
    weights = (ours / "weights.safetensors").read_bytes()
    assert (files["weights.safetensors"], files["curve.png"]) == (weights, b"a picture")
    _, head, text = files["README.md"].decode().split("---\n", 2)
    about = yaml.safe_load(head)
    assert (about["library_name"], {"pong", "atari"} <= set(about["tags"])) == ("ringside", True)
    assert about["model-index"][0]["results"][0]["metrics"][0]["value"] == "14.57 +/- 3.97"
    for words in ("zoo pull someone/pong-dqn", "play --load pong_dqn"):  # as it is named where it is pulled
        assert f"python launch.py {words}" in text
    assert shown in text

    pulled = launch("zoo", "pull", "someone/pong-dqn")
    assert (pulled.returncode, pulled.stderr, catalogue.names()) == (0, "", ("pong", "pong_dqn"))
    assert pulled.stdout.startswith("pong_dqn: pong, protocol nature, mean 14.57")
    theirs = catalogue.ZOO / "pong_dqn"
    assert (theirs / "weights.safetensors").read_bytes() == weights
    assert not (theirs / catalogue.CURVE).exists()
    assert shown not in (theirs / catalogue.README).read_text()


def test_python_pushes_and_pulls_as_the_command_does(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert ringside.push_to_hub("pong", "someone/pong-dqn") == f"{hub.endpoint}/someone/pong-dqn/commit/{COMMIT}"
    assert not hub.private
    assert ringside.pull_from_hub("someone/pong-dqn", name="theirs") == catalogue.ZOO / "theirs"
    assert ringside.load_agent("theirs", device="cpu").game == "pong"
    assert capsys.readouterr().out == ""


def test_the_agent_of_an_env_is_pushed_without_an_emulators_words(hub: FakeHub, tmp_path: Path) -> None:
    """The name of the env is no name of a directory."""
    source = make_run(tmp_path / "run") / "checkpoints" / "best.safetensors"
    ringside.push_to_hub(source, "someone/catch", env=CATCH, device="cpu")
    card = hub.files["someone/catch"]["README.md"].decode()
    assert ("atari" in card, "protocol" in card) == (False, False)
    assert f"play --load catch --env {CATCH}\n" in card
    assert ringside.pull_from_hub("someone/catch").name == "catch"


def test_a_repository_without_an_agent_is_not_kept(hub: FakeHub, refused: Refused, launch: Launch) -> None:
    launch("zoo", "push", "pong", "--repo", "someone/pong")
    files = hub.files["someone/pong"]
    whole, evaluation = dict(files), json.loads(files["evaluation.json"])

    def evaluated(**change: str) -> bytes:
        return json.dumps(evaluation | change).encode()

    for file, content, says in (
        ("weights.safetensors", b"nonsense" * 100, "is not an agent of Ringside"),
        ("evaluation.json", evaluated(mean="much"), "evaluation.json has mean 'much'"),
        ("evaluation.json", evaluated(game="breakout"), "('breakout', 'nature'), not of ('pong', 'nature')"),
        ("evaluation.json", evaluated(game="\x1b[2J"), "of game and protocol ('\\x1b[2J', 'nature'), not of"),
        ("README.md", b"\xff\xfe", "someone/pong is not an agent of Ringside: 'utf-8' codec"),
        ("README.md", b"x" * (1 << 21), "README.md has 2,097,152 bytes; it needs 1 to 1,048,576"),
        ("summary.json", b"", "summary.json has 0 bytes"),
    ):
        files.update(whole | {file: content})
        assert says in refused("zoo", "pull", "someone/pong", "--name", "other")
    assert catalogue.names() == ("pong",)


def test_mistakes_are_told_in_a_sentence(hub: FakeHub, refused: Refused) -> None:
    stray = shutil.copy(catalogue.ZOO / "pong" / "weights.safetensors", "stray.safetensors")
    assert "name a run, or a file of weights in its directory." in refused("zoo", "push", stray, "--repo", "me/pong")
    Path("empty").mkdir()
    said = refused("zoo", "push", "empty", "--repo", "me/pong")
    assert "--push empty cannot be used. There is no run and no checkpoint in empty" in said
    for words in (("pull", "pong", "--name", "other"), ("push", "runs/nowhere", "--repo", "pong")):
        assert "'pong' is no repository of the Hub: write USER/NAME" in refused("zoo", *words)
    assert "The zoo has a pong already" in refused("zoo", "pull", "someone/pong")
    assert "--repo is for --push" in refused("zoo", "--repo", "someone/pong")
    assert "are two things" in refused("zoo", "push", "pong", "--pull", "someone/pong")
    hub.refuse = 403
    assert "someone/pong cannot be pushed: " in refused("zoo", "push", "pong", "--repo", "someone/pong")
    assert "someone/pong cannot be pulled: " in refused("zoo", "pull", "someone/pong", "--name", "other")
