"""The experiments on GaLU networks: their training, and parts of their measures by brute force."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.fiat2019 import (
    image_width,
    memorisation_width,
    norms_and_gap,
    published_training,
)
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from implicit_bias.base.validation import Array

# --- the published training ------------------------------------------------------------------

LOSSES: dict[published_training.LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": functional.mse_loss,
    "hinge": lambda outputs, labels: (1 - outputs * labels).relu().mean(),
    "cross-entropy": functional.cross_entropy,
}


@pytest.mark.parametrize(
    ("loss", "kind", "readout_only"),
    [
        ("squared", "relu", False),
        ("hinge", "hard", True),
        ("cross-entropy", "sigmoid", False),
        ("cross-entropy", "hard", True),
    ],
)
def test_the_published_training_is_torchs(
    loss: published_training.LossName, kind: Kind, readout_only: bool
) -> None:
    """Thirty steps of Adam on batches of all samples, against autograd and torch.optim."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    labels = rng.choice([-1.0, 1.0], (40, 1))
    Y = np.eye(3)[rng.integers(3, size=40)] if loss == "cross-entropy" else labels
    sizes = [5, 6, 6, Y.shape[1]]
    ours, theirs = (
        GatedLayers(sizes, kind, bias=True, readout_only=readout_only, seed=1) for _ in range(2)
    )
    taken = published_training.train_as_published(
        ours, X, Y, loss, steps=30, rate=0.01, batch_size=40
    )
    assert taken == 30
    inputs, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, Y))
    trained = [parameter for parameter in theirs.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        torch.autograd.backward(LOSSES[loss](theirs(inputs), targets))
        optimiser.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_batches_are_cut_from_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample once before any comes again; the last batch of a permutation is smaller."""
    seen: list[Array] = []

    def slopes(outputs: Array, targets: Array) -> Array:
        seen.append(targets[:, 0].astype(int))
        return 0 * outputs

    monkeypatch.setitem(published_training.SLOPES, "squared", slopes)
    network = GatedLayers([2, 3, 1], "hard", bias=False, seed=0)
    targets = np.arange(10.0)[:, None]
    published_training.train_as_published(
        network, np.ones((10, 2)), targets, "squared", steps=6, batch_size=4
    )
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    for half in (seen[:3], seen[3:]):
        assert sorted(np.concatenate(half)) == list(range(10))


# --- parts of experiments --------------------------------------------------------------------


def test_the_width_of_a_search_is_read_from_what_it_tried() -> None:
    """By trying every width; a search that memorises nowhere ends where it began."""
    m, d, seed = 64, 16, 0
    rng = np.random.default_rng([seed, m])
    X, y = rng.normal(size=(m, d)), rng.normal(size=m)
    every = (memorisation_width.closed_form_error(k, X, y, seed) for k in range(1, 20))
    least = next(k for k, error in enumerate(every, start=1) if error < 0.01)
    setting: dict[str, Any] = {"m": m, "d": d, "seed": seed, "network": "closed"}
    tried = pd.DataFrame(memorisation_width.searched(**setting, steps=0)).assign(**setting)
    nowhere = tried.assign(network="ReLU", error=1.0)
    found = memorisation_width.widths(pd.concat([tried, nowhere])).loc[m]
    assert found["closed"] * m / d == least
    assert found["ReLU"] * m / d == memorisation_width.widest(m, d)


def test_slope_of_the_gap() -> None:
    """Against brute force: the means over all unit noises of norm, test and training loss."""
    rng = np.random.default_rng(0)
    X, test = rng.normal(size=(12, 2)), rng.normal(size=(30, 2))
    gates, test_gates = rng.random((12, 3)), rng.random((30, 3))
    phi, test_phi = (
        (z[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        for z, x in ((gates, X), (test_gates, test))
    )
    solve = np.linalg.pinv(phi)
    test_variance = np.mean(np.sum((test_phi @ solve) ** 2, axis=1))
    expected = (np.linalg.matrix_rank(phi) / 12 + test_variance) / np.sum(solve**2)
    found = norms_and_gap.predicted_slope(X, gates, test, test_gates)
    assert found == pytest.approx(expected)


def test_principal_components() -> None:
    """Of variance 1, uncorrelated, and the first ones: they keep the most variance."""
    rng = np.random.default_rng(0)
    scales = np.array([5.0, 0.1, 3.0, 0.2])
    X = rng.normal(size=(400, 4)) * scales + 1.0
    train, test = image_width.reduced(X, X[:7], 2)
    np.testing.assert_allclose(train.T @ train / 400, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(test, train[:7])
    spanned = np.linalg.lstsq(train, X[:, [0, 2]] - X[:, [0, 2]].mean(axis=0), rcond=None)[1]
    assert (spanned / 400 < 0.1).all()


def test_images_are_trained_anew_at_the_best_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen by the first trainings alone, and shown by the others."""

    def trained(*arguments: Any) -> dict[str, float]:
        rate, alpha, seed = arguments[3:6]
        error = abs(alpha - 0.5) + rate + 0.01 * seed
        return {"rate": rate, "alpha": alpha, "seed": seed, "test_error": error}

    monkeypatch.setattr(image_width, "trained", trained)
    monkeypatch.setattr(image_width, "images", lambda *_: ())
    setting: dict[str, Any] = {"dataset": "MNIST", "network": "GaLU0", "width": 16}
    rows = image_width.cell(**setting, steps=1)
    assert len(rows) == 2 * 6 + 2
    frame = pd.DataFrame(rows).assign(**setting)
    found = image_width.chosen(frame)
    assert set(found["alpha"]) == {0.5}
    assert set(found["rate"]) == {0.0005}
    assert sorted(found["seed"]) == [1, 2]
    assert image_width.errors_of(frame).loc[("MNIST", 16), "GaLU0"] == pytest.approx(0.0155)
