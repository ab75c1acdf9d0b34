"""Gates of which one is constant: inner products, counts, and the way back."""

import numpy as np
import pytest
import scipy.sparse as sp

from implicit_bias.base.validation import Array
from implicit_bias.problem.constraints import Integers
from implicit_bias.solvers.rotations import RotatedGates


def one_hot(widths: list[int], n: int = 12) -> tuple[Array, Integers]:
    """Return groups of so many contexts each, one of which is on."""
    rng = np.random.default_rng(0)
    gates = [np.eye(width)[rng.permutation(n) % width] for width in widths]
    return np.hstack(gates), np.repeat(np.arange(len(widths)), widths)


def mixed() -> tuple[Array, Integers]:
    """Return one-hot contexts, a group without a constant sum, and a gate that is never on."""
    gates, groups = one_hot([3, 2])
    others = np.random.default_rng(1).normal(size=(12, 2))
    return np.hstack([gates, others, np.zeros((12, 1))]), np.append(groups, [2, 2, 2])


CASES = {
    "contexts": one_hot([2, 3, 2]),
    "a group too wide to be rotated": one_hot([3, 9]),
    "mixed": mixed(),
}


@pytest.mark.parametrize("name", CASES)
def test_rotated_gates_have_the_inner_products_of_the_gates(name: str) -> None:
    """The columns of a group need not stand side by side."""
    gates, groups = CASES[name]
    order = np.random.default_rng(2).permutation(len(groups))
    gates = gates[:, order]
    groups = groups[order]
    found = RotatedGates(sp.csr_array(gates), groups[None])
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(12, 4))
    V = found.rotated.T @ weights  # (M' + 1, D)
    d = rng.random(groups.max() + 1)
    zeta = found.expand(V[None], d)[0]
    for g in range(len(d)):
        Z = gates[:, groups == g]
        columns = found.rotated[:, :-1][:, found.groups == g]
        # What the rotation has made constant adds the same to all inner products.
        np.testing.assert_allclose(columns @ columns.T + found.share[g], Z @ Z.T, atol=1e-12)
        np.testing.assert_allclose(zeta[groups == g], d[g] * Z.T @ weights, atol=1e-12)
