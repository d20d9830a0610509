"""The matrix products in a network's passes, alone: the minimum work of a pass.

A convolution of n images is the product of a matrix [n * places, kernel * kernel * channels] with its weights. A
backward pass needs two more products for each layer, but only one for the first, as pixels need no gradient. Operands
are prepared beforehand; activations, copies, casts and additions are left out. The matrix of a convolution holds each
pixel several times, so a pass that reads it once can be faster than its products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from learner.engine.interfaces import CHUNK_UPDATES
from ringside.bench.harness.tables import WrongResult
from shared.frame_shape import FRAME_SIDE, STACK
from shared.network_spec import PLAIN_NETWORKS

_TOLERANCE = 0.05
"""Largest relative error of a product in bfloat16 or TF32; a wrong product has an error of about 1."""


@dataclass(frozen=True)
class Product:
    """out = a @ b."""

    a: Tensor
    b: Tensor
    out: Tensor

    @classmethod
    def random(cls, rows: int, inner: int, columns: int, like: Tensor) -> Product:
        """Random operands [rows, inner] and [inner, columns] of the dtype and device of `like`."""
        a, b = (torch.randn(shape, device=like.device).to(like.dtype) for shape in ((rows, inner), (inner, columns)))
        return cls(a, b, torch.empty(rows, columns, dtype=like.dtype, device=like.device))

    @property
    def operations(self) -> int:
        """Number of multiplications and additions."""
        return 2 * self.a.shape[0] * self.a.shape[1] * self.b.shape[1]


def layer_sizes(network: str, actions: int) -> list[tuple[int, int, int]]:
    """(places, inputs, outputs) of each layer for one image; a linear layer has one place."""
    layers, hidden = PLAIN_NETWORKS[network]
    sizes, channels, side = [], STACK, FRAME_SIDE
    for out, kernel, stride in layers:
        side = (side - kernel) // stride + 1
        sizes.append((side * side, kernel * kernel * channels, out))
        channels = out
    return [*sizes, (1, channels * side * side, hidden), (1, hidden, actions)]


class Products:
    """The products of a forward pass over n images, and of the backward pass with `backward`."""

    def __init__(self, network: str, actions: int, n: int, like: Tensor, *, backward: bool) -> None:
        self._products = []
        for index, (places, inputs, outputs) in enumerate(layer_sizes(network, actions)):
            self._products.append(Product.random(n * places, inputs, outputs, like))
            if backward:
                self._products.append(Product.random(outputs, n * places, inputs, like))
                if index:
                    self._products.append(Product.random(n * places, outputs, inputs, like))
        self.operations = sum(product.operations for product in self._products)

    def run(self) -> None:
        """Compute all products once."""
        for product in self._products:
            torch.mm(product.a, product.b, out=product.out)

    def check(self) -> None:
        """Raise `WrongResult` unless the first rows agree with float64."""
        self.run()
        for product in self._products:
            wanted = product.a[:4].double() @ product.b.double()
            off = float((product.out[:4].double() - wanted).norm() / wanted.norm())
            if not off < _TOLERANCE:
                shape = f"{tuple(product.a.shape)} by {tuple(product.b.shape)}"
                raise WrongResult(f"A product of {shape} is {off:.0%} off.")


class ChunkProducts:
    """The products of a chunk of `CHUNK_UPDATES` updates: target values of all at once, then the updates one by one."""

    def __init__(self, network: str, actions: int, batch: int, like: Tensor, *, double: bool = False) -> None:
        """`double`: each update also evaluates the online network on the next states.

        Raises `WrongResult` unless all products are right.
        """
        shape = network, actions
        target = Products(*shape, CHUNK_UPDATES * batch, like, backward=False)
        update = [Products(*shape, batch, like, backward=True)]
        if double:
            update.append(Products(*shape, batch, like, backward=False))
        for products in (target, *update):
            products.check()
        self._all = [target, *update * CHUNK_UPDATES]
        self.operations = sum(products.operations for products in self._all)

    def run(self) -> None:
        """Compute all products once."""
        for products in self._all:
            products.run()
