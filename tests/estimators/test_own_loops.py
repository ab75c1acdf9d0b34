"""Networks fitted by any callable that trains them in place."""

from pathlib import Path

import numpy as np
import pytest
import torch

from implicit_bias import GLNClassifier, ReLUClassifier, compare
from implicit_bias.base.validation import Array
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model, save_model
from implicit_bias.networks import Network
from implicit_bias.training import OwnLoop

MOONS = make_toy("blobs", 30, random_state=0)


def own_loop(network: Network, X: Array, y: Array) -> int:
    inputs, labels = network.prepare_samples(X, y)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(25):
        optimizer.zero_grad()
        torch.autograd.backward(torch.exp(-labels * network(*inputs)).mean())
        optimizer.step()
    return 25


def silent(network: Network, X: Array, y: Array) -> None:
    own_loop(network, X, y)


def test_a_loop_of_your_own(tmp_path: Path) -> None:
    model = GLNClassifier(4, random_state=0).fit_by(MOONS.X, MOONS.y, own_loop)
    again = GLNClassifier(4, random_state=0).fit_by(MOONS.X, MOONS.y, silent)
    np.testing.assert_array_equal(model.network_.coef(), again.network_.coef())
    assert (model.n_iter_, again.n_iter_) == (25, 0)
    assert model.training_.config == OwnLoop(steps=25)
    (point,) = model.history()
    margins = MOONS.y * model.decision_function(MOONS.X)
    assert point.min_margin == pytest.approx(margins.min())
    assert point.norm == model.network_.norm()
    save_model(tmp_path / "model.safetensors", model)
    loaded = load_model(tmp_path / "model.safetensors").model
    assert loaded.history() == model.history()


def test_it_can_be_compared() -> None:
    models = {
        "own": GLNClassifier(4, random_state=0).fit_by(MOONS.X, MOONS.y, silent),
        "relu": ReLUClassifier(4, random_state=0).fit_by(MOONS.X, MOONS.y, own_loop),
    }
    found = compare(models, MOONS.X, MOONS.y, train=(MOONS.X, MOONS.y))
    assert [result.steps for result in found.models] == [0, 25]
