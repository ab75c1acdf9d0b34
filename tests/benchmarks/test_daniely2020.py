"""The experiments on parities: quick versions run, and the page says what the tables say."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from benchmarks import catalogue, harness
from benchmarks.daniely2020 import bound as bound_experiment
from benchmarks.daniely2020 import first_step, learning, models
from benchmarks.daniely2020 import strips as strips_experiment
from benchmarks.daniely2020.linear_methods import sets_of_size, walsh_coefficients
from benchmarks.daniely2020.looks import LOOKS
from implicit_bias.datasets.parities import ParityDistribution

STUDY = catalogue.study("daniely2020")


# --- the page -----------------------------------------------------------------------------------


def test_the_tables_carry_what_the_page_says() -> None:
    """Of the sentences that are not made of numbers of the tables."""
    kept = {entry.name: harness.read(STUDY, entry) for entry in STUDY.experiments}
    runs = kept["guarantee"]
    assert (runs.loc[runs["what"] == "a run of ours", "bound"] > 100).all()
    later = kept["later_steps"]
    assert later.filter(regex="lemma_1[456]").max().max() <= 1
    assert later["output"].max() < 1e-9
    assert later["printed_output"].min() > 10
    first = kept["first_step"]
    assert first["off_good"].max() < 1e-9
    assert (first["lemma_9_off"].max(), first["lemma_9_bias"].max()) == (0, 0)
    assert (kept["separation"]["readout"] <= 1).all()  # lemma 14

    bound = kept["bound"]
    assert (bound["loss"] >= bound["bound"] - 1e-9).all()
    assert (bound["mean_correlation"] < bound["proved"]).all()

    learned = kept["learning"].pivot_table(index="method", columns="n", values="hinge_loss")
    assert (learned.loc["theorem 3"] < learned.drop("theorem 3").min() + 0.01).all()

    digits = kept["strips"]
    one, three = (strips_experiment.accuracies(digits, k) for k in (1, 3))
    assert one["ReLU network"] == max(one.values())
    assert three["ReLU network"] == max(three.values())
    # Of the network more strips make more.
    last = strips_experiment.last_epochs(digits).query("k == 3 and model == 'ReLU network'")
    assert last.groupby("strips")["test_error"].mean().is_monotonic_decreasing
    assert last["strips"].nunique() > 1


# --- linear methods -----------------------------------------------------------------------------


def test_correlations_are_those_of_all_features() -> None:
    """One transform of the gates, against one of the features z(x) x themselves."""
    for method in bound_experiment.linear_methods(6, 4).values():
        features = method.gates[:, :, None] * method.X[:, None, :]
        coefficients = walsh_coefficients(features.reshape(64, -1))  # C order
        assert coefficients.shape[1] == method.n_features
        assert np.abs(features).max() <= 1
        np.testing.assert_allclose(
            bound_experiment.correlations(method, 6),
            np.linalg.norm(coefficients, axis=1),
            atol=1e-12,
        )
    rows = sets_of_size(6, 3)
    assert ParityDistribution(6, (0, 1, 5)).mask in rows


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
    jobs = strips_experiment.WHOLE.jobs
    assert {(job.k, job.strips, job.model) for job in jobs} >= {
        (k, 60000, model) for k in (1, 3) for model in models.HIDDEN
    }


def test_the_ceiling_decides_lemma_10() -> None:
    """It cuts no hinge of so few bits: |r| + k is at most 6 there."""
    assert first_step.lemma_10(3).verdict is harness.Verdict.STANDS
    assert first_step.lemma_10(5).verdict is harness.Verdict.FALLS


# --- learning from samples ----------------------------------------------------------------------


def test_every_method_gives_outputs_for_every_test_sample() -> None:
    sizes = learning.QUICK
    distribution = ParityDistribution(8, (1, 2, 5))
    train, test = (distribution.sample(150, random_state=seed) for seed in (0, 1))
    outputs = dict(learning.outputs_of_all(train, test, sizes, 0))
    assert list(outputs) == list(LOOKS)
    for values in outputs.values():
        assert values.shape == (150,)
        assert learning.error_rate(values, test.y) < 0.5
