"""The experiments on GaLU networks: quick versions run, and the page says what is kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import catalogue, harness
from benchmarks.fiat2019 import (
    gated_layers,
    image_width,
    memorisation_width,
    norms_and_gap,
    separable_and_parity,
    several_outputs,
)
from implicit_bias.gating import UnitGates
from implicit_bias.theory import gated_least_squares as galu

STUDY = catalogue.study("fiat2019")
NAMES = [entry.name for entry in STUDY.experiments]


def test_every_experiment_is_listed() -> None:
    files = (catalogue.HOME / "fiat2019").glob("*.py")
    assert sorted(NAMES) == sorted(
        file.stem for file in files if "EXPERIMENT = " in file.read_text("utf-8")
    )


def test_the_tables_carry_what_the_page_says() -> None:
    """Of the sentences that are not made of numbers of the tables."""
    kept: dict[str, Any] = {entry.name: harness.read(STUDY, entry) for entry in STUDY.experiments}

    losses = kept["linear_convergence"]
    assert losses["k"].nunique() == 3
    widest = losses[losses["k"] == losses["k"].max()]
    start = widest["loss"].iloc[0]
    assert (widest["bound_of_gram"] <= widest["bound_of_data"]).all()
    assert (widest["loss"] <= start * widest["bound_of_data"]).all()

    noisy = kept["noisy_clusters"]
    noisy = noisy[(noisy["noise"] > 0) & (noisy["task"] == "regression")]
    noisy = noisy[noisy["network"] == "GaLU"].set_index("part")
    assert (noisy.loc["train", "error"] > noisy.loc["train", "published"]).all()
    assert (noisy.loc["test", "error"] < noisy.loc["test", "published"]).all()

    redrawn = kept["too_few_parameters"].groupby(["network", "share"])[["loss", "published"]].mean()
    assert (redrawn.loc["GaLU, filters redrawn"] < redrawn.loc["GaLU"]).all(axis=None)

    outputs, script = kept["several_outputs"], several_outputs
    means = outputs[outputs["network"] == "GaLU"].groupby("p")[["width", "parameters"]].mean()
    ours = (means["width"] / means["parameters"])[1:]  # one output needs no count
    m, d, p = script.PUBLISHED_SIZE, script.PUBLISHED_INPUTS, np.array(script.PUBLISHED["p"])
    theirs = np.array(script.PUBLISHED["GaLU"]) / ((1 - script.ERROR) * m * p / (d + p - 1))
    assert theirs[1:].max() < ours.min()

    means_of_tasks = separable_and_parity.mean_errors(kept["separable_and_parity"])
    errors = means_of_tasks.xs("linear", level="task").unstack("network")
    assert (errors["GaLU, closed form"] > errors["GaLU"])[1:].all()
    assert (errors["linear"] < 1.1 * errors["ReLU"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_quick_version(name: str, tmp_path: Path) -> None:
    entry = STUDY.entry(name)
    frame = harness.run(STUDY, entry, quick=True, folder=tmp_path)
    assert "|" in harness.findings(entry, harness.load(STUDY, entry), frame)


def test_binary_search() -> None:
    asked = []

    def memorises(width: int) -> bool:
        asked.append(width)
        return width >= 37

    assert memorisation_width.smallest(memorises, 100) == 37
    assert len(asked) <= 7


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


def test_classes_of_images() -> None:
    from sklearn.datasets import load_digits as sklearn_digits

    from implicit_bias.datasets.images import load_digits

    digits = image_width.Classes.load(load_digits)
    np.testing.assert_array_equal(digits.y, sklearn_digits().target)


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
