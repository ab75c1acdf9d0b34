"""Neighbouring predictors, by brute force over all joint contexts."""

from itertools import product

import numpy as np
import pytest

from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.neighbours import neighbour_difference


def test_the_difference_of_neighbours_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    n_units, n_contexts = 3, 4
    predictors = AdditivePredictors(rng.normal(size=5), rng.normal(size=(n_units, n_contexts, 5)))
    contexts = [np.array(gamma) for gamma in product(range(n_contexts), repeat=n_units)]
    beta = predictors.at(contexts)
    apart = [
        np.square(one - other).sum()
        for (first, one), (second, other) in product(zip(contexts, beta, strict=True), repeat=2)
        if (first != second).sum() == 1
    ]
    expected = np.sqrt(np.mean(apart) / np.square(beta).sum(axis=1).mean())
    assert neighbour_difference(predictors) == pytest.approx(expected)
