"""Norms over blocks of coefficients: against the norms of the blocks, and their duals."""

import cvxpy as cp
import numpy as np
import pytest

from implicit_bias.base.rounding import Enclosure
from implicit_bias.norms import L1, L2, LInf, Nuclear, Spectral
from implicit_bias.norms.blocks import Block, OverBlocks
from implicit_bias.norms.entries import Entrywise

BLOCKS = (Block(Spectral(), (3, 2)), Block(L1(), (1, 3)), Block(Nuclear(), (2, 2)))
SIZE = 13


@pytest.mark.parametrize("outer", [L1(), L2(), LInf()], ids=str)
def test_value_and_dual_are_put_together_of_those_of_the_blocks(outer: Entrywise) -> None:
    norm = OverBlocks(BLOCKS, outer)
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(1, SIZE))
    matrices = coef[0, :6].reshape(3, 2), coef[0, 9:].reshape(2, 2)
    values = [
        np.linalg.norm(matrices[0], 2),
        np.abs(coef[0, 6:9]).sum(),
        np.linalg.norm(matrices[1], "nuc"),
    ]
    duals = [
        np.linalg.norm(matrices[0], "nuc"),
        np.abs(coef[0, 6:9]).max(),
        np.linalg.norm(matrices[1], 2),
    ]
    orders = {1.0: (1, np.inf), 2.0: (2, 2), np.inf: (np.inf, 1)}
    of_value, of_dual = orders[outer.exponent]
    assert norm.value(coef) == pytest.approx(np.linalg.norm(values, of_value))
    assert norm.dual(coef) == pytest.approx(np.linalg.norm(duals, of_dual))
    best = norm.maximiser(coef)
    assert norm.value(best) == pytest.approx(1.0)
    assert float((best * coef).sum()) == pytest.approx(norm.dual(coef))
    atom = norm.atom(cp.Constant(coef.ravel()), (1, 1, SIZE), cp)
    assert atom.value == pytest.approx(norm.value(coef))
    # Bounds hold for all of an enclosure, and are no larger than its size asks for.
    radius = 0.01 * np.abs(coef)
    signs = rng.choice([-1.0, 1.0], coef.shape)
    bound = norm.dual_bounds(Enclosure(coef, radius))[0]
    assert norm.dual(coef + signs * radius) <= bound <= 1.1 * norm.dual(coef)
    assert norm.value(coef) <= norm.value_bound(coef) <= norm.value(coef) * (1 + 1e-9)
