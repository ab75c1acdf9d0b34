"""The experiments on activation Gram matrices, on small sizes and by brute force."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks.panigrahi2020 import (
    cifar,
    cifar_training,
    depth,
    lower_bounds,
    spectra,
    training,
)
from benchmarks.panigrahi2020.gram_spectrum import circle_points, eigenvalue_bounds
from implicit_bias.kernels import gradient_gram as grams

# --- eigenvalues at the start -------------------------------------------------------------------


@pytest.mark.parametrize("activation", spectra.EXACT)
def test_spectra_without_a_kink_are_exact_and_below_their_bounds(activation: str) -> None:
    frame = spectra.spectrum(spectra.HALF, 10, activation, 4096, 1)
    X, phi = circle_points(10), grams.ACTIVATIONS[activation]
    expected = grams.eigenvalues(grams.infinite_gram(X, phi))
    np.testing.assert_allclose(frame["infinite"], expected, atol=1e-9 * expected[0])
    assert (frame["infinite"] <= eigenvalue_bounds(phi, 10, 2) + 1e-12 * expected[0]).all()
    assert frame["deviation"].iloc[0] == pytest.approx(
        np.abs(frame["finite"] - expected).max() / expected[0]
    )


@pytest.mark.parametrize(
    ("data", "activation"),
    [
        (lower_bounds.HALF, "relu"),
        (lower_bounds.CLOSE, "elu"),
        (lower_bounds.SPHERE, "relu"),
    ],
)
def test_smallest_eigenvalues_are_above_the_bound_of_a_kink(data: str, activation: str) -> None:
    (row,) = lower_bounds.smallest(data, activation, 8, 0.05)
    assert row["measured"] >= row["kink"] > 0
    X = lower_bounds.samples(data, 8, 0.05)
    apart = [
        np.linalg.norm(X[j] - X[i] * (X[i] @ X[j])) for i in range(8) for j in range(8) if i != j
    ]
    assert row["delta"] == pytest.approx(min(apart))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_smallest_eigenvalues_are_within_their_bounds_at_every_depth(activation: str) -> None:
    rows = list(depth.layers(activation, 5, 40))
    assert [row["hidden_layers"] for row in rows] == list(range(1, len(rows) + 1))
    values = [row["smallest"] for row in rows]
    assert values == sorted(values)  # Schur
    assert values[-1] > depth.ENOUGH * rows[-1]["diagonal"] > values[-2]
    for row in rows:
        assert row["smallest"] <= row["diagonal"]
        assert row["by_coherence"] <= row["smallest"] + 1e-11
    assert depth.recursion_holds("tanh")  # lemma J.2


# --- figure 2 -----------------------------------------------------------------------------------


def test_distances_are_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    X = grams.normalise(np.abs(np.random.default_rng(0).standard_normal((9, 4))))
    monkeypatch.setattr(cifar, "REPORTED", 0.5)
    monkeypatch.setattr(cifar, "images", lambda n: (X[:n], np.zeros(n)))
    monkeypatch.setattr(cifar, "ROWS", 4)
    frame = cifar.distances(9, cifar.TOGETHER)
    pairs = [np.linalg.norm(X[i] - X[j]) for i in range(9) for j in range(i)]
    assert frame["y"].sum() == len(pairs)
    assert frame["close"].iloc[0] > 0
    assert frame["least"].iloc[0] == pytest.approx(min(pairs), rel=1e-5)
    assert frame["close"].iloc[0] == sum(pair < cifar.REPORTED for pair in pairs)
    left = cifar.cumulative(9, cifar.CENTRED)["y"]
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(left[:2], 1 - values.cumsum()[:2] / values.sum(), atol=2e-3)


def test_infinite_width_is_descent_on_a_linear_model() -> None:
    """SGD on outputs by a Gram matrix, against SGD on the weights of its features."""
    features = torch.randn((600, 5), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(600) % cifar_training.CLASSES
    start = torch.zeros((600, cifar_training.CLASSES))
    gram = features @ features.T
    curve = [row["loss"] for row in cifar_training.descend_outputs(gram, start, labels, 2, 1e-3)]
    weights, losses = torch.zeros((5, cifar_training.CLASSES)).requires_grad_(True), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        total = 0.0
        for batch in torch.split(torch.randperm(600, generator=generator), cifar_training.BATCH):
            outputs = features[batch] @ weights
            loss = functional.cross_entropy(outputs, labels[batch], reduction="sum")
            (gradient,) = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights -= 1e-3 * gradient
            total += float(loss.detach())
        losses.append(total / 600)
    np.testing.assert_allclose(curve, losses, rtol=1e-4)


# --- figure 1 (a, b) ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", training.FAST)
def test_fast_activations(name: str) -> None:
    z = torch.linspace(-3, 3, 13)
    slopes = torch.empty_like(z)
    value = training.FAST[name](z.clone(), slopes)
    torch.testing.assert_close(value, grams.ACTIVATIONS[name].value(z))
    torch.testing.assert_close(slopes, grams.ACTIVATIONS[name].derivative(z))


def test_descent_is_that_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the fast loop, two networks at once, against gradient descent in float64."""
    X, labels = circle_points(4, 2), np.array([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, 1.0]])
    weights = torch.stack([torch.cat(list(grams.gaussian_weights(20, 2, seed=s))) for s in (0, 1)])
    readouts = torch.linspace(-1, 2, 40, dtype=torch.float64).reshape(2, 20)
    recorded = np.array([0, 3, 50])
    # Blocks of 7 units, the last of 6, and sums in float64 on the way.
    monkeypatch.setattr(training, "BLOCK", 7 * 2 * 4)
    monkeypatch.setattr(training, "SETTLE", 20)
    residuals, moved = training.train("tanh", X, labels, weights, readouts, recorded)
    phi = grams.ACTIVATIONS["tanh"]
    for run, (start, scales) in enumerate(zip(weights, readouts, strict=True)):
        slow, expected = start.clone().requires_grad_(True), []
        for step in range(51):
            outputs = phi.value(torch.tensor(X) @ slow.T) @ scales / 20**0.5
            residual = outputs - torch.tensor(labels[run])
            if step in recorded:
                expected.append(residual.detach().numpy())
            (gradient,) = torch.autograd.grad(residual @ residual / 2, slow)
            with torch.no_grad():
                slow -= training.RATE * gradient
        np.testing.assert_allclose(residuals[:, run], expected, atol=1e-5)
        # The last step is taken after the last point is recorded, in both loops.
        np.testing.assert_allclose(moved[run], (slow - start).detach(), atol=1e-6)
