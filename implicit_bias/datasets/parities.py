r"""Sparse parities: hard for every linear method, learned by gradient descent on two layers.

The label is the parity of k of n bits, chi_A(x) = prod_{i in A} x_i, and the inputs come from

    D_A = 1/2 (uniform bits) + 1/2 (all bits in A equal, uniform otherwise),    k = |A| odd.

=============  ==================  =============================================================
symbol         shape               meaning
=============  ==================  =============================================================
x              (n,)                bits, -1 or +1 (the source divides them by sqrt(n))
A              k indices           relevant bits; the label is y = chi_A(x)
=============  ==================  =============================================================

What the source proves, of linear methods and of gradient descent, is in `benchmarks/daniely2020`.

Source: Daniely and Malach (2020), "Learning parities with neural networks", section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_features, as_generator
from implicit_bias.datasets.dataset import Dataset


@dataclass(frozen=True)
class ParityDistribution:
    """D_A, and the parity of the bits in A.

    Parameters
    ----------
    n_bits : int
        n.
    relevant : tuple of int
        A: an odd number of different bits, 0 .. n - 1. (Of an even number the easy half has one
        label only, and the gradient at the start does not point to A.)

    Raises
    ------
    ValueError
        An even number of relevant bits, a bit twice, or one that does not exist.
    """

    n_bits: int
    relevant: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "relevant", tuple(sorted(self.relevant)))
        if len(set(self.relevant)) != len(self.relevant) or len(self.relevant) % 2 == 0:
            raise ValueError(
                f"relevant must name an odd number of different bits, got {self.relevant}"
            )
        if not 0 <= self.relevant[0] <= self.relevant[-1] < self.n_bits:
            raise ValueError(
                f"relevant must name bits from 0 to {self.n_bits - 1}, got {self.relevant}"
            )

    @classmethod
    def random(cls, n_bits: int, k: int, *, random_state: int = 0) -> ParityDistribution:
        """Draw A among all sets of k of the n bits, each with equal probability."""
        drawn = as_generator(random_state).choice(n_bits, size=k, replace=False)
        return cls(n_bits, tuple(drawn.tolist()))

    @property
    def k(self) -> int:
        """Number of relevant bits."""
        return len(self.relevant)

    @property
    def mask(self) -> int:
        """Row of A in Walsh coefficients: the sum of 2^i over i in A."""
        return sum(1 << i for i in self.relevant)

    def labels(self, bits: ArrayLike) -> Array:
        """Parities chi_A(x), shape (m,), of bits (m, n)."""
        return np.asarray(self._relevant_bits(bits).prod(axis=1))

    def probabilities(self, bits: ArrayLike) -> Array:
        """Probability under D_A of each row of bits (m, n): shape (m,)."""
        equal = np.abs(self._relevant_bits(bits).sum(axis=1)) == self.k
        return 0.5 * 2.0**-self.n_bits + 0.5 * equal * 2.0 ** -(self.n_bits - self.k + 1)

    def sample(
        self, n_samples: int, *, random_state: int = 0, append_constant: bool = True
    ) -> Dataset:
        """Draw labelled samples from D_A.

        Parameters
        ----------
        n_samples : int
            Their number.
        random_state : int
            Seed of the generator.
        append_constant : bool
            Whether to append the constant 1 as the last column.
        """
        rng = as_generator(random_state)
        bits = rng.choice((-1.0, 1.0), size=(n_samples, self.n_bits))
        easy = rng.random(n_samples) < 0.5
        # In the easy half all relevant bits copy the first of them.
        bits[np.ix_(easy, np.asarray(self.relevant))] = bits[easy, self.relevant[0]][:, None]
        X = bits
        if append_constant:
            X = np.column_stack([bits, np.ones(n_samples)])
        return Dataset(
            f"parity of {self.k} of {self.n_bits} bits",
            X,
            self.labels(bits),
            ("odd", "even"),  # the number of bits that are -1
            has_constant=append_constant,
        )

    def _relevant_bits(self, bits: ArrayLike) -> Array:
        columns: Array = as_features(bits, self.n_bits)[:, list(self.relevant)]
        return columns


def cube(n_bits: int) -> Array:
    """All inputs, shape (2^n, n): in row r bit i is -1 where r has the binary digit 2^i."""
    digits = np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1
    return np.asarray(1.0 - 2.0 * digits, dtype=np.float64)
