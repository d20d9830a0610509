"""Shapes of observations, and what the constants of the default are used for."""

import re
from dataclasses import asdict
from typing import Any

import pytest

from shared.config.settings import Config
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.network_parameters import parameters_of
from shared.network_spec import Network, least_frame_size
from shared.root import ROOT

TORSO = {"features": 4, "hidden": 8, "shapes": [["weight", [4]]]}
CRITIC = {"method": "a2c", "value_output": True}


def test_gray_and_color() -> None:
    assert (DEFAULT_FRAMES.frame, DEFAULT_FRAMES.observation) == ((84, 84), (4, 84, 84))
    assert (DEFAULT_FRAMES.planes, DEFAULT_FRAMES.nbytes, DEFAULT_FRAMES.blocks(2)) == (4, 7_056, (2, 21, 21, 64))
    frames = Config().with_settings(frame_size=64, frame_color="rgb", frame_stack=2).play.frames
    assert frames == FrameShape(64, 2, 3)
    assert (frames.frame, frames.observation) == ((3, 64, 64), (2, 3, 64, 64))
    assert (frames.planes, frames.nbytes, frames.blocks(2, planes=9)) == (6, 12_288, (2, 16, 16, 144))
    assert str(frames) == "2 rgb frames of 64x64"


@pytest.mark.parametrize(("name", "least"), [("nature", 36), ("a3c", 20), ("small", 20), ("der", 28), ("impala", 4)])
def test_layers_follow_from_the_frames(name: str, least: int) -> None:
    assert least_frame_size(Network(name, 3)) == least
    for size in (least, 64, 128):
        network = Network(name, 3, frame_size=size, frame_stack=2, frame_channels=3)
        shapes = dict(parameters_of(network).shapes)
        assert next(shape for shape in shapes.values() if len(shape) == 4)[1] == 6
        assert shapes["hidden.weight"][1] == network.features >= 1


IMPOSSIBLE = [
    ({"frame_size": 86}, "its frames are 86 pixels wide"),
    ({"frame_size": 32}, "its frames are 32 pixels wide"),
    ({"frame_channels": 2}, "frame_channels is 2"),
    ({"name": "m:C"}, "there is no network 'm:C'"),
    ({"own": TORSO}, "own is not None with the network 'nature'"),
    *(({"name": "m:C", "own": TORSO | more}, "own") for more in ({"features": 0}, {"shapes": [["weight", [-1]]]})),
    ({"frame_size": 1_024}, "frame_size is 1024"),
    ({"frame_stack": 0}, "frame_stack is 0"),
    ({"frame_stack": True}, "frame_stack is True"),
    *(({"method": name}, "method is ") for name in ("dqn.evil", "../evil", "__main__", "", "os\n")),
    *((part | CRITIC, "value_output is True beside") for part in ({"dueling": True}, {"noisy": 0.5}, {"atoms": 2})),
]


@pytest.mark.parametrize(("values", "says"), IMPOSSIBLE)
def test_a_file_cannot_name_an_impossible_network(values: dict[str, Any], says: str) -> None:
    """A method is a name, and no path of modules."""
    written = asdict(Network("nature", 3))
    assert Network.from_json(written | CRITIC).value_output
    with pytest.raises(ValueError, match=says):
        Network.from_json(written | values)


def test_only_defaults_know_a_size() -> None:
    """A run takes sizes from its configuration. A constant of the default would be right in every test but those of
    other sizes."""
    may = {"shared/config/sections.py", "shared/network_spec.py", "shared/frame_shape.py"}
    may |= {"ringside/report/report_page.py"}
    may |= {"actors/envs/atari.py", "actors/pixels/frames.py", "actors/pixels/bilinear.py"}  # the kernel of one size
    for package in ("actors", "learner", "workers", "shared", "ringside"):
        for path in (ROOT / package).rglob("*.py"):
            where = str(path.relative_to(ROOT))
            imports = re.findall(r"from shared\.frame_shape import (\([^)]*\)|.*)", path.read_text())
            assert where in may or not re.search(r"\b(FRAME_SIDE|STACK)\b", " ".join(imports)), where
