r"""Lemma 12: a second layer that separates all inputs by the parity, after one step of descent.

After the first step the units nearly are functions of z, the sum of the bits in A
(`parity_first_step`). The lemma: for q >= C k^7 log((k+1)/delta) and 7 <= k <= c n^(1/10) there is,
with probability 1 - delta over the start, a second layer u with

    y <u, h(x)> >= 1 for all x,   ||u||_2 <= B k^5 / sqrt(q),   ||u||_0 = B' q / k^(5/2),

and the units it reads have outputs of at most 1. B, B', C and c are constants that the source
does not give.

Here such a layer is found by a linear program, and holds for all inputs whatever n is. In a setting
c of the bits in A unit i has outputs in [l_ci, h_ci], both attained over all other bits, and

    y_c <u, h(x)> >= sum_i y_c u_i (l_ci + h_ci) / 2 - |u_i| (h_ci - l_ci) / 2   for all x with c,

so 2^k inequalities are enough, linear in u = p - m, p, m >= 0. Of all that fulfil them,

    max:  minimise max_i (p_i + m_i), which spreads the weight over the units, as the lemma does;
    sum:  minimise sum_i (p_i + m_i), which reads as few units as it can: at most 2^k.

That the right side takes each unit's worst case by itself makes it sufficient and not necessary.
Not in the paper; derived here.

Source: Daniely and Malach (2020), "Learning parities with neural networks", lemma 12.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from benchmarks.daniely2020 import parity_first_step as parity
from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import ParityDistribution, cube

# Entries below this share of the largest are counted as 0.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class SeparatingLayer:
    """A second layer with y <u, h(x)> >= margin on all inputs.

    Attributes
    ----------
    readout : ndarray of shape (H,)
        u.
    margin : float
        Guaranteed for all 2^n inputs, computed from u and the units: 1 up to rounding.
    """

    readout: Array
    margin: float

    @property
    def norm(self) -> float:
        """||u||_2."""
        return float(np.linalg.norm(self.readout))

    @property
    def n_used(self) -> int:
        """||u||_0, without entries that are rounding."""
        sizes = np.abs(self.readout)
        return int((sizes > NEGLIGIBLE * sizes.max()).sum())


def _label_and_ranges(
    distribution: ParityDistribution, units: parity.TwoLayers
) -> tuple[Array, Array, Array]:
    """Labels of the relevant bits, and the middle and half the length of each unit's range."""
    _, lowest, highest = parity.hidden_ranges(distribution, units)
    labels = cube(distribution.k).prod(axis=1)
    return labels, (lowest + highest) / 2.0, (highest - lowest) / 2.0


def guaranteed_margin(
    distribution: ParityDistribution, units: parity.TwoLayers, readout: Array
) -> float:
    """Bound y <u, h(x)> from below over all inputs; each unit's worst case is taken by itself."""
    y, middle, half = _label_and_ranges(distribution, units)
    return float((y * (middle @ readout) - half @ np.abs(readout)).min())


def separating_layer(
    distribution: ParityDistribution,
    units: parity.TwoLayers,
    *,
    least: Literal["max", "sum"] = "max",
) -> SeparatingLayer | None:
    """Find a second layer that separates all inputs, or None if the units guarantee none.

    Parameters
    ----------
    distribution : ParityDistribution
        D_A.
    units : TwoLayers
        The hidden layer; its own readout is not used.
    least : {"max", "sum"}
        What of |u| is minimal.
    """
    labels, middle, half = _label_and_ranges(distribution, units)
    y = labels[:, None]
    n_units = middle.shape[1]
    # Variables p, m and, for "max", the bound t on all p_i + m_i.
    margins = np.hstack([half - y * middle, half + y * middle])
    if least == "sum":
        costs, rows, limits = np.ones(2 * n_units), margins, -np.ones(len(y))
    else:
        costs = np.concatenate([np.zeros(2 * n_units), [1.0]])
        identity = sp.eye_array(n_units)
        rows = sp.block_array(
            [
                [sp.csr_array(margins), None],
                [sp.hstack([identity, identity]), -np.ones((n_units, 1))],
            ],
            format="csr",
        )
        limits = np.concatenate([-np.ones(len(y)), np.zeros(n_units)])
    found = linprog(costs, A_ub=rows, b_ub=limits, method="highs")
    if found.x is None:
        return None
    readout = found.x[:n_units] - found.x[n_units : 2 * n_units]
    return SeparatingLayer(readout, guaranteed_margin(distribution, units, readout))
