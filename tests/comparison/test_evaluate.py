"""`compare`: every number by hand on small cases."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from comparison.samples import TEST, TRAIN, compared, fitted_models
from example_modules import known
from implicit_bias import GLNSVC, GatedSVC, GLNClassifier, MaxMarginSVC, compare
from implicit_bias.base.counts import Count
from implicit_bias.datasets import make_toy


def test_errors_and_pairs_by_hand() -> None:
    predicted = {name: model.predict(TEST.X) for name, model in fitted_models().items()}
    for name, labels in predicted.items():
        found = compared().model(name)
        assert found.count.count == np.sum(labels != TEST.y)
        assert found.error == pytest.approx(np.mean(labels != TEST.y))
        wrong = fitted_models()[name].predict(TRAIN.X) != TRAIN.y
        assert known(found.train_wrong).count == wrong.sum()
    assert len(compared().pairs) == 10
    for pair in compared().pairs:
        a = predicted[pair.first]
        b = predicted[pair.second]
        p = np.mean(a != TEST.y)
        q = np.mean(b != TEST.y)
        assert pair.disagreement == pytest.approx(np.mean(a != b))
        assert pair.by_chance == pytest.approx(p * (1 - q) + q * (1 - p))
        assert known(compared().agreement(pair.first, pair.second)).count == np.sum(a == b)
        difference = known(compared().difference(pair.first, pair.second))
        assert difference.only_first == np.sum((a != TEST.y) & (b == TEST.y))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_chance_level_is_what_independent_models_show(n_classes: int) -> None:
    """Wrong answers spread evenly over the wrong classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=40_000)

    class Independent:
        def __init__(self, error: float) -> None:
            self.error = error

        def predict(self, X: ArrayLike) -> NDArray[Any]:
            shift = rng.integers(1, n_classes, size=len(y))
            wrong = rng.random(len(y)) < self.error
            return np.asarray((y + wrong * shift) % n_classes)

    result = compare({"a": Independent(0.3), "b": Independent(0.6)}, np.zeros((len(y), 1)), y)
    assert result.many_classes == (n_classes > 2)
    pair = result.pair("a", "b")
    # They agree where both are right, or both give the same one of K - 1 wrong answers.
    p = result.model("a").error
    q = result.model("b").error
    agree = (1 - p) * (1 - q) + p * q / (n_classes - 1)
    assert pair.by_chance == pytest.approx(1 - agree, rel=1e-12)
    assert pair.disagreement == pytest.approx(pair.by_chance, abs=0.01)


def test_margins_by_hand() -> None:
    svm = compared().model("svm").known_margin
    network = compared().model("network").known_margin
    assert svm.optimum == network.optimum  # one problem: same gates, groups and data
    assert svm.excess == pytest.approx(0.0, abs=1e-8)
    trained = fitted_models()["network"].network_
    zeta = trained.coef().reshape(4, 2, -1)  # (H, C, D), row-major
    norm = sum(np.linalg.norm(unit) for unit in zeta)
    smallest = (TRAIN.y * trained.decision(TRAIN.X)).min()
    assert smallest > 0
    assert network.norm == pytest.approx(norm / smallest)
    assert network.excess == pytest.approx(norm / smallest / svm.optimum - 1)
    assert network.min_margin == pytest.approx(smallest / norm)
    assert network.min_margin <= 1 / svm.optimum
    assert svm.margins.min() == pytest.approx(1 / svm.norm)
    np.testing.assert_allclose(network.unit_norms.sum(), 1.0)
    assert svm.support_vectors == len(fitted_models()["svm"].support_)
    assert compared().model("l2").known_margin.optimum != svm.optimum
    assert compared().model("logistic").margin is None


def test_margins_include_the_intercept() -> None:
    X = np.array([[1.0], [2.0], [5.0], [9.0]])
    y = np.array([0, 0, 1, 1])
    svm = MaxMarginSVC().fit(X, y)
    margin = compare({"svm": svm}, X, y, train=(X, y)).model("svm").known_margin
    # f(x) = 2/3 (x - 3.5): margins of 1 at 2 and 5, over a norm of 2/3.
    np.testing.assert_allclose(margin.margins, [2.5, 1.5, 1.5, 5.5], rtol=1e-6)

    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]) + 5.0
    classes = np.arange(3)
    many = MaxMarginSVC().fit(corners, classes)
    result = compare({"many": many}, corners, classes, train=(corners, classes))
    f = many.decision_function(corners)
    rival = np.where(np.eye(3, dtype=bool), -np.inf, f).max(axis=1)
    margins = (np.diag(f) - rival) / np.linalg.norm(many.coef_)
    np.testing.assert_allclose(result.model("many").known_margin.margins, margins, rtol=1e-6)


def test_a_problem_has_one_norm_and_one_C() -> None:
    blobs = make_toy("blobs", 40, noise=0.1)
    unfitted = {
        "l2": MaxMarginSVC(tol=1e-2),
        "again": MaxMarginSVC(tol=1e-9),
        "linf": MaxMarginSVC("linf"),
        "soft": MaxMarginSVC(C=0.5),
        "no intercept": MaxMarginSVC(fit_intercept=False),
    }
    models = {name: model.fit(blobs.X, blobs.y) for name, model in unfitted.items()}
    result = compare(models, blobs.X, blobs.y, train=(blobs.X, blobs.y))
    names = [[model.name for model in same] for same in result.problems()]
    assert names == [["l2", "again"], ["linf"], ["soft"], ["no intercept"]]
    best = models["again"].solution_.certificate.lower
    assert result.model("l2").known_margin.optimum == pytest.approx(best)


def test_an_svm_without_a_solution_has_no_error() -> None:
    xor = make_toy("xor", 40)
    with pytest.warns(UserWarning, match="not separable"):
        linear = GatedSVC(on_failure="warn").fit(xor.X, xor.y)
    gated = GLNSVC(10, random_state=0).fit(xor.X, xor.y)
    result = compare({"linear": linear, "gated": gated}, xor.X, xor.y, train=(xor.X, xor.y))
    assert np.isnan(result.model("linear").error)
    assert np.isnan(result.pair("linear", "gated").disagreement)
    assert result.difference("linear", "gated") is None
    assert result.agreement("linear", "gated") is None
    assert compare({"linear": linear}, xor.X, xor.y).ranking().count == Count(0, 0)
    assert result.model("gated").error == 0.0


def test_what_an_svm_proves_inseparable_holds_for_its_problem() -> None:
    X = np.vstack([TRAIN.X, TRAIN.X[:1]])
    y = np.append(TRAIN.y, -TRAIN.y[0])
    with pytest.warns(UserWarning, match="not separable"):
        svm = GLNSVC(4, random_state=0, on_failure="warn").fit(X, y)
    network = GLNClassifier(4, random_state=0, steps=5).fit(X, y)
    result = compare({"svm": svm, "network": network}, TEST.X, TEST.y, train=(X, y))
    assert [model.has_predictor for model in result.models] == [False, True]
    assert all(model.inseparable for model in result.models)
    assert result.model("network").known_margin.largest_margin is None


def test_what_is_inseparable_without_an_offset_may_be_separable_with_one() -> None:
    X = [[1.0], [2.0]]
    y = [1, -1]
    models = {
        "with": GatedSVC(fit_intercept=True).fit(X, y),
        "without": GatedSVC(fit_intercept=False, on_failure="warn"),
    }
    with pytest.warns(UserWarning, match="not separable"):
        models["without"].fit(X, y)
    result = compare(models, X, y, train=(X, y))
    assert result.model("without").inseparable
    assert not result.model("with").inseparable


def test_a_reduced_solution_is_judged_on_the_samples_it_kept() -> None:
    y = TRAIN.y.copy()
    y[:2] *= -1
    with pytest.warns(UserWarning, match="left out"):
        reduced = GLNSVC(3, random_state=0, on_failure="drop").fit(TRAIN.X, y)
    margin = compare({"m": reduced}, TRAIN.X, y, train=(TRAIN.X, y)).model("m").known_margin
    assert margin.excess < 1e-5
    assert len(margin.margins) == len(y) - len(reduced.dropped_)


def test_without_training_samples_there_are_no_margins() -> None:
    result = compare(fitted_models(), TEST.X, TEST.y)
    assert result.n_train == 0
    assert all(model.margin is None for model in result.models)
    assert np.isnan(result.model("svm").train_error)


SVM = MaxMarginSVC()


@pytest.mark.parametrize(
    ("models", "y", "train", "error", "word"),
    [
        ({"svm": 3}, [1], None, TypeError, "int"),
        ({"svm": SVM}, [], None, ValueError, "sample"),
        ({"svm": SVM}, [1], ([[1.0]],), ValueError, "pair"),
    ],
)
def test_what_is_compared_is_checked(
    models: Any, y: Any, train: Any, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        compare(models, [[1.0]], y, train=train)


def test_labels_are_those_of_the_model_and_one_per_sample() -> None:
    models = {"svm": fitted_models()["svm"]}
    with pytest.raises(ValueError, match="fitted classes"):
        compare(models, TEST.X, np.where(TEST.y > 0, "a", "b"))
    with pytest.raises(ValueError, match="one label"):
        compare(models, TEST.X, TEST.y[:1])
