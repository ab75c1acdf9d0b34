"""What all estimators share: scikit-learn's contract, checks of samples, and weights."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import implicit_bias as ib
from example_modules import known
from implicit_bias.datasets import make_toy
from implicit_bias.estimators import BinaryClassifier, MarginSVC

MOONS = make_toy("moons", 60, noise=0.05)
# Of each kind some whose checks take two seconds together.
QUICK = [
    ib.MaxMarginSVC("linf", C=1.0),
    ib.GaLUClassifier(20, ridge=1e-3, random_state=0),
    ib.GaLURegressor(20, ridge=1e-3, random_state=0),
]
SLOW: list[BinaryClassifier] = [
    # With a finite C every check passes: then a solution always exists.
    ib.MaxMarginSVC("l2", C=10.0),
    ib.GLNSVC(n_units=5, C=10.0, random_state=0),
    ib.GatedReLUSVC(n_units=5, C=10.0, random_state=0),
    ib.HiddenLayerSVC(C=10.0, fit_intercept=False),
    # As they come: what no hard margin separates has a soft one.
    ib.GatedSVC(),
    ib.GLNSVC(n_units=10, norm="l2", random_state=0),
    ib.GLNClassifier(n_units=4, steps=300, random_state=0),
    # The check has three classes, each with a network: 4 units of a network may all be dead.
    ib.ReLUClassifier(n_units=8, steps=300, random_state=0),
    ib.InfiniteWidthSVC(C=0.1, tol=0.1, max_rounds=2, random_state=0),
]
# Samples twice and weights of 2 are one program, but the check asks for seven equal digits where
# the gap is 1e-6; and gates whose thresholds are medians of the inputs count these, not weights.
NOT_TO_SEVEN_DIGITS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "the solve is to a gap of 1e-6"
    for kind in ("dense", "sparse")
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model", [*QUICK, *(pytest.param(model, marks=pytest.mark.slow) for model in SLOW)], ids=repr
)
def test_check_estimator(model: Any) -> None:
    failing = NOT_TO_SEVEN_DIGITS if isinstance(model, MarginSVC) else {}
    check_estimator(model, on_skip=None, expected_failed_checks=failing)


# --- inputs and labels -------------------------------------------------------------------------


def test_tables_and_labels_of_any_kind() -> None:
    """Frames, tensors that require a gradient, and labels of text."""
    expected = ib.MaxMarginSVC(C=1.0).fit(MOONS.X, MOONS.y).decision_function(MOONS.X)
    inputs: list[Any] = [
        pd.DataFrame(MOONS.X),
        torch.tensor(MOONS.X, requires_grad=True),
    ]
    labels = np.where(MOONS.y > 0, "up", "down")
    for X in inputs:
        model = ib.MaxMarginSVC(C=1.0).fit(X, labels)
        assert model.decision_function(X) == pytest.approx(expected)
        assert model.predict(X).tolist() == np.where(expected > 0, "up", "down").tolist()


@pytest.mark.parametrize(
    "model",
    [ib.GLNSVC(3, C=1.0, random_state=0), ib.GLNClassifier(3, steps=20, random_state=0)],
    ids=repr,
)
def test_sparse_inputs_are_those_as_an_array(model: BinaryClassifier) -> None:
    thin = np.where(np.abs(MOONS.X) > 0.5, MOONS.X, 0.0)
    expected = clone(model).fit(thin, MOONS.y).decision_function(thin)
    for kind in (sp.csr_array, sp.coo_matrix):
        fitted = clone(model).fit(kind(thin), MOONS.y)
        np.testing.assert_array_equal(fitted.decision_function(kind(thin)), expected)


# --- the margin problem's side -----------------------------------------------------------------


def test_a_fitted_model_keeps_its_problem() -> None:
    model = ib.GLNSVC(5, random_state=0).fit(MOONS.X, MOONS.y)
    problem, view = known(model.solution_.problem), model.margin_view()
    np.testing.assert_array_equal(problem.X, MOONS.X)
    assert view.problem(MOONS.X, MOONS.y) is problem
    # Other samples make another problem; any alpha bounds its optimum.
    other = view.problem(MOONS.X + 0.01, MOONS.y)
    assert other is not problem
    found = ib.certify(other, view.coef, view.alpha(other))
    assert 0 < found.lower <= found.upper < np.inf
    assert view.alpha(view.problem(MOONS.X[:9], MOONS.y[:9])) is None


# --- weights -----------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
W = RNG.integers(0, 4, 60).astype(float)
NAMES = np.where(MOONS.y > 0, "up", "down")


def test_a_weighted_model_knows_its_own_samples_alone() -> None:
    model = ib.MaxMarginSVC(C=1.0).fit(MOONS.X, NAMES, sample_weight=W)
    view = model.margin_view()
    problem = view.problem(MOONS.X, MOONS.y)
    np.testing.assert_array_equal(problem.box, W[W > 0])
    assert ib.certify(problem, view.coef, view.alpha(problem), view.intercept).gap <= 1e-5
    for rows in (slice(None, None, -1), slice(5)):
        with pytest.raises(ValueError, match="one C per sample"):
            view.problem(MOONS.X[rows], MOONS.y[rows])


@pytest.mark.parametrize(
    ("parameters", "weights", "match"),
    [
        ({}, -W, "negative"),
        ({"class_weight": "even"}, None, "class_weight"),
    ],
)
def test_wrong_weights_are_refused(parameters: dict[str, Any], weights: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ib.MaxMarginSVC(C=1.0, **parameters).fit(MOONS.X, NAMES, weights)
