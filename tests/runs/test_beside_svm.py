"""Training beside the certified SVM, as a library function."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from cases import clusters
from example_modules import known
from implicit_bias import LimitConfig, SolveError, solve
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.runs.beside_svm import train_beside_svm
from implicit_bias.runs.comparison_folder import train_again_to_limit
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

CONFIG = RunConfig(dataset="blobs", train_size=40, units=3)


@cache
def train() -> Dataset:
    return load_data(CONFIG).parts.train


def gln(classes: int | None = None, *, shared: bool = False) -> GLN:
    contexts = ModelFactory(CONFIG, load_data(CONFIG)).contexts
    return GLN([contexts], classes=classes, shared=shared, seed=0)


def test_a_network_of_fixed_gates_goes_to_its_svm() -> None:
    network, X, y = gln(), train().X, train().y
    limit, svm = train_beside_svm(network, X, y, LimitConfig(steps=2000), until_excess=0.05)
    assert limit.network is network
    optimum = solve(network.architecture().problem(X, y)).certificate.lower
    assert known(svm).certificate.lower == pytest.approx(optimum)
    assert 0 < limit.history[-1].excess <= 0.05


def test_the_second_training_of_a_comparison_begins_at_the_same_initial_weights() -> None:
    config = RunConfig(dataset="blobs", train_size=40, units=3, steps=20, models=("gd-gln",))
    data = load_data(config)
    first = ModelFactory(config, data).fit_one("gd-gln").history()
    again = train_again_to_limit(config, data)["gd-gln-limit"].history()
    assert again[0].step == first[0].step == 0
    assert again[0].min_margin == first[0].min_margin
    assert again[0].min_margin != first[-1].min_margin


@pytest.mark.parametrize("build", [lambda: ReLUNetwork(3, [4]), lambda: gln(4, shared=True)])
def test_a_network_that_its_svm_does_not_bound_has_none(build: Callable[[], Network]) -> None:
    """One that trains its gates, and one whose classes share their units."""
    network = build()
    y = np.arange(len(train().y)) % 4 if network.classes else train().y
    limit, svm = train_beside_svm(network, train().X, y, LimitConfig(steps=20))
    assert svm is None
    assert np.isnan(limit.history[-1].excess)
    assert "residual" in limit.history[-1].measures


def test_an_svm_without_a_solution_is_told() -> None:
    X = np.concatenate([train().X, train().X])
    y = np.concatenate([train().y, -train().y])  # each sample with both labels
    with pytest.raises(SolveError):
        train_beside_svm(gln(), X, y, LimitConfig(steps=20))


@pytest.mark.slow
def test_towards_the_svm_of_groups_of_class_and_unit() -> None:
    """The norm of one network a class comes down to the certified optimum, from above."""
    X, y = clusters(24, 6, 4, spread=0.2, seed=3)
    network = GLN([HyperplaneContexts.random(X, 3, 1, random_state=0)], classes=4, seed=0)
    limit, svm = train_beside_svm(network, X, y, LimitConfig(steps=600))
    excess = [point.excess for point in limit.history if np.isfinite(point.excess)]
    assert min(excess) >= -1e-9
    assert excess[-1] < 0.05
    assert limit.history[-1].disagreement == 0
    assert limit.history[-1].measures["residual"] < 0.2
