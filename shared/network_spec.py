"""Specifications of networks, without torch; their parameters are in shared/network_parameters.py."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from shared.config.method_declaration import MOST_ATOMS, MOST_RETURN
from shared.config.sections import MOST_NOISE, MOST_WIDTH
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
        needs = f"its first convolution needs a stride of {BLOCK} and a kernel that is a multiple of it"
        fault = f"fits no frames of at most {MOST_SIDE}x{MOST_SIDE}"
        raise ConfigError(f"The network {name} {fault}: {needs}, and no kernel may exceed its input.")
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
    actions: Annotated[int, Meta(ge=1, le=4096)]
    method: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*\Z")] = "dqn"
    """Method that defines the meaning of its outputs (learner/methods): a name, and never a path of modules."""
    atoms: Annotated[int, Meta(ge=1, le=MOST_ATOMS)] = 1
    """Outputs for each action."""
    v_min: Annotated[float, Meta(ge=-MOST_RETURN, le=MOST_RETURN)] = 0.0
    """With c51, the least and greatest return that the atoms stand for."""
    v_max: Annotated[float, Meta(ge=-MOST_RETURN, le=MOST_RETURN)] = 0.0
    dueling: bool = False
    noisy: Annotated[float, Meta(ge=0, le=MOST_NOISE)] = 0.0
    """sigma_0 of noisy layers; 0: ordinary ones."""
    width: Annotated[int, Meta(ge=1, le=MOST_WIDTH)] = 1
    """With impala, what its channels are multiplied with."""
    pooling: bool = False
    spectral_norm: bool = False
    layer_norm: bool = False
    """True if hidden units are normalized over the layer."""
    fractions: Annotated[int, Meta(ge=0, le=MOST_ATOMS)] = 0
    """With iqn, the number of quantiles that choose an action."""
    rescaled: bool = False
    """True if the outputs are returns on the scale of `--value-rescaling`."""
    value_output: bool = False
    """True if the network is an actor-critic: logits of the actions, and behind them the value of the state."""
    conv_norm: bool = False
    """True if the output of each plain convolution is normalized over its channels."""
    recurrent: Annotated[int, Meta(ge=0, le=LSTM_UNITS)] = 0
    """Units of an LSTM behind the hidden layer; 0: there is none."""
    frame_size: Annotated[int, Meta(ge=BLOCK, le=MOST_SIDE)] = FRAME_SIDE
    frame_stack: Annotated[int, Meta(ge=1, le=MOST_STACK)] = STACK
    frame_channels: Literal[1, 3] = 1

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

    @classmethod
    def from_json(cls, values: Any) -> Network:
        """The inverse of `asdict`. Nothing is trusted: raises `ValueError` for values of no possible network."""
        if not isinstance(values, dict) or values.keys() != {item.name for item in fields(cls)}:
            raise ValueError("it does not say what it is")
        try:
            made = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            name = str(error).rpartition("$.")[2].rstrip("`")
            raise ValueError(f"{name} is {values[name]!r:.40}") from error
        for fault in made._faults():
            raise ValueError(fault)
        return made

    def _faults(self) -> Iterator[str]:
        """Half a sentence for each pair of fields that does not go together."""
        if self.name not in network_names():
            yield f"there is no network {self.name!r:.40}; pass --plugin if a plug-in of yours registers it"
        if self.method == "iqn" and not self.fractions:
            yield "fractions is 0"
        if self.value_output and (self.dueling or self.noisy or self.atoms != 1):
            yield "value_output is True beside parts of networks of action values"
        if self.recurrent and not self.value_output:
            yield "recurrent is not 0 in a network without value_output"
        if self.conv_norm and self.name == "impala":
            yield "conv_norm is True with the network impala"
        if self.frame_size % BLOCK or self.torso.side < 1:
            yield f"its frames are {self.frame_size} pixels wide"

    def __str__(self) -> str:
        """Its name and what differs from the plain network of that name."""
        values = ((item.name, getattr(self, item.name), item.default) for item in fields(self)[2:])
        return " ".join([self.name, *(f"{name}={value}" for name, value, usual in values if value != usual)])


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
        frame_channels=1 if config.play.frame_color == "gray" else 3,
        **algorithm.settings.network_fields(),
    )
    return replace(network, recurrent=min(LSTM_UNITS, network.hidden)) if algorithm.recurrent else network


def least_frame_size(network: Network) -> int:
    """Least --frame-size of which convolutions leave something; larger ones do, too."""
    sizes = range(BLOCK, MOST_SIDE + 1, BLOCK)
    return next(size for size in sizes if replace(network, frame_size=size).torso.side >= 1)
