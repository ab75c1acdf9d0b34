"""Training beside the certified SVM, as a library function."""

import numpy as np
import pytest

from implicit_bias import solve
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.problem import Architecture
from implicit_bias.runs.beside_svm import train_beside_svm
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data, load_data
from implicit_bias.runs.models import ModelFactory
from implicit_bias.solvers import SolveError
from implicit_bias.training.limit import LimitConfig

CONFIG = RunConfig(dataset="blobs", train_size=40, units=3)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data(CONFIG)


def test_a_network_of_fixed_gates_goes_to_its_svm(data: Data) -> None:
    train = data.parts.train
    network = GLN([ModelFactory(CONFIG, data).contexts()], seed=0)
    trained = train_beside_svm(
        network, train.X, train.y, LimitConfig(steps=2000), until_excess=0.05
    )
    assert trained.network is network
    assert trained.solution is not None
    optimum = solve(Architecture(network.gating()).problem(train.X, train.y)).certificate.lower
    assert trained.solution.certificate.lower == pytest.approx(optimum)
    assert 0 < trained.excess <= 0.05
    assert trained.excess == trained.limit.history[-1].excess


def test_a_network_that_trains_its_gates_has_no_svm(data: Data) -> None:
    train = data.parts.train
    network = ReLUNetwork(train.n_features, [4], seed=1)
    trained = train_beside_svm(network, train.X, train.y, LimitConfig(steps=20))
    assert trained.solution is None
    assert np.isnan(trained.excess)
    assert "residual" in trained.limit.history[-1].measures


def test_an_svm_without_a_solution_is_told(data: Data) -> None:
    train = data.parts.train
    network = GLN([ModelFactory(CONFIG, data).contexts()], seed=0)
    X = np.concatenate([train.X, train.X])
    y = np.concatenate([train.y, -train.y])  # each sample with both labels
    with pytest.raises(SolveError):
        train_beside_svm(network, X, y, LimitConfig(steps=20))
