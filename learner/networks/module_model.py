"""Networks that PyTorch differentiates, built in or with a torso of the user."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from learner.engine.side_stream import SideStream
from learner.networks.frame_blocks import stack_in
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs
from learner.networks.modules import Linear, NetworkModule, SpectralConvolution, canonical
from learner.networks.packed_model import KeepGradient, Matrix, PackedModel
from learner.team.team import Team
from shared.errors import ConfigError
from shared.network_spec import Network


class ModulePass(NamedTuple):
    """Result of a forward pass with its graph, for the backward pass."""

    outputs: Tensor
    state: Tensor | None


class ModuleModel(PackedModel):
    """A network's module, whose parameters are views of the packed vectors. See `learner.networks.model.Model`."""

    def __init__(self, network: Network, device: torch.device, precision: str, team: Team | None = None) -> None:
        super().__init__(network, device, precision, team)
        self._is_replica, self.keeps_state = False, network.spectral_norm
        self._bind()

    def _bind(self) -> None:
        """Make a module for the passes of one thread."""
        self.module = NetworkModule(self.network, self._dtype)
        self.noise = self.module.noise
        made = self.module.parameters_by_name()
        if tuple((name, tuple(parameter.shape)) for name, parameter in made.items()) != self._spec.shapes:
            raise ConfigError(f"--network {self.network.name} has other parameters than before: it was changed.")
        params, copies = self.views(self.params), self.views(self.params_bf16)
        bound: dict[Tensor, Tensor] = {}
        for name, parameter in made.items():
            view = (params if parameter.dtype == torch.float32 else copies)[name]
            bound[parameter] = nn.Parameter(view, parameter.requires_grad)
        for part in self.module.modules():  # a parameter may be that of several
            for name, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
                setattr(part, name, bound[tensor] if tensor in bound else tensor.to(self.params.device))
        self._side_stream = SideStream()
        self._leaves = self.module.parameters_by_name()
        self._linear = list[tuple[Linear, str]]()
        self.matrices = []
        for name, layer in self.module.named_modules():
            for suffix, setting in (("", "into"), ("_sigma", "sigma_into")) if isinstance(layer, Linear) else ():
                weight, bias = (f"{canonical(name)}.{kind}{suffix}" for kind in ("weight", "bias"))
                if weight in made:
                    layer.side_stream = lambda: self._side_stream
                    self._linear.append((layer, setting))
                    self.matrices.append(Matrix(weight, bias, layer.weight.dtype))
        self._learned = {name: leaf for name, leaf in self._leaves.items() if leaf.requires_grad}
        self.module.requires_grad_(False)
        # Where gradients go: those of linear layers by themselves, the others by PyTorch's backward pass.
        self._others: tuple[list[Tensor], list[Tensor]] = [], []

    def replica(self) -> Self:
        """The same parameters (`PackedModel.replica`)."""
        other = super().replica()
        other._is_replica = True
        other._bind()
        return other

    def keep_state(self) -> None:
        """Keep what power iteration found (`PackedModel.keep_state`)."""
        for layer in self.module.modules():
            if isinstance(layer, SpectralConvolution):
                layer.keep()

    def gradient_into(self, flat: Tensor, keep: KeepGradient | None = None) -> None:
        """Set the vector that `backward` writes into (`PackedModel.gradient_into`)."""
        flat.zero_()  # what no pass writes has no gradient: the vectors of power iteration
        views, others = self.views(flat), dict(self._learned)
        for number, ((layer, setting), matrix) in enumerate(zip(self._linear, self.matrices, strict=True)):
            del others[matrix.weight], others[matrix.bias]
            if keep is None:
                into = Affine(views[matrix.weight], views[matrix.bias])
            setattr(layer, setting, partial(write_gradient, into=into) if keep is None else partial(keep, number))
        self._others = [leaf.requires_grad_() for leaf in others.values()], [views[name] for name in others]

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> ModulePass:
        """The outputs for stacks (`Model.forward`)."""
        cells = stack_in(blocks, stack_offset, self.network.frames.planes)
        if not learns:
            return ModulePass(*self.module(cells, extra_inputs))
        with torch.inference_mode(False), torch.enable_grad():
            return ModulePass(*self.module(cells, extra_inputs))

    def backward(self, saved: ModulePass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`)."""
        self._side_stream = side_stream
        others, into = self._others
        with torch.inference_mode(False):
            gradients = torch.autograd.grad(saved.outputs, others, gradient.clone(), materialize_grads=True)
        torch._foreach_copy_(into, gradients)
        if not self._is_replica:
            self.keep_state()
