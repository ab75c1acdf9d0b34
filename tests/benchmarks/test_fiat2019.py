"""The experiments on GaLU networks: quick versions run, and the page says what is kept."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import catalogue, harness
from benchmarks.fiat2019 import (
    clustered,
    constants,
    image_width,
    memorisation_width,
    norms_and_gap,
    published_training,
    separable_and_parity,
    several_outputs,
)
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.words import half_interval
from implicit_bias.base.validation import Array
from implicit_bias.kernels import least_squares as fitted
from implicit_bias.problem.gating import UnitGates

STUDY = catalogue.study("fiat2019")


def test_relations_of_the_paper_hold_and_its_slips_do_not() -> None:
    """On few draws, too few to see that a share of them is not 0."""
    frame = pd.DataFrame(constants.measure(quick=True))
    holds = constants.holds(frame)
    assert (holds | frame["slip"] | (frame["ours"] < 1e-12)).all()  # or is 0 but for rounding
    assert not (holds & frame["slip"] & ~frame["what"].str.startswith("share of draws")).any()


def test_the_tables_carry_what_the_page_says() -> None:
    """Of the sentences that are not made of numbers of the tables."""
    images = image_width.errors_of(harness.read(STUDY, STUDY.entry("image_width")))
    middle = (images[image_width.RELU] + images[image_width.LINEAR]).dropna() / 2
    assert (images[image_width.GALU].dropna() > middle).all()  # nearer to a linear network

    losses = harness.read(STUDY, STUDY.entry("linear_convergence"))
    last = losses[losses["step"] == losses["step"].max()].set_index(["k", "rule"])["loss"]
    assert (last.xs("longest", level="rule") <= last.xs("paper", level="rule")).all()

    outputs, script = harness.read(STUDY, STUDY.entry("several_outputs")), several_outputs
    searched = outputs[(outputs["part"] == "search") & (outputs["network"] == "GaLU")]
    means = searched.groupby("p")[["width", "parameters"]].mean()
    ours = (means["width"] / means["parameters"])[1:]  # one output needs no count
    m, d, p = script.PUBLISHED_SIZE, script.PUBLISHED_INPUTS, np.array(script.PUBLISHED["p"])
    theirs = np.array(script.PUBLISHED["GaLU"]) / ((1 - script.ERROR) * m * p / (d + p - 1))
    assert theirs[1:].max() < ours.min()


# --- the published training ------------------------------------------------------------------

LOSSES: dict[published_training.LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": functional.mse_loss,
    "hinge": lambda outputs, labels: constants.hinge(outputs * labels).mean(),
    "cross-entropy": functional.cross_entropy,
}


@pytest.mark.fast(
    *("squared-relu-all-layers", "hinge-hard-readout", "cross-entropy-sigmoid-all-layers"),
    "cross-entropy-hard-readout",
)
@pytest.mark.parametrize("readout_only", [False, True], ids=["all-layers", "readout"])
@pytest.mark.parametrize("kind", ["relu", "hard", "sigmoid"])
@pytest.mark.parametrize("loss", LOSSES)
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


def test_who_watches_ends_the_training() -> None:
    network = GatedLayers([2, 3, 1], "hard", bias=False, seed=0)
    X, Y = np.ones((4, 2)), np.ones((4, 1))
    taken = published_training.train_as_published(
        network, X, Y, "squared", steps=5000, watch=lambda step: step == 2000
    )
    assert taken == 2000


def test_adam_reaches_least_squares() -> None:
    """A hard-gated network with its readout is as good as its closed form, and no better."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    network = GatedLayers([3, 5, 1], "hard", bias=False, seed=1)
    gating = UnitGates(network.filters[0].double().numpy(), np.zeros(5), ">=")
    best = fitted.least_squares(X, gating.gates(X), y).loss
    published_training.train_as_published(
        network, X, y[:, None], "squared", steps=3000, rate=0.01, batch_size=60
    )
    found = published_training.squared_error(network, X, y[:, None])
    assert best - 1e-6 <= found <= best * 1.01


# --- parts of experiments --------------------------------------------------------------------


def test_binary_search() -> None:
    asked = []

    def memorises(width: int) -> bool:
        asked.append(width)
        return width >= 37

    assert memorisation_width.smallest(memorises, 100) == 37
    assert len(asked) <= 7


def test_the_trained_widths_that_memorise_are_judged() -> None:
    """Every width is tried, and memorises from some width on."""

    def judged(of: float, **least: int) -> harness.Verdict:
        cases = [
            {"m": 64, "d": 16, "seed": 0, "network": name, "width": width, "error": width < enough}
            for name, enough in {"closed": 7, **least}.items()
            for width in range(1, memorisation_width.widest(64, 16) + 1)
        ]
        return memorisation_width.verdict(pd.DataFrame(cases), of)

    assert judged(2.0, GaLU=8, ReLU=2) is harness.Verdict.STANDS
    assert judged(2.0, GaLU=9, ReLU=4) is judged(1.5, GaLU=7, ReLU=4) is harness.Verdict.IN_PART
    assert judged(2.0, GaLU=9, ReLU=1) is harness.Verdict.FALLS


def test_theorem_5_is_judged_by_how_far_filters_move() -> None:
    assert constants.theorem_5_judged(10).verdict is harness.Verdict.STANDS
    assert constants.theorem_5_judged(20).verdict is harness.Verdict.FALLS


def test_separable_data_keep_the_margin() -> None:
    X, y = separable_and_parity.separable(500, 10, np.random.default_rng(0))
    assert X.shape == (500, 10)
    w = np.random.default_rng(0).normal(size=(1, 10))
    w /= np.linalg.norm(w)
    np.testing.assert_array_equal(np.sign(X @ w[0]), y)
    assert np.abs(X @ w[0]).min() >= 0.01
    bits, parity = separable_and_parity.parity(50, 6, np.random.default_rng(0))
    np.testing.assert_array_equal([np.prod(row) for row in bits], parity)


def test_exact_fit_of_clusters() -> None:
    rng = np.random.default_rng(0)
    train, test, coef = rng.normal(size=(5, 8)), rng.normal(size=(3, 8)), rng.normal(size=8)
    outputs, error = clustered.predictions(train, train @ coef, test)
    np.testing.assert_allclose(outputs, test @ np.linalg.pinv(train) @ train @ coef, atol=1e-10)
    assert error < 1e-10


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


def test_images_are_trained_at_every_published_setting() -> None:
    settings = pd.DataFrame(image_width.settings(), columns=image_width.SETTING)
    assert not settings.duplicated().any()
    counts = settings.groupby("network").size().to_dict()
    assert {name: counts[name] for name in ("ReLU", "linear", "GaLU0")} == {
        "ReLU": 2 * 6 * 3,
        "linear": 2 * 6 * 3,
        "GaLU0": 2 * 6 * 3 * 6,
    }
    assert counts[image_width.HARD] == counts[image_width.READOUT] == 2 * 6


def test_rates_that_are_not_finished_are_not_shown() -> None:
    frame = pd.DataFrame(image_width.settings(), columns=image_width.SETTING)
    shown = image_width.whole_rates(frame.iloc[:-1])
    rates = shown.groupby(["dataset", "network"])["rate"].nunique()
    # The last setting is one of GaLU0 on Fashion-MNIST; its 36 at the last rate are left out.
    assert rates["Fashion-MNIST", "GaLU0"] == 2
    assert rates["MNIST", "GaLU0"] == rates["MNIST", "ReLU"] == 3
    assert len(frame) - len(shown) == 36


def test_settings_are_chosen_by_one_training_and_shown_by_others() -> None:
    """The setting with the least first error, and none but its own repeats."""
    errors = {(0.001, 0): 0.1, (0.0005, 0): 0.2, (0.001, 1): 0.12, (0.001, 2): 0.16, (0.0005, 1): 0}
    frame = pd.DataFrame(
        {"dataset": "digits", "network": "ReLU", "width": 16, "alpha": 0.0, "test_error": error}
        | {"rate": rate, "seed": seed}
        for (rate, seed), error in errors.items()
    )
    assert image_width.chosen(frame)["test_error"].item() == pytest.approx(0.14)
    first = frame[frame["seed"] == 0]
    assert image_width.chosen(first)["test_error"].item() == pytest.approx(0.1)
    other = frame.iloc[:1].assign(network=image_width.RELU, seed=2)
    assert image_width.chosen(other)["test_error"].item() == pytest.approx(0.1)
    kept = image_width.shown(frame).set_index(["width", "seed"])["test_error"]
    # Student's t of one degree of freedom, and a standard error of 0.02.
    assert half_interval(kept, ["width"]) == pytest.approx(12.706 * 0.02, rel=1e-3)
    assert np.isnan(half_interval(kept.iloc[:1], ["width"]))
