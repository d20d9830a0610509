"""Specifications of networks, without torch; their parameters are in shared/network_parameters.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from shared.config.method_declaration import MOST_ATOMS, MOST_RETURN
from shared.config.sections import MOST_NOISE, MOST_WIDTH
from shared.config.settings import Config
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


class Layers(NamedTuple):
    """Layers of a convolutional network before its output."""

    convolutions: tuple[Convolution, ...]
    hidden: int
    """Units of the hidden layer."""


CONVOLUTIONAL = {
    "nature": Layers((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), 512),
    "a3c": Layers((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),
    "small": Layers((Convolution(16, 8, 4), Convolution(16, 4, 2)), 64),
    "der": Layers((Convolution(32, 5, 5), Convolution(64, 5, 5)), 256),
}
"""Convolutional networks by name.

nature: Mnih et al. 2015, Methods. a3c: Mnih et al. 2013, section 4.1, and 2016, supplementary section 8. der: the
data-efficient network of van Hasselt et al. 2019, appendix F.
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

MOST_FEATURES = 2**20
"""Bound of the features and hidden units behind a torso of the user."""

RESCALING = 1e-3
"""epsilon of the scale h of rescaled values (R2D2: Kapturowski et al. 2019, section 2.3)."""


def network_names() -> list[str]:
    """Names of the built-in networks."""
    return [*CONVOLUTIONAL, "impala"]


def is_own(name: str) -> bool:
    """True if a value of --network names a class of the user, `module:Class`."""
    return ":" in name


@dataclass(frozen=True)
class OwnTorso:
    """Findings of a look at a torso of the user (learner/networks/own_torso.py): what its parameters follow from."""

    features: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
    """Numbers of one observation."""
    hidden: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
    """Units of the hidden layer behind it."""
    shapes: tuple[tuple[str, tuple[Annotated[int, Meta(ge=0)], ...]], ...]
    """Names and shapes of its parameters, in the order of the module."""


@dataclass(frozen=True)
class Network:
    """Everything needed to build a network and to act with it."""

    name: str
    """A key of `CONVOLUTIONAL`, impala, or `module:Class` of the user."""
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
    own: OwnTorso | None = None
    """Findings about a torso of the user; None: the network is built in."""

    @property
    def frames(self) -> FrameShape:
        """Shape of its observations."""
        return FrameShape(self.frame_size, self.frame_stack, self.frame_channels)

    @property
    def plain(self) -> bool:
        """True if it is convolutions that read blocks and two linear layers, whatever the outputs mean."""
        extra = self.dueling or self.noisy or self.pooling or self.spectral_norm or self.layer_norm or self.conv_norm
        if extra or self.recurrent or self.method == "iqn" or self.name not in CONVOLUTIONAL:
            return False
        return CONVOLUTIONAL[self.name].convolutions[0].reads_blocks

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
        if self.own is not None:
            return self.own.hidden
        return CONVOLUTIONAL[self.name].hidden if self.name in CONVOLUTIONAL else IMPALA_HIDDEN

    @property
    def features(self) -> int:
        """Numbers of one observation behind the torso."""
        channels, side = self.torso
        return channels * side * side if self.own is None else self.own.features

    @property
    def torso(self) -> tuple[int, int]:
        """Channels of the features of a built-in network, and their side: below 1 where frames are too small."""
        side = self.frame_size
        if self.name in CONVOLUTIONAL:
            layers = CONVOLUTIONAL[self.name].convolutions
            for _, kernel, stride in layers:
                side = (side - kernel) // stride + 1
            channels = layers[-1][0]
        else:
            for _ in IMPALA:
                side = (side + 1) // 2  # pooling of 3x3 with stride 2 and a border of 1
            channels = IMPALA[-1] * self.width
        return channels, (side + 1) // 2 if self.pooling else side

    @classmethod
    def from_json(cls, values: Any) -> Network:
        """The inverse of `asdict`. Nothing is trusted: raises `ValueError` for values of no possible network."""
        # Older files lack `own`.
        if not isinstance(values, dict) or values.keys() | {"own"} != {item.name for item in fields(cls)}:
            raise ValueError("it does not say what it is")
        try:
            made = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            name = str(error).rpartition("$.")[2].rstrip("`").partition(".")[0]
            raise ValueError(f"{name} is {values[name]!r:.40}") from error
        for fault in made._faults():
            raise ValueError(fault)
        return made

    def _faults(self) -> Iterator[str]:
        """Half a sentence for each pair of fields that does not go together."""
        if self.own is None and self.name not in network_names():
            yield f"there is no network {self.name!r:.40}"
        if self.own is not None and not is_own(self.name):
            yield f"own is not None with the network {self.name!r:.40}"
        if self.method == "iqn" and not self.fractions:
            yield "fractions is 0"
        if self.value_output and (self.dueling or self.noisy or self.atoms != 1):
            yield "value_output is True beside parts of networks of action values"
        if self.recurrent and not self.value_output:
            yield "recurrent is not 0 in a network without value_output"
        if self.conv_norm and self.name == "impala":
            yield "conv_norm is True with the network impala"
        if self.frame_size % BLOCK or (self.own is None and self.torso[1] < 1):
            yield f"its frames are {self.frame_size} pixels wide"

    def __str__(self) -> str:
        """Its name and what differs from the plain network of that name."""
        values = ((item.name, getattr(self, item.name), item.default) for item in fields(self)[2:-1])
        return " ".join([self.name, *(f"{name}={value}" for name, value, usual in values if value != usual)])


def network_of(config: Config, actions: int, own: OwnTorso | None = None) -> Network:
    """The network of a configuration. `own`: its torso, if that is the user's; None where no size of it matters."""
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
        own=own,
        **algorithm.settings.network_fields(),
    )
    if not algorithm.recurrent:
        return network
    return replace(network, recurrent=LSTM_UNITS if is_own(network.name) else min(LSTM_UNITS, network.hidden))


def least_frame_size(network: Network) -> int:
    """Least --frame-size of which the convolutions of a built-in network leave something; larger ones do, too."""
    sizes = range(BLOCK, MOST_SIDE + 1, BLOCK)
    return next(size for size in sizes if replace(network, frame_size=size).torso[1] >= 1)
