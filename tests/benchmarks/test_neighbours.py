"""Neighbouring predictors, by brute force over all joint contexts."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from benchmarks.harness import Verdict
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.neighbours import EXPERIMENT, neighbour_difference, settings


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


def test_cells_are_those_of_the_paper_and_all_are_counted() -> None:
    assert len(settings(False)) == 144
    table = pd.DataFrame([{**settings(True)[0], "model": "svm-gln", "neighbours": 0.3}] * 2)
    assert "1 of 144 cells" in EXPERIMENT.found(table)
    assert EXPERIMENT.verdict(table) is Verdict.ANSWERED
