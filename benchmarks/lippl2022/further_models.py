r"""Networks of the study that the package has no name for.

limit-gln    the network of gd-gln, float64 and without a readout bias, trained towards infinite
             time (`implicit_bias.training.limit`): what gd-gln of the same cell would come to, up
             to its initial weights.

`NetworkModel` makes a classifier of a network, as it is or with a training.

Source: Lippl, Abbott, Chung (2022), sections 3 and 4.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, Self, TypeAlias

from numpy.typing import ArrayLike

from benchmarks.lippl2022.cells import Fitted, Models
from implicit_bias import GLNSVC, LimitConfig, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.history import HistoryPoint, Result

Training: TypeAlias = Callable[[GLN, Array, Array], Result[Any, Any]]

# Accelerated steps of limit-gln.
LIMIT_STEPS = 10_000


class NetworkModel(BinaryClassifier):
    """A network and its training as a classifier.

    Parameters
    ----------
    network : GLN
        Trained in place.
    training : callable, optional
        Trains the network on inputs (n, D) and labels (n,) in {-1, +1}; by default it stays as it
        is.
    """

    def __init__(self, network: GLN, training: Training | None = None) -> None:
        self.network = network
        self.training = training

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train the network."""
        X, signs = self._validate(X, y)
        self.history_ = self.training(self.network, X, signs).history if self.training else ()
        self.view_ = FittedMargin(self.network.architecture(), self.network.coef())
        return self

    def margin_view(self) -> FittedMargin:
        """Gates and coefficients of the network."""
        return self.view_

    def history(self) -> tuple[HistoryPoint, ...]:
        """Return what the training recorded."""
        return self.history_

    def _decide(self, X: Array) -> Array:
        return self.network.decision(X)


def in_contexts(network: GLN, contexts: HyperplaneContexts) -> GLN:
    """Return a copy of a trained GLN in other contexts than those it was trained in."""
    moved = deepcopy(network)
    moved.gatings = (contexts,)
    return moved


def limit_models(models: Models, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train limit-gln beside the svm-gln of the cell, whose optimum is the limit's bound."""
    samples, svm = models.data.parts.train, fitted["svm-gln"]
    assert isinstance(svm, GLNSVC)
    optimum = svm.solution_.certificate.lower
    training = partial(train_to_limit, config=LimitConfig(steps=LIMIT_STEPS), optimum=optimum)
    network = GLN([models.contexts], seed=models.setting.seed)
    yield "limit-gln", NetworkModel(network, training).fit(samples.X, samples.y)
