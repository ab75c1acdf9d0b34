"""The experiments on parities: quick versions run, and the page says what the tables say."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from implicit_bias.datasets.dataset import Split
from implicit_bias.datasets.images import load_digits
from implicit_bias.report.gallery import Gallery
from implicit_bias.theory.sparse_parities import (
    ParityDistribution,
    cube,
    sets_of_size,
    walsh_coefficients,
)

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS / "daniely2020"))
        yield


def load(name: str) -> ModuleType:
    return importlib.import_module(f"parity_{name}")


def test_the_page_is_of_the_tables_that_are_kept() -> None:
    """Else: python benchmarks/daniely2020/parity_experiments.py page."""
    gallery: Gallery = load("experiments").GALLERY
    assert gallery.readme(BENCHMARKS).read_text("utf-8") == gallery.page(BENCHMARKS)
    for experiment in gallery.experiments:
        assert gallery.picture(experiment, BENCHMARKS).is_file()


def test_the_tables_carry_what_the_page_says() -> None:
    """Of the sentences that are not made of numbers of the tables."""
    gallery: Gallery = load("experiments").GALLERY
    kept = {each.name: gallery.read(each, BENCHMARKS) for each in gallery.experiments}

    bound = kept["bound"]
    assert (bound["loss"] >= bound["bound"] - 1e-9).all()
    assert (bound["mean_correlation"] < bound["proved"]).all()

    learned = kept["learning"].pivot_table(index="method", columns="n", values="hinge_loss")
    assert (learned.loc["theorem 3"] < learned.drop("theorem 3").min() + 0.01).all()
    linear = learned.drop(["theorem 3", "ReLU network"])
    assert (linear[[20, 40, 80, 160]] > 0.5).all(axis=None)

    strips, script = kept["strips"], load("strips")
    errors = script.errors(strips)
    network, last = errors.pop("ReLU network"), strips["k"].max()
    assert max(network[1], *(row[1] for row in errors.values())) < 0.1
    assert script.independent(strips)[last] < network[last]
    assert network[last] < min(row[last] for row in errors.values()) < 0.5


@pytest.mark.slow
def test_quick_versions(tmp_path: Path) -> None:
    gallery: Gallery = load("experiments").GALLERY
    frames = {
        experiment.name: gallery.run(experiment, quick=True, folder=tmp_path)
        for experiment in gallery.experiments
    }
    assert set(frames) == {"strips", "learning", "first_step", "bound"}
    assert gallery.page(tmp_path).count("\n## ") == len(frames)
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
    script = load("bound")
    for method in script.linear_methods(6, 4).values():
        features = method.gates[:, :, None] * method.X[:, None, :]
        coefficients = walsh_coefficients(features.reshape(64, -1))  # C order
        assert coefficients.shape[1] == method.n_features
        assert np.abs(features).max() <= 1
        np.testing.assert_allclose(
            script.correlations(method, 6), np.linalg.norm(coefficients, axis=1), atol=1e-12
        )
    rows = sets_of_size(6, 3)
    assert ParityDistribution(6, (0, 1, 5)).mask in rows


def test_halved_images_average_blocks_of_four() -> None:
    whole = load_digits(append_constant=False)
    halved = load("strips").halved(whole)
    assert halved.image_shape == (4, 4)
    image = whole.X[7].reshape(8, 8)
    expected = [
        [image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for j in range(4)] for i in range(4)
    ]
    np.testing.assert_allclose(2 * halved.X[7].reshape(4, 4) - 1, expected)
    assert halved.X.min() >= 0


def test_every_method_gives_outputs_for_every_test_sample() -> None:
    methods = load("methods")
    bits = ParityDistribution(4, (2,)).sample(60, random_state=0)
    data = Split(bits.take(np.arange(40)), bits.take(np.arange(40, 60)))
    effort = methods.Effort(units=8, steps=200, rate=0.1, features=16, svm_units=8, svm_samples=30)
    outputs = dict(methods.outputs_of_all(data, effort, 0))
    assert list(outputs) == [name for name in load("shared").LOOKS if name != "theorem 3"]
    for values in outputs.values():
        assert values.shape == (20,)
        # One relevant bit is no hard parity: all methods learn it.
        assert load("shared").error_rate(values, data.validation.y) < 0.2


def test_random_features_are_functions_of_the_input_alone() -> None:
    methods = load("methods")
    for weights in methods.random_weights(3, 5, seed=0).values():
        features = methods.relu_features(cube(3), weights)
        by_hand = [[max(0.0, float(w @ x)) for w in weights] for x in cube(3)]
        np.testing.assert_allclose(features, by_hand)


def test_by_method_takes_means_over_seeds_and_keeps_the_order() -> None:
    frame = pd.DataFrame(
        {"method": ["b", "b", "a", "b"], "n": [4, 2, 4, 4], "error": [0.1, 0.5, 0.2, 0.3]}
    )
    found = load("shared").by_method(frame, "n", "error")
    assert list(found) == ["b", "a"]
    assert found["b"] == pytest.approx({4: 0.2, 2: 0.5})
