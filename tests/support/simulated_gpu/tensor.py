"""Tensors of the simulated device, and PyTorch's operations on them.

An operation checks its arguments and allocates its results when it is called. It computes when the scheduler runs it,
with PyTorch's kernels for CPUs. Views are made at once. An operation that the simulator does not know raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.support.simulated_gpu.memory import Block
from tests.support.simulated_gpu.operations import RANDOM, SYNCHRONIZING, is_nondeterministic, kernels_of
from tests.support.simulated_gpu.streams import Cost

if TYPE_CHECKING:
    from tests.support.simulated_gpu.gpu import SimulatedGpu

KIND = "simgpu"
_setup_privateuseone_for_python_backend(KIND)
DEVICE = torch.device(KIND, 0)

VIEWS = {"_unsafe_view", "_reshape_alias", "lift_fresh"}
"""Operations that make a view although their declaration does not say so."""
RESHAPING_IN_PLACE = {"resize_", "set_", "t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", "swapaxes_"}
"""Operations that change the shape of a tensor in place."""
READS_A_NUMBER = {"where"}
"""Operations that copy a number of the host to the device instead of passing it to the kernel."""

active: list[SimulatedGpu] = []
"""The device that new tensors are on, as the last item."""


class SimulatedTensor(torch.Tensor):
    """A tensor on the simulated device.

    Attributes:
        host: its numbers, in the memory of `block`; only operations of the device may read them.
    """

    gpu: SimulatedGpu
    host: Tensor
    block: Block

    @staticmethod
    def make(gpu: SimulatedGpu, host: Tensor, block: Block) -> SimulatedTensor:
        """A tensor with the shape of `host`."""
        # Never an inference tensor: PyTorch cannot make views of such a one in Python.
        with torch.inference_mode(False):
            as_host = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
            make_like: Any = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
            made: SimulatedTensor = make_like(SimulatedTensor, host.size(), device=DEVICE, **as_host)
        made.gpu, made.host, made.block = gpu, host, block
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation that has a tensor of the device among its arguments."""
        rule = _RULES.get(func)
        if rule is None:
            rule = _RULES[func] = _make_rule(func)
        return rule(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        """Shape and type; the numbers are on the device."""
        return f"SimulatedTensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    def tolist(self) -> Any:
        """The numbers, which the device is waited for."""
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The numbers, if `force` allows to wait for the device."""
        if not force:
            raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() first.")
        return self.detach().cpu().numpy()


Rule = Callable[[Any, Any, dict[str, Any]], Any]
_RULES: dict[Any, Rule] = {}
_SHAPES: dict[Any, list[Tensor | None]] = {}


def _make_rule(func: Any) -> Rule:
    name = func.overloadpacket.__name__
    if name in SYNCHRONIZING or name == "unique_consecutive":
        return _read_number if name == "_local_scalar_dense" else _decompose if _is_composite(func) else _refuse
    if name in {"copy_", "_to_copy"}:
        return _copy if name == "copy_" else _to_copy
    if _is_composite(func) and name not in VIEWS:
        return _decompose
    returns = func._schema.returns
    if name in VIEWS or (returns and all(each.alias_info and not each.alias_info.is_write for each in returns)):
        return _view
    if name in RANDOM | RESHAPING_IN_PLACE:
        return _refuse
    written = [i for i, each in enumerate(func._schema.arguments) if each.alias_info and each.alias_info.is_write]
    return _write if written else _compute


def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _decompose(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return func.decompose(*args, **kwargs)


def _refuse(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    raise NotImplementedError(f"The simulated GPU has no {func}.")


def _view(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    base = _first(args)
    with torch.inference_mode(False), torch.no_grad():
        out = func(*_plain(args), **_plain(kwargs))
    return _with_tensors(out, lambda each: SimulatedTensor.make(base.gpu, each, base.block))


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Queue an operation whose results are new tensors."""
    gpu = _begin_call(func, (args, kwargs)).gpu
    hosts, names = _arguments(gpu, func, args), _arguments(gpu, func, _on_host(kwargs))
    shapes = _shapes(func, hosts, names)
    results = [None if each is None else gpu.empty(each.size(), each.stride(), each.dtype) for each in shapes]
    outs = [None if each is None else each.host for each in results]

    def run() -> None:
        found = func(*hosts, **names)
        for out, value in zip(outs, (found,) if isinstance(found, Tensor) else found, strict=True):
            if out is not None:
                out.copy_(value)

    gpu.enqueue(str(func), run, Cost(kernels_of(func.overloadpacket.__name__, args)))
    if len(func._schema.returns) == 1 and str(func._schema.returns[0].type) == "Tensor":
        return results[0]
    return results if str(func._schema.returns[0].type) == "List[Tensor]" else tuple(results)


def _write(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Queue an operation that writes into its arguments."""
    gpu = _begin_call(func, (args, kwargs)).gpu
    hosts, names = _arguments(gpu, func, args), _arguments(gpu, func, kwargs)
    before = [each.shape for each in _tensors((hosts, names))]

    def run() -> None:
        func(*hosts, **names)
        assert [each.shape for each in _tensors((hosts, names))] == before, f"{func} changed the shape of a tensor"

    gpu.enqueue(str(func), run, Cost(kernels_of(func.overloadpacket.__name__, args)))
    written = []
    for place, declared in enumerate(func._schema.arguments):
        if declared.alias_info and declared.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs[declared.name]
            if isinstance(value, Tensor) and not isinstance(value, SimulatedTensor):
                _mixed(func)
            written.append(value)
    returned = func._schema.returns
    return None if not returned else written[0] if len(returned) == 1 else tuple(written)


def _copy(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Copy within the device, or between it and the host."""
    target, source, waits = args[0], args[1], not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if isinstance(target, SimulatedTensor) and isinstance(source, SimulatedTensor):
        return _write(func, args, kwargs)
    gpu = _begin_call(func, args).gpu
    if isinstance(target, SimulatedTensor):
        _upload(gpu, target, source, waits=waits)
    else:
        _download(gpu, target, source, waits=waits)
    return target


def _to_copy(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Copy to another type, or to another device."""
    (source,), device = args, kwargs.get("device")
    if device is None or device.type == KIND:
        return _compute(func, args, {name: value for name, value in kwargs.items() if name != "non_blocking"})
    assert device.type == "cpu", "there is no third device"
    dtype, waits = kwargs.get("dtype") or source.dtype, not kwargs.get("non_blocking", False)
    gpu = _begin_call(func, source).gpu
    # PyTorch takes pinned memory for a copy that is not waited for.
    target = torch.empty_like(source.host, dtype=dtype) if waits else gpu.pinned_zeros(tuple(source.shape), dtype)
    _download(gpu, target, source, waits=waits)
    return target


def _upload(gpu: SimulatedGpu, target: SimulatedTensor, source: Tensor, *, waits: bool) -> None:
    # PyTorch brings a source of another shape or layout into order first, in memory that is not pinned.
    pinned = gpu.pinned.holds(source) and source.is_contiguous() and source.shape == target.shape
    if not pinned or waits:
        gpu.refuse_in_capture("a copy from memory of the CPU that is not pinned, or that is waited for,")
    read = source if pinned else source.clone()  # the driver stages what is not pinned before it returns
    gpu.enqueue("copy to the device", partial(target.host.copy_, read), Cost(uploaded=source.nbytes))
    if waits:
        gpu.wait_for(gpu.current_stream(DEVICE).tail)


def _download(gpu: SimulatedGpu, target: Tensor, source: SimulatedTensor, *, waits: bool) -> None:
    read, cost = source.host, Cost(downloaded=source.nbytes)
    if gpu.pinned.holds(target) and target.is_contiguous() and not waits:
        gpu.enqueue("copy to the host", partial(target.copy_, read), cost)
        return
    gpu.refuse_in_capture("a copy to the CPU that is waited for")
    found: list[Tensor] = []
    gpu.enqueue("copy to the host", lambda: found.append(read.clone()), cost)
    gpu.wait_for(gpu.current_stream(DEVICE).tail)
    target.copy_(found[0])


def _read_number(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Wait for one number."""
    source = _begin_call(func, args)
    found = torch.zeros((), dtype=source.dtype)
    _download(source.gpu, found, source, waits=True)
    return found.item()


# --- arguments


def _first(values: Any) -> SimulatedTensor:
    """The first tensor of the device among arguments: for its sake an operation came here."""
    return next(each for each in _tensors(values) if isinstance(each, SimulatedTensor))


def _with_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Arguments with `change(tensor)` in the place of every tensor."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _with_tensors(each, change) for name, each in value.items()}
    return [_with_tensors(each, change) for each in value] if isinstance(value, (list, tuple)) else value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _with_tensors(value, found.append)
    return found


def _plain(value: Any) -> Any:
    """Arguments with the tensors' memory in place of the tensors of the device."""
    return _with_tensors(value, lambda each: each.host if isinstance(each, SimulatedTensor) else each)


def _arguments(gpu: SimulatedGpu, func: Any, value: Any) -> Any:
    """As `_plain`; numbers that the host holds in tensors have their present values.

    Raises:
        RuntimeError: there is a tensor of the host.
    """

    def present(tensor: Tensor) -> Tensor:
        if isinstance(tensor, SimulatedTensor):
            if tensor.gpu is not gpu:
                raise RuntimeError("A tensor of a former simulation is used.")
            return tensor.host
        if tensor.dim():
            _mixed(func)
        if func.overloadpacket.__name__ in READS_A_NUMBER:
            gpu.refuse_in_capture(f"a number of the CPU in {func}")
        return tensor.clone()

    return _with_tensors(value, present)


def _mixed(func: Any) -> None:
    says = "Expected all tensors to be on the same device, but found at least two devices"
    raise RuntimeError(f"{says}, {DEVICE} and cpu! ({func})")


def _on_host(kwargs: dict[str, Any]) -> dict[str, Any]:
    if (device := kwargs.get("device")) is not None and device.type != KIND:
        raise NotImplementedError("The simulated GPU makes no tensor of another device.")
    changed = {"device": torch.device("cpu")} if device is not None else {}
    return {name: value for name, value in kwargs.items() if name != "pin_memory"} | changed


def _begin_call(func: Any, values: Any) -> SimulatedTensor:
    """Begin an operation; return the first tensor of the device.

    Raises:
        RuntimeError: CUDA refuses it where the same bits are asked for.
    """
    first, name = _first(values), func.overloadpacket.__name__
    first.gpu.begin_call(name, None)
    if torch.are_deterministic_algorithms_enabled() and is_nondeterministic(name):
        set_here = "'torch.use_deterministic_algorithms(True)'"
        raise RuntimeError(f"{name} does not have a deterministic implementation, but you set {set_here}.")
    return first


def _shapes(func: Any, hosts: Any, names: Any) -> list[Tensor | None]:
    """Tensors like those that an operation returns; found once for arguments of the same shapes, with zeros."""
    key = (func, _form(hosts), _form(names))
    if key not in _SHAPES:
        with torch.inference_mode(False), torch.no_grad():
            found = func(*_zeros(hosts), **_zeros(names))
        _SHAPES[key] = [found] if isinstance(found, Tensor) else list(found)
    return _SHAPES[key]


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.size(), value.stride(), value.dtype
    if isinstance(value, dict):
        return tuple((name, _form(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_form, value))
    return float if isinstance(value, float) else (type(value), value)


def _zeros(value: Any) -> Any:
    return _with_tensors(value, lambda each: torch.empty_strided(each.size(), each.stride(), dtype=each.dtype).zero_())


# --- new tensors


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return _new(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format, device="meta"))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return _new(torch.empty_strided(size, stride, dtype=dtype, device="meta"))


def _new(like: Tensor) -> Tensor:
    gpu = active[-1]
    gpu.begin_call("empty", None)
    return gpu.empty(like.size(), like.stride(), like.dtype)


def _arange(*bounds: Any, dtype: Any = None, **_: Any) -> Tensor:
    gpu, numbers = active[-1], torch.arange(*bounds, dtype=dtype)
    gpu.begin_call("arange", None)
    made = gpu.empty(numbers.size(), numbers.stride(), numbers.dtype)
    gpu.enqueue("arange", partial(made.host.copy_, numbers), Cost(kernels=1))
    return made


_LIBRARY = torch.library.Library("aten", "IMPL")
_LIBRARY.impl("empty.memory_format", _empty, "PrivateUse1")
_LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
for _overload in ("arange", "arange.start", "arange.start_step"):
    _LIBRARY.impl(_overload, _arange, "PrivateUse1")
