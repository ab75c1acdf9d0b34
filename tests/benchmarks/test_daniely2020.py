"""The experiments on parities, on small sizes and by brute force."""

import numpy as np
import pytest
import torch

from benchmarks.daniely2020 import models, theorem_2, theorem_3
from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.linear_methods import walsh_coefficients
from implicit_bias.datasets.parities import ParityDistribution, cube

# --- linear methods -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", theorem_2.METHODS)
def test_correlations_are_those_of_all_features(name: str) -> None:
    """One transform of the gates, against one of the features z(x) x themselves."""
    method = theorem_2.linear_method(name, 6, 4)
    features = method.gates[:, :, None] * method.X[:, None, :]
    coefficients = walsh_coefficients(features.reshape(64, -1))  # C order
    assert coefficients.shape[1] == method.n_features
    assert np.abs(features).max() <= 1
    np.testing.assert_allclose(
        theorem_2.correlations(method, 6), np.linalg.norm(coefficients, axis=1), atol=1e-12
    )


def test_no_soft_margin_is_below_its_bound() -> None:
    rows = list(theorem_2.soft_margins("group SVM", k=3, n=8, units=6, draws=1, samples=60))
    assert len(rows) == len(theorem_2.STRENGTHS)
    for row in rows:
        assert row["bound"] == pytest.approx(max(0, 0.5 - row["norm"] * row["correlation"] / 2))
        assert row["loss"] >= row["bound"] - 1e-9
    assert min(row["loss"] for row in rows) < 0.9


def test_the_norm_of_theorem_2_is_below_the_derived_one() -> None:
    """By hand: sqrt(N) B / (sqrt(2) 2^k) = 1/4, against B/2 sqrt(N / binom(n, k)) = 1/4."""
    (row,) = theorem_2.needed_norms(k=3, n=48, units=4, draws=3)
    n_features = 4 * 49
    assert row["n_features"] == n_features
    assert row["theorem"] == pytest.approx(2**3 * 2**0.5 / 4 / n_features**0.5)
    assert row["derived"] == pytest.approx((17296 / n_features) ** 0.5 / 2)  # binom(48, 3)
    assert row["theorem"] < row["derived"] < row["needed"]


# --- the models of section 6 ---------------------------------------------------------------------


def table(n_samples: int = 60, n_inputs: int = 5) -> models.Table:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(n_samples, n_inputs, generator=generator)
    return models.Table(values, torch.where(values[:, 0] > 0, 1.0, -1.0))


def test_the_models_at_their_start() -> None:
    """Network, NTK regime and ReLU features start alike; gates stay what they were."""
    data = table()
    network, ntk, features, gaussian = (
        models.build(name, data, 16, seed=3) for name in models.HIDDEN
    )
    trained = [
        sum(p.requires_grad for p in model.parameters())
        for model in (network, ntk, features, gaussian)
    ]
    assert trained == [4, 4, 2, 2]  # weight and bias of each layer
    hidden, fourier = ntk[0], gaussian[0]
    assert isinstance(hidden, models.FrozenGates)
    assert isinstance(fourier, models.FourierFeatures)
    with torch.no_grad():
        values = network(data.values)
        torch.testing.assert_close(ntk(data.values), values)
        torch.testing.assert_close(features(data.values), values)
        before = data.values @ hidden.weight.T + hidden.bias >= 0
        hidden.weight.mul_(-1.0)
        moved = (data.values @ hidden.weight.T + hidden.bias) * before
        torch.testing.assert_close(hidden(data.values), moved)
        frequencies, phases = (fourier.get_buffer(name) for name in ("frequencies", "phases"))
        expected = (2 / 16) ** 0.5 * (data.values @ frequencies.T + phases).cos()
        torch.testing.assert_close(fourier(data.values), expected)


@pytest.mark.parametrize("name", ["NTK regime", "ReLU features"])
def test_training_is_a_step_of_adadelta_on_the_logistic_loss(name: str) -> None:
    """Features that are not trained are computed once, to the same end."""
    data, training = table(32), models.Training(units=8, epochs=1, batch=32)
    ours, theirs = (models.build(name, data, 8, seed=2) for _ in range(2))
    (epoch,) = models.train_by_adadelta(ours, data, data, training, seed=0)
    parameters = [p for p in theirs.parameters() if p.requires_grad]
    optimiser = torch.optim.Adadelta(parameters)
    loss = torch.nn.functional.softplus(-data.labels * theirs(data.values)[:, 0]).mean()
    torch.autograd.backward(loss)
    optimiser.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    assert epoch.epoch == 1
    assert epoch.loss == pytest.approx(float(loss.detach()))
    wrong = data.labels * theirs(data.values).detach()[:, 0] <= 0
    assert epoch.test_error == pytest.approx(float(wrong.double().mean()))


# --- theorem 3 -----------------------------------------------------------------------------------


def test_the_first_step_is_the_gradient_over_all_inputs() -> None:
    """Entries on A and off A, by listing the 2^9 inputs."""
    (row,) = theorem_3.first_step(k=3, n=9, units=40)
    distribution = ParityDistribution.random(9, 3)
    bits = cube(9)
    initial = parity.start(9, 3, 40)
    weights, biases = initial.weights[:40], initial.biases[:40]
    open_gates = parity.gate(bits @ weights.T / 3 + biases)
    label = distribution.probabilities(bits) * distribution.labels(bits)
    averages = (label[:, None] * open_gates).T @ bits
    on = np.isin(np.arange(9), distribution.relevant)
    good = weights[:, on].sum(axis=1) == 0
    assert row["on"] == pytest.approx(np.sqrt(np.mean(averages[:, on] ** 2)))
    assert row["off"] == pytest.approx(np.sqrt(np.mean(averages[:, ~on] ** 2)))
    assert row["off_good"] == pytest.approx(np.abs(averages[good][:, ~on]).max(), abs=1e-12)
    assert row["good"] == good.mean()


def test_a_separating_layer_has_margin_1_and_may_not_exist() -> None:
    (row,) = theorem_3.separation(k=3, n=9, q=30, seed=1)
    assert row["separates"]
    assert row["margin"] == pytest.approx(1)
    assert 0.1 < row["norm"] < 20
    assert row["lemma_14"] <= 1
    (none,) = theorem_3.separation(k=5, n=9, q=2, seed=0)
    assert not none["separates"]


def test_corollary_4_by_its_bound() -> None:
    """The ratio at the printed sizes grows as eps falls; sizes of the right exponents hold."""
    found = theorem_3.of_corollary_4()
    assert found["corollary_high"] > 2 * found["corollary_low"] > 2
    assert found["sizes_for"] <= 1
