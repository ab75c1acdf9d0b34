"""Free offsets of the margin classes: scikit-learn's solutions, what carries them, messages."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import implicit_bias as ib
from example_modules import known
from implicit_bias.base.validation import Array
from implicit_bias.datasets import make_toy, split
from implicit_bias.estimators import MarginSVC
from implicit_bias.problem.gating import HyperplaneContexts, NoGates
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data
from implicit_bias.runs.models import ModelFactory

DECISION_ATOL = 1e-5
MOONS, BLOBS = make_toy("moons", 60, noise=0.05), make_toy("blobs", 40, noise=0.1)


def apart(n: int = 40, shift: float = 4.0) -> tuple[Array, Array]:
    """Two clouds on one side of the origin, without a constant: only an offset separates them."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) % 3 > 0, 1.0, -1.0)
    return rng.normal(size=(n, 3)) + np.outer(9.0 + shift * y, [0.8, 0.6, 0.0]), y


X, Y = apart()


@pytest.mark.parametrize("C", [np.inf, 0.5, 2.0])
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
    [
        (ib.GatedSVC(), True),
        (ib.GatedSVC(NoGates(3)), True),
        (ib.HiddenLayerSVC(), True),
        (ib.GatedSVC(fit_intercept=False), False),
        (ib.GLNSVC(5, random_state=0), False),
        (ib.GatedReLUSVC(9, random_state=0), False),
        (ib.GLNSVC(5, random_state=0, fit_intercept=True), True),
    ],
    ids=repr,
)
def test_linear_models_have_an_intercept_by_default(model: MarginSVC, expected: bool) -> None:
    model.set_params(C=5.0).fit(X, Y)
    assert model.has_intercept_ == expected
    assert model.intercept_.shape == (1,)
    assert (model.intercept_[0] != 0) == expected
    problem, view = known(model.solution_.problem), model.margin_view()
    assert problem.intercept == expected
    assert (view.intercept is not None) == expected
    f = problem.decision(model.coef_) + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), f, rtol=1e-12)
    # Other samples make another problem, of the same kind; any alpha bounds its optimum.
    moved = X + 0.01
    posed = view.problem(moved, Y)
    assert posed is not problem
    assert posed.intercept == expected
    found = ib.certify(posed, view.coef, view.alpha(posed), view.intercept)
    assert 0 < found.lower <= found.upper < np.inf


@pytest.mark.parametrize("value", [1, "yes", 0.0])
def test_what_is_no_choice(value: Any) -> None:
    with pytest.raises(TypeError, match="fit_intercept must be True or False"):
        ib.GatedSVC(fit_intercept=value).fit(X, Y)


def test_samples_left_out_by_margins_with_the_offset() -> None:
    y = Y.copy()
    y[:2] *= -1
    with pytest.warns(ConvergenceWarning, match="left out 2 samples"):
        model = ib.GatedSVC(on_failure="drop").fit(X, y)
    assert model.dropped_.tolist() == [0, 1]
    kept = np.arange(2, len(y))
    assert (y * model.decision_function(X))[kept].min() == pytest.approx(1.0)
    again = ib.GatedSVC().fit(X[kept], y[kept])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-5)


def test_comparison_knows_the_intercept() -> None:
    models = {
        "free": ib.GLNSVC(4, random_state=0, fit_intercept=True).fit(MOONS.X, MOONS.y),
        "in the norm": ib.GLNSVC(4, random_state=0).fit(MOONS.X, MOONS.y),
        "network": ib.GLNClassifier(4, random_state=0, steps=50).fit(MOONS.X, MOONS.y),
    }
    result = ib.compare(models, MOONS.X, MOONS.y, train=(MOONS.X, MOONS.y))
    free, fixed, network = (result.model(name).known_margin for name in models)
    assert free.gates == fixed.gates == network.gates
    assert fixed.program == network.program != free.program
    assert free.norm < fixed.norm
    assert free.norm == models["free"].solution_.certificate.upper
    assert free.min_margin == pytest.approx(1.0 / free.norm)
    assert known(result.svm_of(result.model("network"))).name == "in the norm"


def test_published_models_have_none() -> None:
    config = RunConfig(dataset="moons", models=("svm-gln",), units=3, steps=5)
    factory = ModelFactory(config, Data(MOONS, split(MOONS, 40)))
    relu = factory.build("gd-relu").fit(MOONS.X, MOONS.y)
    for name in ("svm-gln", "svm-l2", "svm-shallow", "svm-linear", "svm-rc", "svm-lc", "svm-hl"):
        assert factory.build(name, relu).get_params()["fit_intercept"] is False


# --- messages that cure ------------------------------------------------------------------------


def test_a_missing_constant_is_named() -> None:
    with pytest.raises(ib.SolveError, match=r"append a constant 1.*fit_intercept=True") as caught:
        ib.GatedSVC(fit_intercept=False, on_failure="raise").fit(X, Y)
    assert caught.value.solution.status is ib.Status.NOT_SEPARABLE
    assert "on_failure='soft'" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    # Both cures work.
    assert ib.GatedSVC().fit(X, Y).score(X, Y) == 1.0
    with_constant = np.column_stack([X, np.ones(len(X))])
    assert ib.GatedSVC(fit_intercept=False).fit(with_constant, Y).score(with_constant, Y) == 1.0


def test_a_constant_is_not_advised_where_it_does_not_help() -> None:
    y = Y.copy()
    y[:2] *= -1
    with pytest.warns(ConvergenceWarning, match="not separable") as caught:
        ib.GatedSVC(fit_intercept=False, on_failure="warn").fit(X, y)
    [warning] = caught
    assert "constant" not in str(warning.message)
    assert "on_failure='soft'" in str(warning.message)


def test_badly_scaled_features_are_named() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([1e12 + rng.normal(size=200), rng.normal(size=200), np.ones(200)])
    model = ib.GatedSVC(solver="interior-point", on_failure="warn", fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="standardise"):
        model.fit(X, np.sign(X[:, 1] + 0.3 * (X[:, 0] - 1e12)))
    assert "center features 0" in model.solution_.message


def test_the_core_does_not_name_parameters_of_classes() -> None:
    contexts = HyperplaneContexts.random(MOONS.X, 2, random_state=0)
    twice = np.vstack([MOONS.X, MOONS.X[:1]])
    labels = np.append(MOONS.y, -MOONS.y[0])
    with pytest.raises(ib.SolveError, match="identical") as caught:
        ib.GatedSVC(contexts, on_failure="raise").fit(twice, labels)
    assert "on_failure" not in caught.value.solution.message
    assert "on_failure='soft'" in str(caught.value)
    assert not any("on_failure" in status.message for status in ib.Status)


def test_a_constant_that_is_gated_off_is_no_cure() -> None:
    gates = np.ones((len(X), 2))
    gates[0] = 0.0
    gates[1, 1] = 0.0
    found = ib.solve(ib.MarginProblem(X, Y, gates, np.arange(2)))
    assert "append a constant" not in found.stats.advice
    assert "intercept=True" in found.stats.advice
