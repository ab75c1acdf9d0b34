r"""Gradients in the weights of a layer as sums of outer products, and their inner products.

A layer that multiplies a matrix W with what it sees, a_t, at positions t (tokens; patches of an
image; one position of a plain linear layer) has the gradient

    grad_W q_p = sum_t delta_pt a_nt',      delta_pt = grad of q_p in the layer's output at t,

for a pair p of sample n. Inner products of such gradients need none of them:

    <grad_W q_p, grad_W q_s> = sum_tu <delta_pt, delta_su> <a_nt, a_mu>,

for one position a masked Gram matrix (`masked_gram`). Of several positions the gradients themselves
are made, in blocks.

======  ==========  ==============================================
symbol  shape       meaning
======  ==========  ==============================================
delta   (m, T, r)   slopes of m pairs at T positions, r outputs
a       (S, T, c)   what the layer sees of S samples, c inputs
======  ==========  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear, unfold
from torch.overrides import TorchFunctionMode

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.problem.masked_gram import masked_gram

# Entries of a block of gradients, 512 MiB, of which a few exist at a time.
GRADIENT_ENTRIES = 2**26


@dataclass(frozen=True, eq=False)
class LayerProducts:
    """Gradients of m pairs in one parameter: sum_t delta_pt a_nt'.

    Attributes
    ----------
    slopes : Tensor of shape (m, T, r)
        delta.
    given : Tensor of shape (S, T, c)
        a.
    samples : Tensor of shape (m,)
        The sample of each pair, as a place in ``given``.
    """

    slopes: Tensor
    given: Tensor
    samples: Tensor

    @classmethod
    def joined(cls, parts: Sequence[LayerProducts], order: Tensor) -> LayerProducts:
        """Concatenate the pairs of several parts, and reorder them by ``order`` (m,)."""
        samples = list[Tensor]()
        start = 0  # where the samples of a part begin among those of all parts
        for part in parts:
            samples.append(part.samples + start)
            start += len(part.given)
        return cls(
            torch.cat([part.slopes for part in parts])[order],
            torch.cat([part.given for part in parts]),
            torch.cat(samples)[order],
        )

    def times(self, factor: float | Tensor) -> LayerProducts:
        """Multiply all gradients with one number, or each with its own of (m,)."""
        if isinstance(factor, Tensor):
            factor = factor[:, None, None]
        return replace(self, slopes=factor * self.slopes)

    def of(self, pairs: slice | Tensor) -> LayerProducts:
        """Return those of some pairs."""
        return replace(self, slopes=self.slopes[pairs], samples=self.samples[pairs])

    def gradients(self) -> Tensor:
        """Return the gradients themselves, (m, r c)."""
        given = self.given[self.samples]
        return torch.einsum("mtr,mtc->mrc", self.slopes, given).reshape(len(given), -1)

    def gram(self, others: LayerProducts, deadline: Deadline = NEVER) -> Tensor:
        """Inner products (m, k) with other gradients in the same parameter.

        Raises
        ------
        TimeoutError
            The deadline has passed between two blocks of them.
        """
        m, positions, rows = self.slopes.shape
        k = len(others.slopes)
        columns = self.given.shape[2]
        if positions == 1:
            # The double sum of the head has one term.
            theirs = (others.slopes[:, 0], others.given[others.samples, 0])
            return masked_gram(self.slopes[:, 0], self.given[self.samples, 0], theirs)
        # For two pairs the double sum of the head takes T^2 (r + c) products, the inner product of
        # their gradients r c. These are fewer, unless the layer is wider than about T^2.
        size = max(1, GRADIENT_ENTRIES // (rows * columns))
        gram = self.slopes.new_empty(m, k)
        for i, block in enumerate(self._blocks(size)):
            first = block.gradients()
            for j, other in enumerate(others._blocks(size)):
                deadline.check()
                part = first @ other.gradients().T
                gram[i * size : (i + 1) * size, j * size : (j + 1) * size] = part
        return gram

    def _blocks(self, size: int) -> Iterator[LayerProducts]:
        for start in range(0, len(self.slopes), size):
            yield self.of(slice(start, start + size))


@dataclass(frozen=True, eq=False)
class Call:
    """One multiplication with a parameter: what was multiplied, and the result.

    ``patches`` turns samples of ``given`` into a of shape (S, T, c); ``table`` turns samples of
    ``result``, or of a gradient in it, into shape (S, T, r).
    """

    given: Tensor
    result: Tensor
    patches: Callable[[Tensor], Tensor]
    table: Callable[[Tensor], Tensor]

    def gradient(self, slopes: Tensor) -> Tensor:
        """Sum delta_t a_t' over all samples and positions, (r c,); delta as in ``result``."""
        total = slopes.new_zeros(())
        # Patches of images are many times as large as the images: 256 samples at a time.
        blocks = zip(torch.split(self.given.detach(), 256), torch.split(slopes, 256), strict=True)
        for given, slope in blocks:
            table = self.table(slope).flatten(0, 1)
            total = total + table.T @ self.patches(given).flatten(0, 1)
        return total.reshape(-1)


class WatchedProducts(TorchFunctionMode):
    """Watches a forward pass for products a W' and convolutions with a parameter W.

    Of each parameter the last one is kept. Where there are several, or other uses, it does not give
    the whole gradient: the caller compares (`Margins._products_of_block`).
    """

    # The functions by which a module takes W', and multiplies with it.
    transposing: ClassVar[tuple[Any, ...]] = (
        torch.Tensor.T.__get__,  # type: ignore[attr-defined]
        torch.Tensor.t,
        torch.t,
    )
    multiplying: ClassVar[tuple[Any, ...]] = (
        torch.matmul,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.mm,
    )

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        # Tensors are known by their id, and kept, as Python gives the id of a dead one to another.
        self.matrices = {id(tensor): (name, tensor) for name, tensor in parameters.items()}
        self.transposed = dict[int, tuple[str, Tensor]]()
        self.calls = dict[str, Call]()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in self.transposing and args and id(args[0]) in self.matrices:
            self.transposed[id(result)] = (self.matrices[id(args[0])][0], result)
        elif func in self.multiplying and len(args) == 2:
            self._record(self.transposed.get(id(args[1])), _product(args[0], result))
        elif func is linear and len(args) >= 2:
            self._record(self.matrices.get(id(args[1])), _product(args[0], result))
            # A bias is a matrix of one column, multiplied with 1.
            bias = args[2] if len(args) == 3 else kwargs.get("bias")
            ones = torch.ones_like(args[0][..., :1])
            self._record(self.matrices.get(id(bias)), _product(ones, result))
        elif func is torch.conv2d:
            self._record_convolution(result, *args, **kwargs)
        return result

    def _record(self, found: tuple[str, Tensor] | None, call: Call) -> None:
        if found is not None:
            self.calls[found[0]] = call

    def _record_convolution(
        self,
        result: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: int | str | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
    ) -> None:
        # Other convolutions are not written down: their gradients are computed by `vmap`.
        if groups != 1 or isinstance(padding, str) or input.ndim != weight.ndim:
            return

        def patches(given: Tensor) -> Tensor:
            kernel = tuple(weight.shape[2:])
            return unfold(given, kernel, dilation, padding, stride).transpose(1, 2)

        def table(outputs: Tensor) -> Tensor:
            return outputs.flatten(2).transpose(1, 2)

        self._record(self.matrices.get(id(weight)), Call(input, result, patches, table))
        ones = torch.ones_like(result[:, :1])
        self._record(self.matrices.get(id(bias)), Call(ones, result, table, table))

    def of_samples(self, n_samples: int) -> dict[str, Call]:
        """Return the multiplications whose first axis has the length of the samples."""
        found = dict[str, Call]()
        for name, call in self.calls.items():
            samples_first = len(call.given) == len(call.result) == n_samples
            if call.given.ndim >= 2 and samples_first and call.result.requires_grad:
                found[name] = call
        return found


def _product(given: Tensor, result: Tensor) -> Call:
    """Describe a W': axes between the first and the last are positions."""

    def table(values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, values.shape[-1])

    return Call(given, result, table, table)
