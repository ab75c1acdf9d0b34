"""The experiments on parities, on small sizes and by brute force."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from benchmarks.daniely2020 import models, strips, theorem_2, theorem_3
from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.linear_methods import walsh_coefficients
from benchmarks.daniely2020.looks import LOOKS
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


@pytest.mark.parametrize("name", ["group SVM", "Gaussian features"])
def test_no_soft_margin_is_below_its_bound(name: str) -> None:
    rows = list(theorem_2.soft_margins(name, k=3, n=8, units=8, draws=2, samples=100))
    assert len(rows) == 2 * len(theorem_2.STRENGTHS)
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
    with torch.no_grad():
        values = network(data.values)
        torch.testing.assert_close(ntk(data.values), values)
        torch.testing.assert_close(features(data.values), values)
        hidden, fourier = ntk[0], gaussian[0]
        assert isinstance(hidden, models.FrozenGates)
        assert isinstance(fourier, models.FourierFeatures)
        before = data.values @ hidden.weight.T + hidden.bias >= 0
        hidden.weight.mul_(-1.0)
        hidden.bias.mul_(-1.0)
        moved = (data.values @ hidden.weight.T + hidden.bias) * before
        torch.testing.assert_close(hidden(data.values), moved)
        frequencies, phases = (fourier.get_buffer(name) for name in ("frequencies", "phases"))
        expected = (2 / 16) ** 0.5 * (data.values @ frequencies.T + phases).cos()
        torch.testing.assert_close(fourier(data.values), expected)
    trained = {
        name: sum(p.requires_grad for p in model.parameters())
        for name, model in zip(models.HIDDEN, (network, ntk, features, gaussian), strict=True)
    }
    assert list(trained.values()) == [4, 4, 2, 2]  # weight and bias of each layer


def test_gaussian_features_approximate_the_rbf_kernel() -> None:
    data = table(40)
    bandwidth = models.median_distance(data, seed=0)
    distances = torch.cdist(data.values, data.values)
    assert bandwidth == pytest.approx(float(distances.median()), rel=0.1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        features = models.FourierFeatures(5, 40000, bandwidth)(data.values)
    kernel = torch.exp(-(distances**2) / (2 * bandwidth**2))
    torch.testing.assert_close(features @ features.T, kernel, atol=0.03, rtol=0)


def test_building_leaves_the_global_generator() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models.build("ReLU network", table(), 4, seed=1)
    torch.testing.assert_close(torch.rand(3), expected)


@pytest.mark.fast("NTK regime", "ReLU features")
@pytest.mark.parametrize("name", models.HIDDEN)
def test_adadelta_trains_every_model(name: str) -> None:
    data, training = table(400), models.Training(units=32, epochs=15, batch=16)
    model = models.build(name, data, training.units, seed=0)
    history = list(models.train_by_adadelta(model, data, data, training, seed=0))
    assert [point.epoch for point in history] == list(range(1, 16))
    assert history[-1].loss < history[0].loss
    assert history[-1].test_error < 0.15
    margins = data.labels * torch.cat(list(models.outputs(model, data)))[:, 0]
    assert history[-1].test_error == pytest.approx(float((margins <= 0).double().mean()))


def test_features_that_are_not_trained_are_computed_once_to_the_same_end() -> None:
    """Against a step of AdaDelta on the whole model."""
    data, training = table(32), models.Training(units=8, epochs=1, batch=32)
    fast, slow = (models.build("ReLU features", data, 8, seed=2) for _ in range(2))
    list(models.train_by_adadelta(fast, data, data, training, seed=0))
    optimiser = torch.optim.Adadelta(slow[1].parameters())
    loss = torch.nn.functional.softplus(-data.labels * slow(data.values)[:, 0]).mean()
    torch.autograd.backward(loss)
    optimiser.step()
    torch.testing.assert_close(fast[1].weight, slow[1].weight)


def test_training_is_that_of_section_6() -> None:
    assert asdict(models.Training()) == {"units": 512, "epochs": 20, "batch": 128}
    wanted = [each.setting for each in strips.measure(quick=False)]
    assert all(asdict(models.Training()).items() <= setting.items() for setting in wanted)
    assert {(each["k"], each["model"]) for each in wanted} == {
        (k, model) for k in (1, 3) for model in models.HIDDEN
    }


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


def test_a_separating_layer_is_measured_in_the_units_of_lemma_12() -> None:
    (row,) = theorem_3.separation(k=3, n=9, q=30, seed=1)
    assert row["separates"]
    assert row["margin"] == pytest.approx(1)
    assert 0.1 < row["norm"] < 20
    assert row["lemma_14"] <= 1
    (none,) = theorem_3.separation(k=5, n=9, q=2, seed=0)
    assert not none["separates"]
    assert "norm" not in none


def test_descents_obey_lemmas_14_to_16() -> None:
    rows = list(theorem_3.descend_all(k=3, n=7, pairs=60, seed=0, steps=40, own_steps=60))
    ratios = [value for row in rows for name, value in row.items() if name.startswith("lemma")]
    assert len(ratios) > len(rows)
    assert 0 < max(ratios) <= 1
    assert rows[0]["loss"] == pytest.approx(1)
    assert rows[0]["output"] < 1e-12 < 1 < rows[0]["printed_output"]


def test_corollary_4_by_its_bound() -> None:
    """The ratio at the printed sizes grows as eps falls; sizes of the right exponents hold."""
    found = theorem_3.of_corollary_4()
    assert found["corollary_high"] > 2 * found["corollary_low"] > 2
    assert found["sizes_for"] <= 1


def test_every_method_gives_outputs_for_every_test_sample() -> None:
    distribution = ParityDistribution(8, (1, 2, 5))
    train, test = (distribution.sample(150, random_state=seed) for seed in (0, 1))
    outputs = dict(
        theorem_3.outputs_of_all(train, test, k=3, seed=0, hidden=64, epochs=5, steps=300)
    )
    assert list(outputs) == list(LOOKS)
    for values in outputs.values():
        assert values.shape == (150,)
        assert np.mean(test.y * values <= 0) < 0.5
