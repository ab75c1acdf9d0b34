"""Weights of samples and classes, sparse inputs, and what the defaults do without a hard margin."""

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import implicit_bias as ib
from example_modules import known
from implicit_bias.base.validation import Array
from implicit_bias.estimators import BinaryClassifier, MarginSVC

RNG = np.random.default_rng(3)
N = 30
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + 0.8 * RNG.normal(size=N) > 0.4, "up", "down")
THREE = np.where(X[:, 1] > 0.6, "far", Y)
W = RNG.integers(0, 4, N).astype(float)
HARD_Y = np.where(X[:, 0] > 0, "up", "down")
NOISE = np.where(np.arange(N) % 2, "up", "down")
MODELS: dict[str, MarginSVC] = {
    "linear": ib.MaxMarginSVC(C=1.0, tol=1e-10),
    "linf": ib.MaxMarginSVC("linf", C=1.0, tol=1e-10),
    "gated": ib.GLNSVC(3, C=1.0, threshold="zero", random_state=0, tol=1e-10),
    "relu": ib.GatedReLUSVC(3, C=1.0, threshold="zero", random_state=0, tol=1e-10),
    "hidden": ib.HiddenLayerSVC(C=1.0, tol=1e-10),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_repetitions(name: str, y: Any) -> None:
    weighted = clone(MODELS[name]).fit(X, y, sample_weight=W)
    times = W.astype(int)
    repeated = clone(MODELS[name]).fit(X.repeat(times, axis=0), y.repeat(times))
    if name != "linf":  # of which several networks may be optimal
        np.testing.assert_allclose(
            weighted.decision_function(X), repeated.decision_function(X), atol=2e-3
        )
    uppers = [model.solution_.certificate.upper for model in (weighted, repeated)]
    assert uppers[0] == pytest.approx(uppers[1], rel=1e-7)
    np.testing.assert_array_equal(weighted.dropped_, np.flatnonzero(W == 0))
    assert (weighted.solution_.alpha.reshape(N, -1).sum(axis=1) <= W * (1 + 1e-12)).all()
    np.testing.assert_array_equal(weighted.fitted_C_, W[W > 0])
    assert not set(weighted.support_) & set(weighted.dropped_)
    assert weighted.dual_coef_.shape[1] == len(weighted.support_)
    if name != "hidden":
        np.testing.assert_array_equal(weighted.support_vectors_, X[weighted.support_])


def test_no_weight_is_no_sample() -> None:
    keep = W > 0
    weighted = ib.MaxMarginSVC(C=1.0).fit(X, Y, np.where(keep, 2.0, 0.0))
    without = ib.MaxMarginSVC(C=2.0).fit(X[keep], Y[keep])
    np.testing.assert_array_equal(weighted.coef_, without.coef_)
    assert weighted.fitted_C_ == 2.0
    with pytest.raises(ValueError, match="one class only, 'up'.*not zero"):
        ib.MaxMarginSVC().fit(X, Y, (Y == "up").astype(float))


def test_a_proof_names_the_samples_that_were_passed() -> None:
    """Also where others before them have no weight."""
    again, labels = np.vstack([X, X[7]]), np.append(HARD_Y, "down" if HARD_Y[7] == "up" else "up")
    weights = np.append(np.zeros(3), np.ones(N - 2))
    with pytest.warns(ib.NotSeparableWarning, match=rf"\b7\b.*\b{N}\b"):
        model = ib.MaxMarginSVC().fit(again, labels, weights)
    np.testing.assert_array_equal(np.flatnonzero(known(model.failure_).alpha), [7, N])
    np.testing.assert_array_equal(model.dropped_, [0, 1, 2])


def test_weights_change_no_hard_margin() -> None:
    """But those that are 0, which leave samples out."""
    plain = ib.MaxMarginSVC().fit(X, HARD_Y)
    weights = RNG.uniform(0.1, 9, N)
    with pytest.warns(UserWarning, match="hard margin.*C=0.1"):
        weighted = ib.MaxMarginSVC(class_weight="balanced").fit(X, HARD_Y, weights)
    np.testing.assert_array_equal(plain.coef_, weighted.coef_)
    assert weighted.fitted_C_ == np.inf
    weights[plain.support_] = 0.0
    fewer = ib.MaxMarginSVC().fit(X, HARD_Y, weights)
    assert fewer.solution_.certificate.upper < plain.solution_.certificate.upper


@pytest.mark.parametrize("given", [None, "balanced", {"up": 3.0}], ids=str)
def test_weights_beside_gates_against_the_program_written_out(given: Any) -> None:
    """The sum of the units' norms, and each sample's hinge loss times the weights of it."""
    model = ib.GLNSVC(3, C=0.7, class_weight=given, random_state=0, tol=1e-9)
    weights = W + 0.5
    model.fit(X, Y, sample_weight=weights)
    signs = model.signs(Y)
    problem = model.architecture_.problem(X, signs)
    of_classes = {"up": 1.0, "down": 1.0}
    if isinstance(given, dict):
        of_classes |= given
    elif given:
        of_classes = {name: weights.sum() / 2 / weights[Y == name].sum() for name in ("up", "down")}
    each = 0.7 * weights * [of_classes[name] for name in Y]
    coef = cp.Variable((problem.gates.shape[1], X.shape[1]))
    margins = cp.multiply(signs, cp.sum(cp.multiply(problem.gates, X @ coef.T), axis=1))
    norms = [cp.norm(coef[problem.groups == g], "fro") for g in np.unique(problem.groups)]
    written = cp.Problem(cp.Minimize(sum(norms) + each @ cp.pos(1 - margins)))
    written.solve(solver="CLARABEL")
    assert model.solution_.certificate.upper == pytest.approx(written.value, rel=1e-6)
    np.testing.assert_allclose(signs * model.decision_function(X), margins.value, atol=1e-3)


def test_balanced_classes_are_those_of_the_weights() -> None:
    """So that weights are repetitions with it, too."""
    weighted = ib.MaxMarginSVC(C=1.0, class_weight="balanced").fit(X, Y, sample_weight=W)
    sums = [weighted.fitted_C_[Y[W > 0] == label].sum() for label in ("up", "down")]  # type: ignore[index]
    assert sums[0] == pytest.approx(sums[1])
    assert sum(sums) == pytest.approx(W.sum())


@pytest.mark.parametrize(
    ("parameters", "weights", "match"),
    [
        ({}, -W, "negative"),
        ({}, np.full(N, np.inf), "sample_weight contains inf|infinity"),
        ({}, W[1:], "sample_weight"),
        ({}, 0 * W, "zero"),
        ({"C": W}, None, "pass a number"),
        ({"class_weight": "even"}, None, "class_weight"),
        ({"class_weight": {"up": -1.0}}, None, "negative"),
        ({"class_weight": {"sideways": 1.0, "up": 2.0}}, None, "sideways|not in class_weight"),
    ],
)
def test_wrong_weights_are_refused(parameters: dict[str, Any], weights: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ib.MaxMarginSVC(**{"C": 1.0} | parameters).fit(X, Y, weights)


# --- what else knows the fitted model ------------------------------------------------------------


def test_a_weighted_model_knows_its_own_samples() -> None:
    model = ib.MaxMarginSVC(C=1.0).fit(X, Y, sample_weight=W)
    view = model.margin_view()
    problem = view.problem(X, model.signs(Y))
    np.testing.assert_array_equal(problem.box, W[W > 0])
    assert ib.certify(problem, view.coef, view.alpha(problem), view.intercept).gap <= 1e-5
    for rows in (slice(None, None, -1), slice(5)):
        with pytest.raises(ValueError, match="one C per sample"):
            view.problem(X[rows], model.signs(Y[rows]))


def test_weighted_models_are_compared() -> None:
    models = {"even": ib.MaxMarginSVC(C=1.0).fit(X, Y), "weighted": ib.MaxMarginSVC(C=1.0)}
    models["weighted"].fit(X, Y, sample_weight=W + 1.0)
    found = ib.compare(models, X, Y, train=(X, Y))
    weighted = found.model("weighted").known_margin
    assert not weighted.hard_margin
    assert len(found.programs()) == 2
    assert weighted.certificate.gap <= 1e-5


# --- sparse inputs, and defaults -----------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ib.MaxMarginSVC(C=1.0),
        ib.GLNSVC(3, C=1.0, random_state=0),
        ib.GLNClassifier(3, steps=20, random_state=0),
    ],
    ids=repr,
)
def test_sparse_inputs_are_those_as_an_array(model: BinaryClassifier) -> None:
    thin = np.where(np.abs(X) > 0.5, X, 0.0)
    expected = clone(model).fit(thin, HARD_Y).decision_function(thin)
    for kind in (sp.csr_array, sp.coo_matrix):
        fitted = clone(model).fit(kind(thin), HARD_Y)
        np.testing.assert_array_equal(fitted.decision_function(kind(thin)), expected)
        sparse, dense = (
            ib.compare({"it": fitted}, form(thin), HARD_Y, train=(form(thin), HARD_Y))
            for form in (kind, np.asarray)
        )
        assert (sparse.held_out, str(sparse)) == (False, str(dense))


def test_sparse_inputs_without_room_are_refused() -> None:
    empty = sp.csr_array((2**10, 2**19))
    with pytest.raises(ValueError, match="4.0 GiB.*TruncatedSVD"):
        ib.MaxMarginSVC().fit(empty, np.arange(2**10) % 2)


def test_defaults_answer_where_nothing_separates() -> None:
    with pytest.warns(ib.NotSeparableWarning, match="not separable.*on_failure='raise'"):
        model = ib.MaxMarginSVC(class_weight={"up": 5.0}).fit(X, NOISE)
    assert known(model.failure_).status.inseparable
    C: Any = model.fitted_C_
    assert C.max() == pytest.approx(5.0 * C.min())
    assert C.min() == pytest.approx(100.0 / model.solution_.problem.scale)
    with pytest.raises(ib.SolveError, match="on_failure='soft'"):
        ib.MaxMarginSVC(on_failure="raise").fit(X, NOISE)
    with warnings.catch_warnings(action="ignore", category=ib.NotSeparableWarning):
        scores: Array = cross_val_score(ib.MaxMarginSVC(), X, NOISE, cv=3)
    assert np.isfinite(scores).all()
