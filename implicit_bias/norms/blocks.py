r"""Norms of consecutive blocks of coefficients, as matrices, and one norm over these norms.

    Omega(zeta) = outer(inner_1(zeta_1), ..., inner_B(zeta_B)),
    Omega_*(V)  = outer_*(inner_1*(V_1), ..., inner_B*(V_B)),

the outer norm one of entries, which grows with each of its arguments. The tensors of a module, one
after the other, are such blocks: the largest spectral norm of any of them is the norm of Muon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.norms.entries import Entrywise
from implicit_bias.norms.norm import ConjugatedNorm, Shape, UndividedNorm, exactly


@dataclass(frozen=True)
class Block:
    """Consecutive coefficients, in C order a matrix, and the norm of that matrix."""

    norm: ConjugatedNorm
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return self.shape[0] * self.shape[1]


@final
@dataclass(frozen=True)
class OverBlocks(UndividedNorm):
    """A norm of each block, and one over these norms.

    Parameters
    ----------
    blocks : tuple of Block
        In the order of the coefficients, all of which are in one of them.
    outer : L1, L2, LInf or Lp
        Over the blocks' norms.

    Examples
    --------
    >>> from implicit_bias.norms import LInf, Spectral
    >>> norm = OverBlocks((Block(Spectral(), (2, 1)), Block(LInf(), (1, 2))), LInf())
    >>> norm.value(np.array([[3.0, 4.0, 6.0, 1.0]]))
    6.0
    >>> norm.dual(np.array([[3.0, 4.0, 6.0, 1.0]]))
    12.0
    """

    blocks: tuple[Block, ...]
    outer: Entrywise

    @property
    def conjugate(self) -> OverBlocks:
        """The dual norm: that of each block, under the dual of the outer norm."""
        blocks = tuple(Block(block.norm.conjugate, block.shape) for block in self.blocks)
        return OverBlocks(blocks, self.outer.conjugate)

    def value(self, coef: Array) -> float:
        """Omega of coefficients, of any shape."""
        parts = zip(self.blocks, self.split(coef), strict=True)
        return self.outer.value(np.array([block.norm.value(part) for block, part in parts]))

    def maximiser(self, V: Array) -> Array:
        """Return a_b u_b: a maximizes over the blocks' dual norms, u_b within the block."""
        parts = self.split(V)
        duals = [block.norm.dual(part) for block, part in zip(self.blocks, parts, strict=True)]
        weights = self.outer.maximiser(np.array(duals))
        found = []
        for weight, block, part in zip(weights, self.blocks, parts, strict=True):
            best = np.zeros(block.shape)
            if weight:  # under l1 a single block has one
                best = block.norm.maximiser(part)
            found.append((weight * best).reshape(-1))
        return np.concatenate(found).reshape(V.shape)

    def partition(self, shape: Shape) -> None:
        """Return None, whatever the norms: solvers read the blocks themselves."""
        return

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return Omega of flattened coefficients in CVXPY."""
        atoms = []
        start = 0
        for block in self.blocks:
            part = zeta[start : start + block.size]
            atoms.append(block.norm.atom(part, block.shape, cp))
            start += block.size
        return self.outer.atom(cp.hstack(atoms), (len(atoms),), cp)

    def split(self, coef: Array) -> list[Array]:
        """Return the matrix of each block."""
        # Blocks are consecutive: each ends where the next one begins.
        ends = np.cumsum([block.size for block in self.blocks])
        parts = np.split(coef.reshape(-1), ends[:-1])
        return [part.reshape(block.shape) for part, block in zip(parts, self.blocks, strict=True)]

    def _bound(self, A: Enclosure) -> float:
        # The outer norm grows with each of its arguments, so that their bounds give its bound.
        parts = zip(self.blocks, self.split(A.value), self.split(A.radius), strict=True)
        bounds = [block.norm.bound(Enclosure(value, radius)) for block, value, radius in parts]
        return self.outer.bound(exactly(np.array(bounds)))
