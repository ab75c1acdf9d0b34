"""Free predictors of FReLU networks."""

from itertools import product

import numpy as np

from benchmarks.lippl2022 import frelu_predictors as frelu


def test_free_predictors_of_frelu_determine_all() -> None:
    zeta = np.random.default_rng(0).normal(size=(4, 3))
    everything = np.array(list(product((0, 1), repeat=4)))
    sums = np.array([sum(zeta[gates == 1], np.zeros(3)) for gates in everything])
    np.testing.assert_allclose(frelu.coef_through(everything, sums), zeta, atol=1e-12)
    np.testing.assert_allclose(frelu.coef_through(np.eye(4), zeta), zeta)  # one unit on
