"""Gates of which one is constant: inner products, counts, and the way back."""

import numpy as np
import pytest
import scipy.sparse as sp

from implicit_bias.base.validation import Array
from implicit_bias.problem.constraints import Integers
from implicit_bias.solvers.rotations import RotatedGates, Rotations


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
@pytest.mark.parametrize("permuted", [False, True])
def test_rotated_gates_have_the_inner_products_of_the_gates(name: str, *, permuted: bool) -> None:
    gates, groups = CASES[name]
    if permuted:
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


def test_constant_gates_of_all_groups_are_one() -> None:
    """M = H C contexts become H (C - 1) + 1."""

    def count(gates: Array, groups: Integers) -> int:
        return Rotations.of(sp.csr_array(gates), groups[None]).n_rotated

    assert count(*one_hot([3, 3, 3])) == 3 * 2 + 1
    assert count(*one_hot([9, 9])) == 18  # too wide
    assert count(*mixed()) == 2 + 1 + 2 + 1


def test_groups_that_all_classes_have_are_rotated_once() -> None:
    gates, groups = one_hot([2, 3])
    shared = np.array([groups, groups])
    apart = np.array([groups, groups + 2])
    for of_classes in (shared, apart):
        found = RotatedGates(sp.csr_array(gates), of_classes)
        assert found.rotated.shape == (12, 1 + 2 + 1)
        V = np.random.default_rng(0).normal(size=(2, 4, 3))
        d = np.arange(1.0, of_classes.max() + 2)
        whole = found.expand(V, d)
        ones = found.expand(V, np.ones_like(d))
        np.testing.assert_allclose(whole, d[of_classes][:, :, None] * ones, atol=1e-12)
