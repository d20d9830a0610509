"""Torsos of the user, `module:Class(frames) -> torch.nn.Module`: their construction, and the look at one before a run.

The look refuses what would break a promise of Ringside: features and gradients follow from parameters and batch alone,
a row of features from its own frames alone, and initial values from the seed.

    python -m learner.networks.own_torso < question.json
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from learner.engine.device import prepare_torch
from learner.engine.faults import device_faults_named
from shared.config.trust import import_named
from shared.errors import ConfigError, DeviceFault
from shared.files.strict_json import json_object
from shared.frame_shape import FrameShape
from shared.machine.subprocesses import leave_threads
from shared.network_spec import MOST_FEATURES, OwnTorso
from shared.process.library_env import choose_workspace

HIDDEN = 512
"""Units of the hidden layer, unless the class has an attribute `hidden`."""
ROWS = 8
ROUNDING, COARSE_ROUNDING = 1e-5, 1e-3
"""Relative differences that rounding explains: of float32, and of bf16 and tf32. Statistics over a batch cause more."""


def make_torso(name: str, frames: FrameShape, seed: int) -> nn.Module:
    """Return a torso of the user in train mode, with the initial values that its constructor draws.

    Args:
        name: `module:Class`, by the user's word: the module is imported.
        seed: of torch's generator, which afterwards continues as if nothing was drawn.

    Raises:
        ConfigError: there is no such class, or it cannot be constructed.
    """
    module, _, path = name.partition(":")
    kind: Any = _call(name, "its import", import_named, f"--network {name}", module)
    for part in path.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        raise ConfigError(f"--network {name}: {module} has no class {path} of torch.nn.Module: name one that it has.")
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        torso: nn.Module = _call(name, "its constructor", kind, frames)
    return torso.train()


def look(
    name: str, frames: FrameShape, device: torch.device, precision: str, *, deterministic: bool = True
) -> OwnTorso:
    """Look at a torso with a few random frames; `prepare_torch` comes before.

    Args:
        name: as for `make_torso`.
        deterministic: False: libraries may round otherwise at each call.

    Raises:
        ConfigError: it cannot be used.
    """
    torso, twin, other = (make_torso(name, frames, seed) for seed in (1, 1, 2))
    rows = _random_frames(frames, device)

    def features(rows: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            return _call(name, "its forward pass", torso, rows)

    def with_gradient(features: Tensor) -> list[Tensor]:
        """Features, and the gradient of a random projection of them by the parameters on which they depend."""
        leaves = [parameter for parameter in torso.parameters() if parameter.requires_grad]
        weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1)).to(features)
        found = _call(name, "its backward pass", torch.autograd.grad, [features], leaves, [weights], allow_unused=True)
        return [features.detach(), *(each for each in found if each is not None)]

    def faults() -> Iterator[str]:
        yield from _faults_at_rest(torso, twin)
        torso.to(device)
        rounding = ROUNDING if precision == "fp32" else COARSE_ROUNDING
        before = {each: tensor.detach().clone() for each, tensor in _state(torso).items()}
        order = torch.arange(len(rows) - 1, -1, -1, device=device)
        with torch.inference_mode():  # first, since what a torso keeps of such a pass breaks the others
            halves = [features(rows[part]) for part in order.chunk(2)]
        yield from _faults_of_features(halves[0], len(rows) // 2)
        found = features(rows)
        if not found.requires_grad:
            yield "has no gradient of its features by a parameter: leave one to learn, and omit no_grad() and detach()"
        pairs = zip(with_gradient(found), with_gradient(features(rows)), strict=True)
        changed = _differing(_state(torso), before)
        if any(_differ(*pair, 0.0 if deterministic else rounding) for pair in pairs):
            cause = f"it changes {changed[0]}" if changed else "as with dropout, or with state between calls"
            yield f"gives other numbers when the same frames come again ({cause}): omit what draws or changes numbers"
        if _differ(torch.cat(halves), found.detach()[order], rounding):
            yield "computes a row of features from other rows, too, as BatchNorm does: use GroupNorm or LayerNorm"
        if changed:
            yield f"changes {changed[0]} in a pass, and only an update may change it: omit running statistics"
        for each in _differing(dict(twin.named_buffers()), dict(other.named_buffers())):
            yield f"draws the buffer {each}, and no file stores it: make it a parameter with requires_grad=False"

    for sentence in faults():  # the first one explains most
        raise ConfigError(f"--network {name} {sentence}.")
    shapes = tuple((each, tuple(parameter.shape)) for each, parameter in torso.named_parameters())
    return OwnTorso(features(rows).shape[1], getattr(torso, "hidden", HIDDEN), shapes)


def _random_frames(frames: FrameShape, device: torch.device) -> Tensor:
    """Rows uint8[n, planes, height, width], each brighter than the last: statistics over a batch tell them apart."""
    noise = torch.rand(ROWS, frames.planes, frames.size, frames.size, generator=torch.Generator().manual_seed(1))
    brightness = torch.arange(1, ROWS + 1).view(ROWS, 1, 1, 1) / ROWS
    return (noise * brightness * 255).to(device, torch.uint8, memory_format=torch.channels_last)


def _faults_at_rest(torso: nn.Module, twin: nn.Module) -> Iterator[str]:
    """Faults of a torso without a pass, as ends of a sentence; its twin has the same seed."""
    hidden = getattr(torso, "hidden", HIDDEN)
    if type(hidden) is not int or not 1 <= hidden <= MOST_FEATURES:
        yield f"has hidden {hidden!r:.40}, the units of the layer behind it: set a whole number, 1 to {MOST_FEATURES:_}"
    for name, parameter in torso.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            yield f"has the parameter {name} of a lazy layer, without a shape: use a layer with its number of inputs"
        if parameter.dtype != torch.float32:
            yield f"has the parameter {name} in {parameter.dtype}: keep it in float32, as bf16 is for its passes alone"
    for name in _differing(_state(torso), _state(twin)):
        yield f"has other initial values of {name} when it is constructed again: draw them from torch's generator"


def _faults_of_features(features: Any, rows: int) -> Iterator[str]:
    if not isinstance(features, Tensor):
        yield f"returns {type(features).__name__}, and not floating-point features [n, d]: flatten them"
    elif not features.is_floating_point() or features.dim() != 2 or len(features) != rows:
        found = f"{features.dtype}{list(features.shape)}"
        yield f"returns {found} for {rows} rows, and not floating-point features [n, d]: flatten them"
    elif not 1 <= features.shape[1] <= MOST_FEATURES:
        yield f"returns {features.shape[1]:_} features of a row: return 1 to {MOST_FEATURES:_}"
    elif not features.isfinite().all():
        yield "returns features that are not finite: scale the frames, as frames / 255 does"


def _state(torso: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    return {**dict(torso.named_parameters()), **dict(torso.named_buffers())}


def _differing(some: dict[str, Tensor], others: dict[str, Tensor]) -> list[str]:
    """Names of tensors that differ."""
    return [name for name, tensor in some.items() if name not in others or not torch.equal(tensor, others[name])]


def _differ(found: Tensor, expected: Tensor, most: float) -> bool:
    """True if the norm of the difference is more than this share of the norm; with 0, if a number differs."""
    return bool((found.double() - expected.double()).norm() > most * expected.double().norm())


def _call(name: str, what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call code of the user. Raises `ConfigError` for whatever it raises, but `DeviceFault` where it is the GPU's."""
    try:
        with device_faults_named():
            return function(*arguments, **options)
    except (ConfigError, DeviceFault):
        raise
    except Exception as error:  # whatever the user's code raises
        text = " ".join(str(error).split())[:300].rstrip(".")
        operation, nondeterministic, _ = text.partition(" does not have a deterministic implementation")
        if nondeterministic:
            advice = "use another layer, or pass --deterministic off"
            raise ConfigError(f"--network {name} needs {operation}, which is not deterministic: {advice}.") from error
        home = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
        frames = traceback.extract_tb(error.__traceback__)
        at = next((frame for frame in reversed(frames) if frame.filename == home), frames[-1])
        raised = f"{what} raised {type(error).__name__} at {at.filename}:{at.lineno}"
        raise ConfigError(f"--network {name} cannot be used: {raised}: {text}.") from error


def main() -> NoReturn:
    """Answer the question that comes through standard input, in JSON: an `OwnTorso`, or an error as a sentence."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the user's code prints stays apart from the answer
    asked = json_object(sys.stdin.buffer.read()) or {}
    device, precision, deterministic = torch.device(asked["device"]), asked["precision"], asked["deterministic"]
    choose_workspace()
    try:
        with device_faults_named():
            prepare_torch(device, precision, threads=1, deterministic=deterministic)
            frames = FrameShape(*asked["frames"])
            found = asdict(look(asked["name"], frames, device, precision, deterministic=deterministic))
    except (ConfigError, DeviceFault) as error:
        found = {"error": str(error)}
    print(json.dumps(found), file=answer, flush=True)
    leave_threads(0)


if __name__ == "__main__":
    main()
