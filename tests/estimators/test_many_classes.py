"""Classifiers with many classes and under any norm."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.svm import LinearSVC

import implicit_bias as ib
from implicit_bias.datasets import load_digits
from implicit_bias.estimators import MarginSVC, NetworkClassifier
from implicit_bias.norms import GroupNorm, Lp, Nuclear

NAMES = np.array(["ant", "bee", "cow"])


RNG = np.random.default_rng(0)
Y = np.arange(36) % 3
X = 3.0 * RNG.normal(size=(3, 4))[Y] + 0.5 * RNG.normal(size=(36, 4))
MODELS: dict[str, MarginSVC] = {
    "l1": ib.MaxMarginSVC("l1"),
    "l2": ib.MaxMarginSVC("l2"),
    "linf": ib.MaxMarginSVC("linf", fit_intercept=False),
    "lasso": ib.MaxMarginSVC("l2", groups=[0, 0, 1, 1]),
    "l3": ib.MaxMarginSVC(Lp(3.0), tol=1e-4),
    "nuclear": ib.MaxMarginSVC(Nuclear(), tol=1e-4, C=1.0),
    "linear": ib.GatedSVC(),
    "gln": ib.GLNSVC(3, random_state=0),
    "svm-l2": ib.GLNSVC(3, norm="l2", random_state=0),
    "gated-relu": ib.GatedReLUSVC(4, random_state=0),
}


NETWORKS: dict[str, NetworkClassifier] = {
    "gln": ib.GLNClassifier(4, steps=60, learning_rate=0.3, random_state=0),
    "gln-shared": ib.GLNClassifier(4, steps=60, learning_rate=0.3, shared=True, random_state=0),
    "gln-bias": ib.GLNClassifier(3, steps=60, learning_rate=0.3, readout_bias=True, random_state=0),
    "gln-local": ib.GLNClassifier(3, steps=60, learning_rate=0.3, rule="local", random_state=0),
    "relu": ib.ReLUClassifier(5, steps=60, random_state=0),
    "relu-shared": ib.ReLUClassifier(12, steps=60, shared=True, random_state=0),
    "deep": ib.ReLUClassifier((6, 5), steps=200, random_state=0),
}
DIGITS = load_digits(classes=["all"]).take(np.arange(120))


@pytest.mark.every(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_ten_digits(name: str, tmp_path: Path) -> None:
    X, labels = DIGITS.X, np.array([*"abcdefghij"])[DIGITS.y]
    model = clone(NETWORKS[name]).fit(X, labels)
    assert model.score(X, labels) > 0.4
    assert model.history()[-1].loss < model.history()[0].loss
    decision, shares = model.decision_function(X), model.predict_proba(X)
    assert decision.shape == shares.shape == (120, 10)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert model.predict(X).tolist() == model.classes_[shares.argmax(axis=1)].tolist()
    first = np.exp(decision[0]) / np.exp(decision[0]).sum()
    np.testing.assert_allclose(shares[0], first)
    assert model.history()[-1].error == np.mean(model.predict(X) != labels)
    view = model.margin_view()
    if view is None:
        return
    problem = view.problem(X, model.signs(labels))
    assert problem.classes == 10
    plain = problem.decision(view.coef)
    if model.network_.readout_bias is None:
        np.testing.assert_allclose(plain, decision, rtol=1e-9, atol=1e-9)


def test_two_classes_have_one_output_and_probabilities() -> None:
    two = ib.GLNClassifier(3, steps=20, shared=True, random_state=0).fit(X[Y < 2], Y[Y < 2])
    assert two.network_.classes is None
    f, shares = two.decision_function(X), two.predict_proba(X)
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-f)))
    exponential = ib.GLNClassifier(
        3, steps=5, learning_rate=1e-4, loss="exponential", random_state=0
    ).fit(X, Y)
    with pytest.raises(AttributeError, match="predict_proba"):
        exponential.predict_proba(X)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", MODELS)
def test_three_classes(name: str, tmp_path: Path) -> None:
    model = clone(MODELS[name]).fit(X, NAMES[Y])
    assert model.solution_.status is ib.Status.OPTIMAL
    assert model.classes_.tolist() == NAMES.tolist()
    decision = model.decision_function(X)
    assert decision.shape == (36, 3)
    assert model.predict(X).tolist() == NAMES[decision.argmax(axis=1)].tolist()
    assert (model.predict(X) == NAMES[Y]).all()
    assert model.coef_.shape[0] == 3
    assert model.intercept_.shape == (3,)
    assert model.dual_coef_.shape == (3, len(model.support_))
    np.testing.assert_allclose(model.dual_coef_.sum(axis=0), 0, atol=1e-9)
    view = model.margin_view()
    problem = view.problem(X, model.signs(NAMES[Y]))
    assert problem is model.solution_.problem
    found = ib.certify(problem, view.coef, view.alpha(problem), view.intercept)
    assert found.gap <= 1e-3
    some = view.problem(X[Y < 2], model.signs(NAMES[Y[Y < 2]]))
    assert some.classes == 3


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_have_the_shape_of_scikit_learn(norm: str, classes: int) -> None:
    """So that features are selected by them, the informative one of four."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 4))
    labels = np.digitize(inputs[:, 0], [-0.5, 0.5][: classes - 1])
    model = ib.MaxMarginSVC(norm, C=0.5)
    assert model.fit(inputs, labels).coef_.shape == LinearSVC().fit(inputs, labels).coef_.shape
    scores = inputs @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(
        model.decision_function(inputs), scores[:, 0] if classes == 2 else scores
    )
    assert RFE(model, n_features_to_select=1).fit(inputs, labels).support_.tolist() == [1, 0, 0, 0]
    selected = SelectFromModel(model, max_features=1).fit(inputs, labels)
    assert selected.get_support().tolist() == [1, 0, 0, 0]


def test_groups_of_features_have_names_and_fall_out_whole() -> None:
    """In the order of the names; a group that the norm switches off has norm 0, and no other."""
    noise = np.random.default_rng(1).normal(size=(len(X), 2))
    inputs = np.column_stack([X[:, 0], noise, X[:, 1:]])
    names = ["b", "a", "a", *["c"] * (X.shape[1] - 1)]
    named = ib.MaxMarginSVC(groups=names, C=0.1).fit(inputs, Y)
    numbers = np.unique(names, return_inverse=True)[1]
    np.testing.assert_array_equal(
        named.coef_, ib.MaxMarginSVC(groups=numbers, C=0.1).fit(inputs, Y).coef_
    )
    norms = [np.linalg.norm(named.coef_[..., numbers == group]) for group in range(3)]
    assert norms[0] > 0
    np.testing.assert_array_equal(named.group_norms_ > 0, [False, True, True])
    np.testing.assert_allclose(named.group_norms_[1:], norms[1:])


def test_one_network_a_class() -> None:
    """SVM-GLN sums norms over classes and units, SVM-L2 over all classes in one."""
    gln = ib.GLNSVC(3, random_state=0).fit(X, Y)
    assert len(gln.group_norms_) == 9
    by_hand = np.linalg.norm(gln.coef_.reshape(3, 3, -1), axis=2).ravel()
    kept = gln.group_norms_ > 0
    np.testing.assert_allclose(gln.group_norms_[kept], by_hand[kept], rtol=1e-9)
    assert by_hand[~kept].max(initial=0) <= 1e-4 * by_hand.max()
    together = ib.GLNSVC(3, norm="l2", random_state=0).fit(X, Y)
    assert len(together.group_norms_) == 1
    assert len(ib.GatedSVC().fit(X, Y).group_norms_) == 1


@pytest.mark.parametrize("name", ["l1", "l2", "linf"])
def test_the_estimator_solves_the_posed_problem(name: str) -> None:
    model = ib.MaxMarginSVC(name, fit_intercept=True, tol=1e-8).fit(X, Y)
    posed = ib.solve(ib.max_margin(X, Y, name, intercept=True), tol=1e-8)
    assert model.solution_.certificate.upper == pytest.approx(posed.certificate.upper, rel=1e-7)
    two = ib.MaxMarginSVC(name, fit_intercept=False, tol=1e-8).fit(X[Y < 2], NAMES[Y[Y < 2]])
    assert two.decision_function(X).shape == (36,)
    binary = ib.solve(ib.max_margin(X[Y < 2], 2 * Y[Y < 2] - 1, name), tol=1e-8)
    assert two.solution_.certificate.upper == pytest.approx(binary.certificate.upper, rel=1e-7)


def test_classes_that_are_not_separable_can_be_relaxed() -> None:
    labels = Y.copy()
    twice = np.vstack([X, X[:1]])
    labels = np.append(labels, 1)
    model = ib.MaxMarginSVC(on_failure="drop")
    with pytest.warns(Warning, match="classes 0 and 1"):
        model.fit(twice, labels)
    assert model.dropped_.tolist() in ([0], [36])
    assert model.solution_.alpha.shape == (37, 3)


def test_unknown_norms_and_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="norm"):
        ib.MaxMarginSVC("l7").fit(X, Y)
    with pytest.raises(ValueError, match="GroupNorm"):
        ib.MaxMarginSVC(GroupNorm(np.zeros(1, dtype=int)), groups=[0, 0, 1, 1]).fit(X, Y)
    model = ib.MaxMarginSVC().fit(X, Y)
    with pytest.raises(ValueError, match="among"):
        model.signs([0, 7])
