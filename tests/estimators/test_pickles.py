"""Fitted estimators are kept as those of scikit-learn are, and networks as those of torch."""

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
import torch

import implicit_bias as ib
from implicit_bias.datasets.toys import make_toy
from implicit_bias.networks import GLN
from implicit_bias.training.limit import LimitConfig, LimitResult, train_to_limit

MOONS = make_toy("moons", 60, noise=0.05)
LABELS = np.where(MOONS.y > 0, "up", "down")
# Fitted by the tests: each process of a run reads this file, few run its tests.
MODELS: dict[str, Callable[[], Any]] = {
    "MaxMarginSVC": lambda: ib.MaxMarginSVC(C=1.0),
    "GLNSVC": lambda: ib.GLNSVC(n_units=4, random_state=0),
    "GLNClassifier": lambda: ib.GLNClassifier(4, random_state=0, steps=50),
    "GaLUClassifier": lambda: ib.GaLUClassifier(4, random_state=0),
    "InfiniteWidthSVC": lambda: ib.InfiniteWidthSVC(C=1.0, random_state=0),
}
# skops knows no tensors of torch.
WITHOUT_TORCH = ("MaxMarginSVC", "GLNSVC", "GaLUClassifier")


@cache
def fitted(name: str) -> Any:
    return MODELS[name]().fit(MOONS.X[:20] if name == "InfiniteWidthSVC" else MOONS.X, labels(name))


def labels(name: str) -> Any:
    return LABELS[:20] if name == "InfiniteWidthSVC" else LABELS


def assert_same(again: Any, model: Any) -> None:
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    for method in ("predict", "decision_function"):
        found, expected = (getattr(one, method)(MOONS.X) for one in (again, model))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", MODELS)
def test_joblib(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    joblib.dump(model, tmp_path / "model.joblib")
    assert_same(joblib.load(tmp_path / "model.joblib"), model)


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_skops(name: str, tmp_path: Path) -> None:
    """All that has to be trusted is this package's, and a sparse array of scipy's."""
    model, file = fitted(name), tmp_path / "model.skops"
    skops.io.dump(model, file)
    types = skops.io.get_untrusted_types(file=file)
    assert {name.partition(".")[0] for name in types} <= {"implicit_bias", "scipy"}
    assert_same(skops.io.load(file, trusted=types), model)


def test_a_certificate_and_its_problem_come_back() -> None:
    model = fitted("GLNSVC")
    again = pickle.loads(pickle.dumps(model))
    assert again.solution_.status is model.solution_.status
    view = again.margin_view()
    problem = view.problem(MOONS.X, again.signs(LABELS))
    assert problem is again.solution_.problem
    found = ib.certify(problem, view.coef, view.alpha(problem), view.intercept)
    assert found.lower == model.solution_.certificate.lower
    np.testing.assert_array_equal(again.support_vectors_, model.support_vectors_)


def test_a_training_towards_the_limit_comes_back() -> None:
    def trained(network: Any, X: Any, y: Any) -> LimitResult:
        return train_to_limit(network, X, y, LimitConfig(steps=30))

    model = ib.GLNClassifier(3, random_state=0).fit_by(MOONS.X, LABELS, trained)
    again = pickle.loads(pickle.dumps(model)).training_
    assert again.ending is model.training_.ending
    assert again.frame().equals(model.training_.frame())


def test_the_weights_of_a_network_are_its_state_dict(tmp_path: Path) -> None:
    """A network of the same gates takes them over."""
    model = fitted("GLNClassifier")
    torch.save(model.network_.state_dict(), tmp_path / "weights.pt")
    again = GLN(model.network_.gatings, seed=1)
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    np.testing.assert_array_equal(again.decision(MOONS.X), model.decision_function(MOONS.X))
