"""Classifiers that solve a margin problem: against scikit-learn, CVXPY, and each other."""

from typing import Any, cast

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import RFE
from sklearn.svm import SVC, LinearSVC

import implicit_bias as ib
from example_modules import known
from implicit_bias.base.validation import Array
from implicit_bias.datasets import make_toy
from implicit_bias.estimators import MarginSVC
from implicit_bias.norms import Nuclear
from implicit_bias.problem.gating import GlobalContexts, HyperplaneContexts

DECISION_ATOL = 1e-5
MOONS = make_toy("moons", 60, noise=0.05)
BLOBS = make_toy("blobs", 40, noise=0.1)
XOR = make_toy("xor", 60, noise=0.05)


def apart(n: int = 40, shift: float = 4.0) -> tuple[Array, Array]:
    """Two clouds on one side of the origin, without a constant: only an offset separates them."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) % 3 > 0, 1.0, -1.0)
    return rng.normal(size=(n, 3)) + np.outer(9.0 + shift * y, [0.8, 0.6, 0.0]), y


APART, SIDES = apart()


# --- two classes -------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [np.inf, 0.5])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_margins_are_those_of_scikit_learn(C: float, fit_intercept: bool) -> None:
    """Theirs costs half the squared norm: the optima are equal where C' = C ||w||.

    Stationarity: w / ||w|| = sum_n alpha_n y_n x_n, 0 <= alpha <= C, here, and the same without
    the division there. So alpha' = ||w|| alpha, and C' = ||w|| C.
    """
    X, y = apart(60, shift=1.2) if C < np.inf else apart()
    if C == np.inf and not fit_intercept:  # separable by a plane through the origin
        X, y = BLOBS.X, BLOBS.y
    ours = ib.GatedSVC(C=C, tol=1e-10, fit_intercept=fit_intercept).fit(X, y)
    weight = min(C * float(np.linalg.norm(ours.coef_)), 1e12)
    X_all, y_all = X, y
    if not fit_intercept:  # with each sample mirrored through the origin their offset is 0
        X_all, y_all, weight = np.vstack([X, -X]), np.append(y, -y), weight / 2
    theirs = SVC(kernel="linear", C=weight, tol=1e-10).fit(X_all, y_all)
    near = 1e-3 if C < np.inf else DECISION_ATOL
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), rtol=near, atol=near
    )
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=near)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=near)


@pytest.mark.parametrize(
    ("model", "expected"),
    [(ib.GatedSVC(), True), (ib.GatedReLUSVC(9, random_state=0), False)],
    ids=repr,
)
def test_linear_models_have_an_intercept_by_default(model: MarginSVC, expected: bool) -> None:
    model.set_params(C=5.0).fit(APART, SIDES)
    problem, view = known(model.solution_.problem), model.margin_view()
    assert model.has_intercept_ == problem.intercept == (view.intercept is not None) == expected
    assert model.intercept_.shape == (1,)
    assert (model.intercept_[0] != 0) == expected
    f = problem.decision(model.coef_) + model.intercept_
    np.testing.assert_allclose(model.decision_function(APART), f, rtol=1e-12)


def test_fitted_attributes() -> None:
    model = ib.GLNSVC(n_units=4, n_hyperplanes=2, random_state=0).fit(MOONS.X, MOONS.y)
    assert 0 < len(model.support_) < len(MOONS)
    assert model.coef_.shape == (4 * 4, 3)
    assert model.group_norms_.shape == (4,)
    margins = MOONS.y * model.decision_function(MOONS.X)
    np.testing.assert_allclose(margins[model.support_], 1.0, atol=1e-4)
    assert np.delete(margins, model.support_).min() > 1 + 1e-5
    assert model.group_norms_.sum() == pytest.approx(model.solution_.certificate.upper)
    np.testing.assert_array_equal(np.sign(model.dual_coef_[0]), MOONS.y[model.support_])
    np.testing.assert_array_equal(model.support_vectors_, MOONS.X[model.support_])


def test_one_unit_is_the_shallow_network() -> None:
    model = ib.GLNSVC(n_units=1, n_hyperplanes=3, random_state=0).fit(MOONS.X, MOONS.y)
    gating = model.architecture_.gating
    assert isinstance(gating, GlobalContexts)
    far = 1e3 * np.random.default_rng(0).normal(size=(200, 3))
    unseen = gating.unseen(far) > 0
    assert unseen.any()
    np.testing.assert_array_equal(model.decision_function(far)[unseen], 0.0)
    np.testing.assert_array_equal(model.predict(far)[unseen], model.classes_[0])


# --- more classes ------------------------------------------------------------------------------

NAMES = np.array(["ant", "bee", "cow"])
RNG = np.random.default_rng(0)
Y = np.arange(36) % 3
X = 3.0 * RNG.normal(size=(3, 4))[Y] + 0.5 * RNG.normal(size=(36, 4))
MODELS: dict[str, MarginSVC] = {
    "linf": ib.MaxMarginSVC("linf", fit_intercept=False),
    "nuclear": ib.MaxMarginSVC(Nuclear(), tol=1e-4, C=1.0),
    "svm-l2": ib.GLNSVC(3, norm="l2", random_state=0),
    "gated-relu": ib.GatedReLUSVC(4, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_three_classes(name: str) -> None:
    model = clone(MODELS[name]).fit(X, NAMES[Y])
    assert model.solution_.status is ib.Status.OPTIMAL
    decision = model.decision_function(X)
    assert model.predict(X).tolist() == NAMES[decision.argmax(axis=1)].tolist() == NAMES[Y].tolist()
    assert model.dual_coef_.shape == (3, len(model.support_))
    np.testing.assert_allclose(model.dual_coef_.sum(axis=0), 0, atol=1e-9)
    view = model.margin_view()
    problem = view.problem(X, model.signs(NAMES[Y]))
    assert problem is model.solution_.problem
    found = ib.certify(problem, view.coef, view.alpha(problem), view.intercept)
    assert found.gap <= 1e-3


@pytest.mark.parametrize(("norm", "classes"), [("l2", 2), ("l1", 3)])
def test_coefficients_have_the_shape_of_scikit_learn(norm: str, classes: int) -> None:
    """So that features are selected by them, the informative one of four."""
    inputs = np.random.default_rng(0).normal(size=(60, 4))
    labels = np.digitize(inputs[:, 0], [-0.5, 0.5][: classes - 1])
    model = ib.MaxMarginSVC(norm, C=0.5)
    assert model.fit(inputs, labels).coef_.shape == LinearSVC().fit(inputs, labels).coef_.shape
    scores = inputs @ model.coef_.T + model.intercept_
    found = model.decision_function(inputs).reshape(scores.shape)
    np.testing.assert_allclose(found, scores)
    assert RFE(model, n_features_to_select=1).fit(inputs, labels).support_.tolist() == [1, 0, 0, 0]


def test_groups_of_features_have_names_and_are_inactive_whole() -> None:
    """In the order of the names; an inactive group has norm 0, and no other."""
    noise = np.random.default_rng(1).normal(size=(len(X), 2))
    inputs = np.column_stack([X[:, 0], noise, X[:, 1:]])
    names = ["b", "a", "a", *["c"] * (X.shape[1] - 1)]
    named = ib.MaxMarginSVC(groups=names, C=0.1).fit(inputs, Y)
    numbers = np.unique(names, return_inverse=True)[1]
    numbered = ib.MaxMarginSVC(groups=numbers, C=0.1).fit(inputs, Y)
    np.testing.assert_array_equal(named.coef_, numbered.coef_)
    norms = [np.linalg.norm(named.coef_[..., numbers == group]) for group in range(3)]
    assert norms[0] > 0
    np.testing.assert_array_equal(named.group_norms_ > 0, [False, True, True])
    np.testing.assert_allclose(named.group_norms_[1:], norms[1:])


# --- weights of samples and classes ------------------------------------------------------------

N = 30
NOISY = np.random.default_rng(3).normal(size=(N, 3))
TWO = np.where(NOISY[:, 0] + 0.8 * RNG.normal(size=N) > 0.4, "up", "down")
THREE = np.where(NOISY[:, 1] > 0.6, "far", TWO)
W = RNG.integers(0, 4, N).astype(float)


def test_weights_are_repetitions() -> None:
    model = ib.MaxMarginSVC(C=1.0, tol=1e-10)
    weighted = clone(model).fit(NOISY, THREE, sample_weight=W)
    times = W.astype(int)
    repeated = clone(model).fit(NOISY.repeat(times, axis=0), THREE.repeat(times))
    np.testing.assert_allclose(
        weighted.decision_function(NOISY), repeated.decision_function(NOISY), atol=2e-3
    )
    uppers = [model.solution_.certificate.upper for model in (weighted, repeated)]
    assert uppers[0] == pytest.approx(uppers[1], rel=1e-7)
    np.testing.assert_array_equal(weighted.dropped_, np.flatnonzero(W == 0))
    assert (weighted.solution_.alpha.reshape(N, -1).sum(axis=1) <= W * (1 + 1e-12)).all()
    np.testing.assert_array_equal(weighted.fitted_C_, W[W > 0])
    np.testing.assert_array_equal(weighted.support_vectors_, NOISY[weighted.support_])


@pytest.mark.parametrize("given", [None, "balanced", {"up": 3.0}], ids=str)
def test_weights_beside_gates_against_the_program_written_out(given: Any) -> None:
    """The sum of the units' norms, and each sample's hinge loss times the weights of it."""
    model = ib.GLNSVC(3, C=0.7, class_weight=given, random_state=0, tol=1e-9)
    weights = W + 0.5
    model.fit(NOISY, TWO, sample_weight=weights)
    signs = model.signs(TWO)
    problem = model.architecture_.problem(NOISY, signs)
    of_classes = {"up": 1.0, "down": 1.0}
    if isinstance(given, dict):
        of_classes |= given
    elif given:
        for name in of_classes:
            of_classes[name] = weights.sum() / 2 / weights[name == TWO].sum()
    each = 0.7 * weights * [of_classes[name] for name in TWO]
    coef = cp.Variable((problem.gates.shape[1], NOISY.shape[1]))
    margins = cp.multiply(signs, cp.sum(cp.multiply(problem.gates, NOISY @ coef.T), axis=1))
    norms = [cp.norm(coef[problem.groups == g], "fro") for g in np.unique(problem.groups)]
    written = cp.Problem(cp.Minimize(sum(norms) + each @ cp.pos(1 - margins)))
    written.solve(solver="CLARABEL")
    assert model.solution_.certificate.upper == pytest.approx(written.value, rel=1e-6)
    np.testing.assert_allclose(signs * model.decision_function(NOISY), margins.value, atol=1e-3)


# --- samples that have no hard margin ----------------------------------------------------------

FLIPPED = np.where(np.arange(60) < 2, -MOONS.y, MOONS.y)  # two wrong labels among many right ones


def test_failures_raise_or_warn() -> None:
    with pytest.raises(ib.SolveError, match="not separable") as caught:
        ib.GatedSVC(on_failure="raise").fit(XOR.X, XOR.y)
    assert caught.value.solution.alpha.sum() == pytest.approx(1.0)
    with pytest.warns(ib.NotSeparableWarning, match="not separable"):
        model = ib.GatedSVC(on_failure="warn").fit(XOR.X, XOR.y)
    assert model.solution_.status is ib.Status.NOT_SEPARABLE
    assert known(known(model.failure_).proof).alpha.sum() == pytest.approx(1.0)
    assert not model.coef_.any()
    assert ib.GLNSVC(n_units=10, random_state=0).fit(XOR.X, XOR.y).score(XOR.X, XOR.y) == 1.0


def test_samples_without_a_hard_margin_have_a_soft_one() -> None:
    with pytest.warns(ib.NotSeparableWarning, match="on_failure='raise' .--on-failure raise"):
        soft = ib.GatedSVC(soft_C=2.0).fit(XOR.X, XOR.y)
    asked = ib.GatedSVC(C=2.0).fit(XOR.X, XOR.y)
    np.testing.assert_array_equal(soft.coef_, asked.coef_)
    assert known(soft.failure_).status is ib.Status.NOT_SEPARABLE
    assert soft.fitted_C_ == 2.0


def dropped(scale: float = 1.0) -> ib.GatedSVC:
    contexts = HyperplaneContexts.random(scale * MOONS.X, 3, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"left out \d+ samples"):
        return ib.GatedSVC(contexts, on_failure="drop").fit(scale * MOONS.X, FLIPPED)


def test_samples_may_be_left_out() -> None:
    """All but those are separated by the hard margin; which they are has no scale."""
    model = dropped()
    kept = np.setdiff1d(np.arange(60), model.dropped_)
    assert 0 < len(model.dropped_) < 15
    assert known(model.failure_).status is ib.Status.NOT_SEPARABLE
    assert (FLIPPED * model.decision_function(MOONS.X))[kept].min() == pytest.approx(1.0)
    assert not model.solution_.alpha[model.dropped_].any()
    assert set(model.support_) <= set(kept)
    again = ib.GatedSVC(model.gating).fit(MOONS.X[kept], FLIPPED[kept])
    np.testing.assert_allclose(model.coef_, again.coef_)
    np.testing.assert_array_equal(model.dropped_, dropped(1e3).dropped_)
    # The problem of the same samples is the one that was solved, that of others has them all.
    view = model.margin_view()
    own = view.problem(MOONS.X, FLIPPED)
    assert own is model.solution_.problem
    assert own.n_samples == len(kept)
    assert view.problem(MOONS.X[::-1], FLIPPED[::-1]).n_samples == 60


def test_a_constant_is_advised_where_it_helps() -> None:
    with pytest.raises(ib.SolveError, match="append a constant 1"):
        ib.GatedSVC(fit_intercept=False, on_failure="raise").fit(APART, SIDES)
    assert ib.GatedSVC().fit(APART, SIDES).score(APART, SIDES) == 1.0


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (ib.GLNSVC(norm=cast(Any, "l1")), "norm"),
        (ib.GLNSVC(3, solver="osqp"), "OSQP"),
        (ib.GatedSVC(cast(Any, np.ones((60, 3)))), "MarginProblem"),
        (ib.GatedReLUSVC(gates=cast(Any, None)), "gates"),
        (ib.HiddenLayerSVC(cast(Any, 3)), "network"),
    ],
)
def test_bad_parameters(model: MarginSVC, word: str) -> None:
    with pytest.raises((TypeError, ValueError), match=word):
        model.fit(XOR.X, XOR.y)
