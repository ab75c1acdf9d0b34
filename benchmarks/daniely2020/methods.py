"""The methods that are compared on parities.

=================  ============================================================================
ReLU network       both layers trained
frozen gates       the same start, the same batches, gates as they were: the linearised regime
ReLU features      logistic regression on relu(W x), W uniform in [-1, 1] / sqrt(D)
Gaussian features  the same, W Gaussian of that scale
group SVM          SVM under the group norm on the gates of a ReLU network at its start; fewer
                   units and fewer samples than the others, as it is solved to its optimum
=================  ============================================================================

All but the first are linear methods: of features that are fixed before the data are seen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from implicit_bias.datasets.dataset import Split
from implicit_bias.estimators.svm import GatedReLUSVC
from implicit_bias.networks import ReLUNetwork
from implicit_bias.training.frozen import train_beside_frozen
from implicit_bias.training.minibatch import TrainingConfig
from implicit_bias.validation import Array


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Sizes of the methods.

    Attributes
    ----------
    units, steps, rate : int, int, float
        Of the networks: batches of 128, momentum 0.9, the step size a quarter after half of them.
    features : int
        Random features.
    svm_units, svm_samples : int
        Of the SVM.
    """

    units: int
    steps: int
    rate: float
    features: int
    svm_units: int
    svm_samples: int


def random_weights(n_features: int, units: int, seed: int) -> dict[str, Array]:
    """Weights (H, D) of the two kinds of random features."""
    rng = np.random.default_rng(seed)
    shape, scale = (units, n_features), 1.0 / math.sqrt(n_features)
    return {
        "ReLU features": rng.uniform(-scale, scale, shape),
        "Gaussian features": rng.normal(0.0, scale, shape),
    }


def relu_features(X: ArrayLike, weights: Array) -> Array:
    """max(0, W x), shape (n, H), of inputs (n, D)."""
    return np.maximum(np.asarray(X) @ weights.T, 0.0)


def outputs_of_all(data: Split, effort: Effort, seed: int) -> Iterator[tuple[str, Array]]:
    """Train every method on the first part; name and outputs (n',) on the second."""
    train, test = data.train, data.validation
    config = TrainingConfig(
        steps=effort.steps, learning_rate=effort.rate, momentum=0.9, record=2, seed=seed
    )
    network = ReLUNetwork(train.n_features, [effort.units], dtype=torch.float32, seed=seed)
    twins = train_beside_frozen(network, train.X, train.y, config)
    yield "ReLU network", twins.live.network.decision(test.X)
    yield "frozen gates", twins.frozen.network.decision(test.X)
    for name, weights in random_weights(train.n_features, effort.features, seed).items():
        readout = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        readout.fit(relu_features(train.X, weights), train.y)
        yield name, readout.decision_function(relu_features(test.X, weights))
    gates = ReLUNetwork(train.n_features, [effort.svm_units], seed=seed)
    some = train.take(np.arange(effort.svm_samples))
    with warnings.catch_warnings():
        # Few bits and few units: the samples need not be separable, and then a soft margin is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        svm = GatedReLUSVC(gates=gates, tol=1e-4, on_failure="soft").fit(some.X, some.y)
    yield "group SVM", svm.decision_function(test.X)
