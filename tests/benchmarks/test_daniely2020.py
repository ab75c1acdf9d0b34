"""The experiments on parities: quick versions run, and the page says what the tables say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.daniely2020 import bound as bound_experiment
from benchmarks.daniely2020 import methods, shared
from benchmarks.daniely2020 import strips as strips_experiment
from implicit_bias.datasets.dataset import Split
from implicit_bias.datasets.images import load_digits
from implicit_bias.theory.sparse_parities import (
    ParityDistribution,
    cube,
    sets_of_size,
    walsh_coefficients,
)

STUDY = catalogue.study("daniely2020")


def test_the_tables_carry_what_the_page_says() -> None:
    """Of the sentences that are not made of numbers of the tables."""
    kept = {entry.name: harness.read(STUDY, entry) for entry in STUDY.experiments}

    bound = kept["bound"]
    assert (bound["loss"] >= bound["bound"] - 1e-9).all()
    assert (bound["mean_correlation"] < bound["proved"]).all()

    learned = kept["learning"].pivot_table(index="method", columns="n", values="hinge_loss")
    assert (learned.loc["theorem 3"] < learned.drop("theorem 3").min() + 0.01).all()
    linear = learned.drop(["theorem 3", "ReLU network"])
    assert (linear[[20, 40, 80, 160]] > 0.5).all(axis=None)

    strips, script = kept["strips"], strips_experiment
    errors = script.errors(strips)
    network, last = errors.pop("ReLU network"), strips["k"].max()
    assert max(network[1], *(row[1] for row in errors.values())) < 0.1
    assert script.independent(strips)[last] < network[last]
    assert network[last] < min(row[last] for row in errors.values()) < 0.5


@pytest.mark.slow
def test_quick_versions(tmp_path: Path) -> None:
    frames = {
        entry.name: harness.run(STUDY, entry, quick=True, folder=tmp_path)
        for entry in STUDY.experiments
    }
    assert set(frames) == {"strips", "learning", "first_step", "bound"}
    assert harness.page(STUDY, tmp_path).count("\n## ") == len(frames)
    # What must hold at any size.
    bound = frames["bound"]
    assert (bound["loss"] >= bound["bound"] - 1e-9).all()
    assert (bound["least_correlation"] <= bound["proved"]).all()
    first = frames["first_step"]
    assert (first["on"] > 10 * first["off"]).all()
    assert np.abs(first["on"] / first["on_limit"] - 1).max() < 0.1
    learning = frames["learning"]
    assert learning["hinge_loss"].between(0, 1).all()
    wrong = learning[learning["n"] == 10].set_index("method")["error"]
    assert wrong.idxmin() == "theorem 3"
    strips = frames["strips"]
    assert (strips.loc[strips["k"] == 1, "error"] < 0.3).all()


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


def test_halved_images_average_blocks_of_four() -> None:
    whole = load_digits(append_constant=False)
    halved = strips_experiment.halved(whole)
    assert halved.image_shape == (4, 4)
    image = whole.X[7].reshape(8, 8)
    expected = [
        [image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for j in range(4)] for i in range(4)
    ]
    np.testing.assert_allclose(2 * halved.X[7].reshape(4, 4) - 1, expected)
    assert halved.X.min() >= 0


def test_every_method_gives_outputs_for_every_test_sample() -> None:
    bits = ParityDistribution(4, (2,)).sample(60, random_state=0)
    data = Split(bits.take(np.arange(40)), bits.take(np.arange(40, 60)))
    effort = methods.Effort(units=8, steps=200, rate=0.1, features=16, svm_units=8, svm_samples=30)
    outputs = dict(methods.outputs_of_all(data, effort, 0))
    assert list(outputs) == [name for name in shared.LOOKS if name != "theorem 3"]
    for values in outputs.values():
        assert values.shape == (20,)
        # One relevant bit is no hard parity: all methods learn it.
        assert shared.error_rate(values, data.validation.y) < 0.2


def test_random_features_are_functions_of_the_input_alone() -> None:
    for weights in methods.random_weights(3, 5, seed=0).values():
        features = methods.relu_features(cube(3), weights)
        by_hand = [[max(0.0, float(w @ x)) for w in weights] for x in cube(3)]
        np.testing.assert_allclose(features, by_hand)


def test_by_method_takes_means_over_seeds_and_keeps_the_order() -> None:
    frame = pd.DataFrame(
        {"method": ["b", "b", "a", "b"], "n": [4, 2, 4, 4], "error": [0.1, 0.5, 0.2, 0.3]}
    )
    found = shared.by_method(frame, "n", "error")
    assert list(found) == ["b", "a"]
    assert found["b"] == pytest.approx({4: 0.2, 2: 0.5})
