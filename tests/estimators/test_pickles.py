"""Fitted estimators are kept as those of scikit-learn are, and networks as those of torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import implicit_bias as ib
from implicit_bias.datasets.toys import make_toy
from implicit_bias.networks import GLN
from implicit_bias.training.limit import LimitConfig, LimitResult, train_to_limit

MOONS = make_toy("moons", 30, noise=0.05)
LABELS = np.where(MOONS.y > 0, "up", "down")
# Fitted by the tests: each process of a run reads this file, few run its tests.
MODELS: dict[str, Callable[[], Any]] = {
    "MaxMarginSVC": lambda: ib.MaxMarginSVC(C=1.0),
    "GLNSVC": lambda: ib.GLNSVC(n_units=4, random_state=0),
    "GLNClassifier": lambda: ib.GLNClassifier(4, random_state=0, steps=50),
    "InfiniteWidthSVC": lambda: ib.InfiniteWidthSVC(C=1.0, random_state=0),
}


def assert_same(again: Any, model: Any) -> None:
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(MOONS.X), model.predict(MOONS.X))
    found = again.decision_function(MOONS.X)
    np.testing.assert_array_equal(found, model.decision_function(MOONS.X))


@pytest.mark.parametrize("name", MODELS)
def test_joblib(name: str, tmp_path: Path) -> None:
    model = MODELS[name]().fit(MOONS.X, LABELS)
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert_same(again, model)
    if name == "GLNSVC":  # with its certificate, and the problem that was solved
        view = again.margin_view()
        problem = view.problem(MOONS.X, again.signs(LABELS))
        assert problem is again.solution_.problem
        found = ib.certify(problem, view.coef, view.alpha(problem), view.intercept)
        assert found.lower == model.solution_.certificate.lower


def test_skops(tmp_path: Path) -> None:
    """All that has to be trusted is this package's, and a sparse array of scipy's."""
    import skops.io  # which takes a second, in each process that reads this file

    model = MODELS["GLNSVC"]().fit(MOONS.X, LABELS)
    file = tmp_path / "model.skops"
    skops.io.dump(model, file)
    types = skops.io.get_untrusted_types(file=file)
    assert {name.partition(".")[0] for name in types} <= {"implicit_bias", "scipy"}
    assert_same(skops.io.load(file, trusted=types), model)


def test_a_training_towards_the_limit_and_the_weights_of_its_network(tmp_path: Path) -> None:
    """A network of the same gates takes the weights over from a state_dict."""

    def trained(network: Any, X: Any, y: Any) -> LimitResult:
        return train_to_limit(network, X, y, LimitConfig(steps=30))

    model = ib.GLNClassifier(3, random_state=0).fit_by(MOONS.X, LABELS, trained)
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib").training_
    assert again.ending is model.training_.ending
    assert again.frame().equals(model.training_.frame())
    trained_network: Any = model.network_
    torch.save(trained_network.state_dict(), tmp_path / "weights.pt")
    network = GLN(trained_network.gatings, seed=1)
    network.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    np.testing.assert_array_equal(network.decision(MOONS.X), model.decision_function(MOONS.X))
