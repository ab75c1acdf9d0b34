"""The experiments on activation Gram matrices: they run, and the page is that of the results."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from benchmarks import catalogue, harness
from benchmarks.panigrahi2020 import (
    cifar_training,
    depth,
    extensions,
    lower_bounds,
    smooth,
    spectra,
    training,
    zeros,
)
from benchmarks.panigrahi2020.gram_spectrum import circle_points
from benchmarks.words import with_interval
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.kernels.gated_least_squares import predicted_losses

STUDY = catalogue.study("panigrahi2020")
NAMES = [entry.name for entry in STUDY.experiments]


@pytest.fixture(scope="module")
def kept() -> dict[str, pd.DataFrame]:
    return {name: harness.read(STUDY, STUDY.entry(name)) for name in NAMES}


@pytest.mark.slow
def test_spectra_are_below_their_bounds_and_those_without_a_kink_are_exact() -> None:
    frame = spectra.measure(quick=True)
    top = frame.groupby(["data", "activation"])["infinite"].transform("max")
    assert (frame["infinite"] <= frame["bound"] + 1e-12 * top).all()
    exact = frame.dropna(subset="exact")
    assert set(exact["activation"]) == set(spectra.EXACT)
    error = (exact["infinite"] - exact["exact"]).abs() / top[exact.index]
    assert error.max() < 1e-9


@pytest.mark.parametrize(
    ("dimension", "degrees", "n", "rank"),
    [
        # Monomials of two inputs on the circle: those of degree 1 are among those of degree 3.
        (2, (1, 2), 10, 2 + 3),
        (2, (1, 2, 3), 12, 3 + 4),
        (2, (2,), 6, 3),
        (3, (1, 2), 8, 8),
    ],
)
def test_ranks_of_polynomials_are_the_exact_ones_at_any_width(
    dimension: int, degrees: tuple[int, ...], n: int, rank: int
) -> None:
    found = zeros.count(dimension, degrees, n, 1024)
    assert found["finite"] == found["infinite"] == found["both"] == found["exact"] == rank
    assert rank <= found["constraints"]


@pytest.mark.slow
def test_smallest_eigenvalues_of_smooth_activations_are_positive() -> None:
    frame = pd.DataFrame(smooth.measure(quick=True))
    assert (frame["at_index"] >= frame["smallest"]).all()
    assert (frame["smallest"] > 0).all()  # lemma 3.2


@pytest.mark.slow
def test_smallest_eigenvalues_are_above_the_bound_of_a_kink() -> None:
    frame = pd.DataFrame(lower_bounds.measure(quick=True))
    eigen = frame[frame["part"].isin(["half circle", "close points", "sphere, d = 5"])]
    assert len(eigen)
    assert (eigen["measured"] >= eigen["kink"]).all()


@pytest.mark.slow
def test_smallest_eigenvalues_are_within_their_bounds_at_every_depth() -> None:
    frame = depth.infinite(pd.DataFrame(depth.measure(quick=True)))
    assert (frame["smallest"] >= frame["lower"] - 1e-11).all()  # rounding, a hundred layers deep
    assert (frame["smallest"] <= frame["upper"]).all()


@pytest.mark.slow
def test_powers_are_of_eigenvalues_above_rounding(kept: dict[str, pd.DataFrame]) -> None:
    """Which are the same on every machine."""
    frame = kept["extensions"]
    tiny = frame["smallest"] < extensions.LEAST * frame["largest"]
    noise = frame.assign(smallest=frame["smallest"].where(~tiny, 0.9 * frame["smallest"]))
    assert tiny.any()
    np.testing.assert_equal(extensions.powers(noise), extensions.powers(frame))


def test_powers_have_an_interval_over_the_draws() -> None:
    cells = [
        {"activation": "elu", "start": "fan-in", "part": "delta", "x": x, "run": run}
        | {"smallest": x ** (2 + run), "largest": 1.0}
        for x in (0.1, 0.05, 0.025)
        for run in range(3)
    ]
    fits = extensions.powers(pd.DataFrame(cells))
    assert with_interval(fits["elu", "fan-in", "delta"]) == "3.00 ± 2.48"


@pytest.mark.parametrize("name", training.FAST)
def test_fast_activations(name: str) -> None:
    z = torch.linspace(-3, 3, 13)
    slopes = torch.empty_like(z)
    value = training.FAST[name](z.clone(), slopes)
    torch.testing.assert_close(value, grams.ACTIVATIONS[name].value(z))
    torch.testing.assert_close(slopes, grams.ACTIVATIONS[name].derivative(z))


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_descent_is_that_of_autograd(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the fast loop, two networks at once, against gradient descent in float64."""
    X, labels = circle_points(4, 2), np.array([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, 1.0]])
    weights = torch.stack([torch.cat(list(grams.gaussian_weights(20, 2, seed=s))) for s in (0, 1)])
    readouts = torch.linspace(-1, 2, 40, dtype=torch.float64).reshape(2, 20)
    recorded = np.array([0, 3, 50])
    # Blocks of 7 units, the last of 6, and sums in float64 on the way.
    monkeypatch.setattr(training, "BLOCK", 7 * 2 * 4)
    monkeypatch.setattr(training, "SETTLE", 20)
    residuals, moved = training.train(name, X, labels, weights, readouts, recorded)
    phi = grams.ACTIVATIONS[name]
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


def test_infinite_width_is_descent_on_a_linear_model() -> None:
    """SGD on outputs by a Gram matrix, against SGD on the weights of its features."""
    features = torch.randn((600, 5), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(600) % cifar_training.CLASSES
    start = torch.zeros((600, cifar_training.CLASSES))
    curve = cifar_training.train_limit(features @ features.T, start, labels, 2, 1e-3)
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
    np.testing.assert_allclose(curve["loss"], losses, rtol=1e-4)


@pytest.mark.parametrize("name", ["relu", "elu"])
def test_interpolated_gram_is_that_of_infinite_width(name: str) -> None:
    X = np.vstack([circle_points(9, 3), circle_points(9, 3) + 1e-3])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    expected = grams.infinite_gram(X, grams.ACTIVATIONS[name], train_readouts=True)
    found = cifar_training.limit_gram(name, X).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_curve_begins_as_predicted() -> None:
    curve = training.training_curves(training.Plan("long", 10, 512, 50, 1), "tanh", [0])
    weights = torch.cat(list(grams.gaussian_weights(512, 2)))
    rng = np.random.default_rng(0)
    y = rng.choice((-1.0, 1.0), 10)
    readouts = torch.tensor(rng.standard_normal(512))
    X, tanh = circle_points(10, 2), grams.ACTIVATIONS["tanh"]
    start = (tanh.value(torch.tensor(X) @ weights.T) @ readouts / 512**0.5).numpy() - y
    gram = grams.finite_gram(X, tanh, [weights], readouts=readouts)
    steps = curve["step"].to_numpy()
    expected = predicted_losses(gram, start, step_size=1e-3, steps=steps)
    np.testing.assert_allclose(curve["theorem"], expected, rtol=1e-3)
    np.testing.assert_allclose(curve["loss"], expected, rtol=0.02)


def test_networks_trained_side_by_side_are_those_trained_alone() -> None:
    plan = training.Plan("long", 10, 64, 30, 2)
    both = training.training_curves(plan, "swish", [0, 1])
    alone = pd.concat([training.training_curves(plan, "swish", [seed]) for seed in (0, 1)])
    pd.testing.assert_frame_equal(both, alone.reset_index(drop=True), rtol=1e-4)


def test_predicted_curves_are_the_theorem_of_trained_ones() -> None:
    trained = training.training_curves(training.Plan("wide", 10, 64, 30, 2), "elu", [0, 1])
    predicted = training.predicted_curves(training.Plan("predicted", 10, 64, 30, 2), "elu", [0, 1])
    both = trained.merge(predicted, on=["run", "step"], suffixes=("", "_predicted"))
    assert both.groupby("run").size().to_list() == [23, 23]
    for column in ("theorem", "lambda_max", "lambda_min"):
        np.testing.assert_allclose(both[f"{column}_predicted"], both[column], rtol=1e-6)
