r"""Networks of the study that the package has no name for: one layer, and infinite time.

gd-shallow   the gated linear network of one layer, f(x) = <W[c(x)], x>, c(x) one of 2^k contexts,
             trained exactly as released. Only rows of contexts with training samples
             ever get a gradient. Elsewhere the network keeps its random initial weights, by which
             it predicts there, where an SVM predicts 0.
limit-gln    the network of gd-gln, float64 and without a readout bias, trained towards infinite
             time (`implicit_bias.training.limit`): what gd-gln of the same cell would come to, up
             to its initial weights.

Source: Lippl, Abbott, Chung (2022), sections 3 and 4, and their published code.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from benchmarks.lippl2022.cells import Fitted, Models
from benchmarks.lippl2022.released_training import released_shallow_gln, train_as_released
from implicit_bias import GLNSVC, LimitConfig, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin
from implicit_bias.networks import GLN, Network
from implicit_bias.problem import Architecture
from implicit_bias.problem.gating import GlobalContexts, HyperplaneContexts
from implicit_bias.training.history import HistoryPoint, Result

Training: TypeAlias = Callable[[GLN, Array, Array], Result[Any, Any]]

# Accelerated steps of limit-gln.
LIMIT_STEPS = 10_000
# Samples whose weight rows are gathered at once: 785 features of each.
GATHERED = 1024


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
        self.view_ = margin_view(self.network, X)
        return self

    def margin_view(self) -> FittedMargin:
        """Gates and coefficients of the network."""
        return self.view_

    def history(self) -> tuple[HistoryPoint, ...]:
        """Return what the training recorded."""
        return self.history_

    def _decide(self, X: Array) -> Array:
        return outputs(self.network, X)


def margin_view(network: GLN, X: Array) -> FittedMargin:
    """Gates and coefficients of a GLN; of one unit only its contexts with training samples X."""
    (contexts,) = network.gatings
    if contexts.n_units > 1:
        return FittedMargin(network.architecture(), network.coef())
    seen, own = GlobalContexts.collapse(contexts, X), contexts.contexts(X)[:, 0]
    rows = np.empty(len(seen.codes), dtype=np.int64)
    rows[seen.contexts(X)] = own
    weights = network.readout.item() * network.hidden_weights[0].detach()[torch.tensor(rows)]
    return FittedMargin(Architecture(seen), weights.double().numpy())


def outputs(network: Network, X: Array) -> Array:
    """f(x) of inputs (n, D), shape (n,), in the network's precision.

    A GLN of one unit may have 2^15 weight rows: only those that a sample selects are used.
    """
    if not (isinstance(network, GLN) and network.gatings[0].n_units == 1):
        return network.decision(X)
    weights, scale = network.hidden_weights[0].detach(), network.readout.item()
    inputs, rows = network.prepare(X)
    blocks = zip(torch.split(inputs, GATHERED), torch.split(rows[:, 0], GATHERED), strict=True)
    products = torch.cat([(x * weights[row]).sum(dim=1) for x, row in blocks])
    return (scale * products + network.readout_bias_value).double().numpy()


def in_contexts(network: GLN, contexts: HyperplaneContexts) -> GLN:
    """Return a copy of a trained GLN in other contexts than those it was trained in."""
    moved = deepcopy(network)
    moved.gatings = (contexts,)
    return moved


def shallow_models(models: Models, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train gd-shallow as released."""
    samples, setting = models.data.parts.train, models.setting
    network = released_shallow_gln(models.contexts, seed=setting.seed)
    released = partial(train_as_released, momentum=setting.momentum, data_seed=setting.split_seed)
    yield "gd-shallow", NetworkModel(network, released).fit(samples.X, samples.y)


def limit_models(models: Models, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train limit-gln beside the svm-gln of the cell, whose optimum is the limit's bound."""
    samples, svm = models.data.parts.train, fitted["svm-gln"]
    assert isinstance(svm, GLNSVC)
    optimum = svm.solution_.certificate.lower
    training = partial(train_to_limit, config=LimitConfig(steps=LIMIT_STEPS), optimum=optimum)
    network = GLN([models.contexts], seed=models.setting.seed)
    yield "limit-gln", NetworkModel(network, training).fit(samples.X, samples.y)
