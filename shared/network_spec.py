"""Specifications of networks, without torch; their parameters are in shared/network_parameters.py."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from shared.config.method_declaration import MOST_ATOMS
from shared.config.sections import MOST_WIDTH
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.frame_shape import BLOCK, FRAME_SIDE, MOST_SIDE, MOST_STACK, STACK, FrameShape


class Convolution(NamedTuple):
    """A convolution without padding, with a ReLU."""

    channels: int
    kernel: int
    stride: int

    @property
    def reads_blocks(self) -> bool:
        """True if it can be computed on blocks of 4x4 pixels, as the first convolution is."""
        return self.stride == BLOCK and self.kernel % BLOCK == 0


class PlainLayers(NamedTuple):
    """Layers of a plain network before its output."""

    convolutions: tuple[Convolution, ...]
    hidden: int
    """Units of the hidden layer."""


PLAIN_NETWORKS = {
    "nature": PlainLayers((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), 512),
    "a3c": PlainLayers((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),
    "small": PlainLayers((Convolution(16, 8, 4), Convolution(16, 4, 2)), 64),
}
"""Plain networks by name.

nature: Mnih et al. 2015, Methods. a3c: Mnih et al. 2013, section 4.1, and 2016, supplementary section 8.
"""

IMPALA = (16, 32, 32)
"""Channels of the blocks of residual networks, times their width (Espeholt et al. 2018, figure 3, right)."""
IMPALA_HIDDEN = 512
"""Hidden units behind them, as BTR has them; the network of 2018 has 256."""
RESIDUALS = 2
"""Residual parts of a block."""
COSINES = 64
"""Cosines in which a quantile fraction is embedded (Dabney et al. 2018b, section 3.1)."""

LSTM_UNITS = 256
"""Units of an LSTM (Mnih et al. 2016; Espeholt et al. 2018, figure 3), or as many as hidden units where fewer."""

RESCALING = 1e-3
"""epsilon of the scale h of rescaled values (R2D2: Kapturowski et al. 2019, section 2.3)."""

_LEFT_OUT = {
    "value_output": False,
    "conv_norm": False,
    "recurrent": 0,
    "frame_size": FRAME_SIDE,
    "frame_stack": STACK,
    "frame_channels": 1,
}
"""Fields of a network that its JSON leaves out where they have these values, as in files of earlier versions."""
_LIMITS = {
    "actions": 4096,
    "atoms": MOST_ATOMS,
    "width": MOST_WIDTH,
    "frame_size": MOST_SIDE,
    "frame_stack": MOST_STACK,
    "frame_channels": 3,
}
_METHOD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""A name of a method, and never a path of modules."""
_NETWORK_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def network_names() -> list[str]:
    """Names of the networks there are, the built-in ones first."""
    return [*PLAIN_NETWORKS, "impala"]


def register_network(name: str, convolutions: Sequence[tuple[int, int, int]], hidden: int) -> None:
    """Add a network of plain convolutions and one hidden layer to those that --network may name.

    A second registration of the same layers has no effect.

    Args:
        name: value of --network: lower-case letters, digits, hyphens and underscores.
        convolutions: layers (channels, kernel, stride), each with ReLU; the first has a stride of 4.
        hidden: units of the hidden layer.

    Raises:
        ConfigError: another network has the name, or the layers fit no frames. A run checks them against its
            --frame-size.
    """
    layers = PlainLayers(tuple(itertools.starmap(Convolution, convolutions)), hidden)
    side = MOST_SIDE
    for _, kernel, stride in layers.convolutions:
        side = (side - kernel) // stride + 1 if 1 <= kernel <= side and stride >= 1 else 0
    if not _NETWORK_NAME.fullmatch(name):
        raise ConfigError(f"A network cannot be called {name!r:.60}: use lower-case letters, digits and hyphens.")
    # Frames are read in blocks (learner/replay/gather.py).
    if side < 1 or not layers.convolutions or not layers.convolutions[0].reads_blocks:
        raise ConfigError(
            f"The network {name} fits no frames of at most {MOST_SIDE}x{MOST_SIDE}: its first convolution needs a "
            f"stride of {BLOCK} and a kernel that is a multiple of it, and no kernel may exceed its input."
        )
    if hidden < 1 or min(each.channels for each in layers.convolutions) < 1:
        raise ConfigError(f"The network {name} has a layer without units: give each at least 1.")
    if name == "impala" or PLAIN_NETWORKS.setdefault(name, layers) != layers:
        raise ConfigError(f"There is a network {name} already: register yours by another name.")


class Torso(NamedTuple):
    """Output of a network's convolutions."""

    channels: int
    side: int

    @property
    def features(self) -> int:
        """Numbers of one observation."""
        return self.channels * self.side * self.side


@dataclass(frozen=True)
class Network:
    """Everything needed to build a network and to act with it."""

    name: str
    """A key of `PLAIN_NETWORKS`, or impala."""
    actions: int
    method: str = "dqn"
    """Method that defines the meaning of its outputs (learner/methods)."""
    atoms: int = 1
    """Outputs for each action."""
    v_min: float = 0.0
    """With c51, the least and greatest return that the atoms stand for."""
    v_max: float = 0.0
    dueling: bool = False
    noisy: float = 0.0
    """sigma_0 of noisy layers; 0: ordinary ones."""
    width: int = 1
    """With impala, what its channels are multiplied with."""
    pooling: bool = False
    spectral_norm: bool = False
    layer_norm: bool = False
    """True if hidden units are normalized over the layer."""
    fractions: int = 0
    """With iqn, the number of quantiles that choose an action."""
    rescaled: bool = False
    """True if the outputs are returns on the scale of `--value-rescaling`."""
    value_output: bool = False
    """True if the network is an actor-critic: logits of the actions, and behind them the value of the state."""
    conv_norm: bool = False
    """True if the output of each plain convolution is normalized over its channels."""
    recurrent: int = 0
    """Units of an LSTM behind the hidden layer; 0: there is none."""
    frame_size: int = FRAME_SIDE
    frame_stack: int = STACK
    frame_channels: int = 1

    @property
    def frames(self) -> FrameShape:
        """Shape of its observations."""
        return FrameShape(self.frame_size, self.frame_stack, self.frame_channels)

    @property
    def plain(self) -> bool:
        """True if it is plain convolutions and two linear layers, whatever the outputs mean."""
        extra = self.dueling or self.noisy or self.pooling or self.spectral_norm or self.layer_norm or self.conv_norm
        extra = extra or self.recurrent
        return self.name in PLAIN_NETWORKS and not extra and self.method != "iqn"

    @property
    def outputs(self) -> int:
        """Outputs of one observation, each of which has `atoms` numbers."""
        return self.actions + self.value_output

    @property
    def head(self) -> str:
        """Name of the last layer, or with dueling of that of the state's value."""
        return "heads" if self.value_output else "value"

    @property
    def hidden(self) -> int:
        """Units of the hidden layer."""
        return PLAIN_NETWORKS[self.name].hidden if self.name in PLAIN_NETWORKS else IMPALA_HIDDEN

    @property
    def torso(self) -> Torso:
        """Shape of the features. Frames that are too small have a side of less than 1."""
        side = self.frame_size
        if self.name in PLAIN_NETWORKS:
            layers = PLAIN_NETWORKS[self.name].convolutions
            for _, kernel, stride in layers:
                side = (side - kernel) // stride + 1
            channels = layers[-1][0]
        else:
            for _ in IMPALA:
                side = (side + 1) // 2  # pooling of 3x3 with stride 2 and a border of 1
            channels = IMPALA[-1] * self.width
        return Torso(channels, (side + 1) // 2 if self.pooling else side)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: value for name, value in asdict(self).items() if _LEFT_OUT.get(name) != value}

    @classmethod
    def from_json(cls, values: Any) -> Network:
        """The inverse. Nothing is trusted: raises `ValueError` for values that describe no possible network."""
        kinds = {item.name: type(getattr(_EXAMPLE, item.name)) for item in fields(cls)}
        if not isinstance(values, dict) or values.keys() | _LEFT_OUT.keys() != kinds.keys():
            raise ValueError("it does not say what it is")
        for name, value in values.items():
            if type(value) is not kinds[name] and not (kinds[name] is float and type(value) is int):
                raise ValueError(f"{name} is {value!r:.40}")
            if type(value) in (int, float) and not (math.isfinite(value) and abs(value) < 1e9):
                raise ValueError(f"{name} is {value!r:.40}")
        for name, most in _LIMITS.items():
            if not 1 <= values.get(name, 1) <= most:
                raise ValueError(f"{name} is {values[name]}")
        if not (values["method"] == "iqn") <= values["fractions"] <= MOST_ATOMS:
            raise ValueError(f"fractions is {values['fractions']}")
        if values.get("value_output") and (values["dueling"] or values["noisy"] or values["atoms"] != 1):
            raise ValueError("value_output is True beside parts of networks of action values")
        if not 0 <= values.get("recurrent", 0) <= LSTM_UNITS:
            raise ValueError(f"recurrent is {values['recurrent']}")
        if values.get("recurrent") and not values.get("value_output"):
            raise ValueError("recurrent is not 0 in a network without value_output")
        if values.get("conv_norm") and values["name"] == "impala":
            raise ValueError("conv_norm is True with the network impala")
        if values["name"] not in (*PLAIN_NETWORKS, "impala"):
            raise ValueError(
                f"there is no network {values['name']!r:.40}; pass --plugin if a plug-in of yours registers it"
            )
        if not _METHOD_NAME.fullmatch(values["method"]):
            raise ValueError(f"there is no method {values['method']!r:.40}")
        made = cls(**values)
        if made.frame_size % BLOCK or made.frame_channels == 2 or made.torso.side < 1:
            raise ValueError(f"its frames are {made.frame_size} pixels wide, in {made.frame_channels} channels")
        return made

    def __str__(self) -> str:
        """Its name and what differs from the plain network of that name."""
        said = [f"{item.name}={getattr(self, item.name)}" for item in fields(self)[2:]]
        plain = [f"{item.name}={item.default}" for item in fields(self)[2:]]
        return " ".join([self.name, *(word for word, usual in zip(said, plain, strict=True) if word != usual)])

    def differences(self, other: Network) -> list[str]:
        """Options that give another network than `other`, with both values: "--method dqn, here ppo"."""
        here = other._options()
        return [f"{flag} {value}, here {here[flag]}" for flag, value in self._options().items() if here[flag] != value]

    def _options(self) -> dict[str, str]:
        """The options that decide the network, except those of a method, with their values."""
        normalize = "all" if self.conv_norm else "last" if self.layer_norm else "none"
        values: dict[str, Any] = {
            "--network": self.name,
            "--method": self.method,
            "--dueling": self.dueling,
            "--noisy": self.noisy > 0,
            "--width": self.width,
            "--pooling": self.pooling,
            "--spectral-norm": self.spectral_norm,
            "--normalize": normalize,
            "--value-rescaling": self.rescaled,
            "--recurrent": self.recurrent > 0,
            "--frame-size": self.frame_size,
            "--frame-stack": self.frame_stack,
            "--frame-color": "gray" if self.frame_channels == 1 else "rgb",
        }
        words = {True: "on", False: "off"}
        return {flag: words[value] if isinstance(value, bool) else str(value) for flag, value in values.items()}


_EXAMPLE = Network("nature", 1)


def network_of(config: Config, actions: int) -> Network:
    """The network of a configuration."""
    learn, algorithm = config.learn, config.algorithm
    network = Network(
        name=learn.network,
        actions=actions,
        method=algorithm.method,
        dueling=algorithm.dueling,
        noisy=algorithm.noisy_std if algorithm.noisy else 0.0,
        width=algorithm.width,
        pooling=algorithm.pooling,
        spectral_norm=algorithm.spectral_norm,
        layer_norm=algorithm.normalize != "none",
        conv_norm=algorithm.normalize == "all",
        rescaled=algorithm.value_rescaling,
        frame_size=config.play.frame_size,
        frame_stack=config.play.frame_stack,
        frame_channels=config.play.frames.channels,
        **algorithm.settings.network_fields(),
    )
    return replace(network, recurrent=min(LSTM_UNITS, network.hidden)) if algorithm.recurrent else network


def least_frame_size(network: Network) -> int:
    """Least --frame-size of which convolutions leave something; larger ones do, too."""
    sizes = range(BLOCK, MOST_SIDE + 1, BLOCK)
    return next(size for size in sizes if replace(network, frame_size=size).torso.side >= 1)
