"""Free predictors of FReLU networks."""

from itertools import product

import numpy as np
import pytest

from benchmarks.lippl2022 import frelu_predictors as frelu


def test_free_predictors_of_frelu_determine_all() -> None:
    zeta = np.random.default_rng(0).normal(size=(4, 3))
    everything = np.array(list(product((0, 1), repeat=4)))
    all_predictors = frelu.predictors(zeta, everything)
    for gates, beta in zip(everything, all_predictors, strict=True):
        np.testing.assert_allclose(
            beta, sum((z for z, on in zip(zeta, gates, strict=True) if on), start=np.zeros(3))
        )
    free = frelu.free_contexts(4)
    np.testing.assert_allclose(frelu.coef_through(free, frelu.predictors(zeta, free)), zeta)
    found = frelu.coef_through(everything, all_predictors)
    np.testing.assert_allclose(found, zeta, atol=1e-12)
    assert frelu.norm(found) == pytest.approx(np.linalg.norm(zeta, axis=1).sum())


def test_predictors_that_no_frelu_network_has() -> None:
    with pytest.raises(ValueError, match="determine 1 of 2"):
        frelu.coef_through([[1, 1]], np.ones((1, 1)))
    with pytest.raises(ValueError, match="no FReLU"):
        frelu.coef_through([[1, 0], [0, 1], [1, 1]], np.ones((3, 1)))
