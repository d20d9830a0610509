"""Networks that PyTorch differentiates, built in or with a torso of the user."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from learner.engine.side_stream import SideStream
from learner.networks.frame_blocks import stack_in
from learner.networks.fused import FusedModel
from learner.networks.model import ExtraInputs, ForwardPass
from learner.networks.modules import Linear, NetworkModule, SpectralConvolution, canonical
from learner.networks.packed_model import WHOLE, Matrix, PackedModel, Rows
from learner.team.team import ALONE, Team
from shared.errors import ConfigError
from shared.network_spec import Network


class ModuleModel(PackedModel):
    """A network's module, whose parameters are views of the packed vectors. See `learner.networks.model.Model`."""

    def __init__(self, network: Network, device: torch.device, precision: str, team: Team = ALONE) -> None:
        super().__init__(network, device, precision, team)
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
        self._spectral = [layer for layer in self.module.modules() if isinstance(layer, SpectralConvolution)]
        self._side_stream = SideStream()
        self._leaves = self.module.parameters_by_name()
        self.matrices = []
        for name, layer in self.module.named_modules():
            for end in ("", "_sigma") if isinstance(layer, Linear) else ():
                weight, bias = (f"{canonical(name)}.{kind}{end}" for kind in ("weight", "bias"))
                if weight in made:
                    layer.into[end] = partial(self._submit, len(self.matrices))
                    self.matrices.append(Matrix(weight, bias, layer.weight.dtype))
        # Linear layers write their gradients themselves, PyTorch's backward pass finds the others.
        linear = {name for matrix in self.matrices for name in (matrix.weight, matrix.bias)}
        torso = {canonical(f"torso.{name}") for name, _ in self.module.torso.named_parameters()}
        others = {name: leaf for name, leaf in self._leaves.items() if leaf.requires_grad and name not in linear}
        self._of_torso = {name: leaf for name, leaf in others.items() if name in torso}
        self._behind_torso = {name: leaf for name, leaf in others.items() if name not in torso}
        self.takes_parts = not self._behind_torso
        self.module.requires_grad_(False)

    def keep_state(self) -> bool:
        """Keep what power iteration found (`PackedModel.keep_state`)."""
        for layer in self._spectral:
            layer.keep()
        return bool(self._spectral)

    def gradient_into(self, *flats: Tensor) -> None:
        """Set the vectors that `backward` writes into (`PackedModel.gradient_into`)."""
        super().gradient_into(*flats)
        for flat in flats:
            flat.zero_()  # what no pass writes has no gradient: the vectors of power iteration
        for leaf in (*self._of_torso.values(), *self._behind_torso.values()):
            leaf.requires_grad_()

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False, rows: Rows = WHOLE
    ) -> ForwardPass:
        """The outputs for stacks (`Model.forward`); it saves the features of each vector's rows."""
        cells = stack_in(blocks, stack_offset, self.network.frames.planes)
        if not learns:
            return ForwardPass(*self.module(cells, extra_inputs))
        with torch.inference_mode(False), torch.enable_grad():
            features = [self.module.features(cells[own]) for own in rows.values()]
            joined = torch.cat(features) if len(features) > 1 else features[0]
            return ForwardPass(*self.module.outputs(joined, extra_inputs), list(zip(rows, features, strict=True)))

    def backward(self, saved: ForwardPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`)."""
        self._side_stream, behind = side_stream, self._behind_torso
        leaves = [*behind.values(), *(features for _, features in saved.saved)]
        with torch.inference_mode(False):
            found = torch.autograd.grad(saved.outputs, leaves, gradient.clone(), materialize_grads=True)
            of_torso = [*self._of_torso.values()]
            by_torso = [
                torch.autograd.grad(features, of_torso, by_features, materialize_grads=True)
                for (_, features), by_features in zip(saved.saved, found[len(behind) :], strict=True)
            ]
        for (vector, _), gradients in zip(saved.saved, by_torso, strict=True):
            into = [self._gradients[vector][name] for name in (*self._of_torso, *behind)]
            torch._foreach_copy_(into, [*gradients, *found[: len(behind)]])
        if self.keep is None:
            self.keep_state()

    def _submit(self, number: int, by_outputs: Tensor, inputs: Tensor) -> None:
        self._side_stream.submit(partial(self._write_linear, number, by_outputs, inputs))


def make_model(network: Network, device: torch.device, precision: str, team: Team = ALONE) -> PackedModel:
    """The model of a network, with parameters that are still to be set, in the memory of a team."""
    return (FusedModel if network.plain else ModuleModel)(network, device, precision, team)
