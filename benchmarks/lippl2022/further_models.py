r"""Networks of the study that the package has no name for: one layer, and infinite time.

gd-shallow   the gated linear network of one layer, f(x) = <W[c(x)], x>, c(x) one of 2^k contexts,
             trained exactly as released. Only rows of contexts with training samples
             ever get a gradient. Elsewhere the network keeps its random initial weights, by which
             it predicts there, where an SVM predicts 0.
gd-...-momentum-0
             the network gd-... of the cell trained without momentum, beside the same SVMs.
limit-gln    the network of gd-gln, float64 and without a readout bias, trained towards infinite
             time (`implicit_bias.training.limit`): what gd-gln of the same cell would come to, up
             to its initial weights.

Source: Lippl, Abbott, Chung (2022), sections 3 and 4, and their published code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Self, TypeAlias, final

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import Array, as_features
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin
from implicit_bias.estimators.svm import GLNSVC
from implicit_bias.networks import GLN, Network
from implicit_bias.problem.gating import GlobalContexts, HyperplaneContexts
from implicit_bias.protocols.released_training import released_shallow_gln, train_as_released
from implicit_bias.runs.cell import Fitted
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.models import ModelFactory
from implicit_bias.training.history import HistoryPoint
from implicit_bias.training.limit import LimitConfig, train_to_limit
from implicit_bias.training.minibatch import TrainingConfig, train

Training: TypeAlias = Callable[[Network, Array, Array], tuple[HistoryPoint, ...]]

# Ends the names of networks trained without momentum in a cell that has momentum.
WITHOUT_MOMENTUM = "-momentum-0"
# Accelerated steps of limit-gln.
LIMIT_STEPS = 10_000


@final
class ShallowGLN(Network):
    """Gated linear network of one layer: the readout is a constant 1.

    Parameters
    ----------
    contexts : HyperplaneContexts
        Of one unit.
    X : array_like of shape (n, D)
        Training inputs: contexts that do not occur there are never trained.
    dtype, seed
        As in `Network`.
    """

    fixed_gates = True
    initial: Tensor

    def __init__(
        self, contexts: HyperplaneContexts, X: ArrayLike, *, dtype: torch.dtype, seed: int
    ) -> None:
        seen = GlobalContexts.collapse(contexts, X)
        size = (contexts.n_contexts, contexts.n_features)
        super().__init__(size[1], [1], [len(seen.codes)], init="orthogonal", dtype=dtype, seed=seed)
        self.seen, self.local = seen, contexts
        # Orthogonal over all contexts, as in the published code.
        initial = torch.empty(size, dtype=dtype)
        nn.init.orthogonal_(initial, generator=torch.Generator().manual_seed(seed))
        X = as_features(X, contexts.n_features)
        self.occurring = torch.empty(len(seen.codes), dtype=torch.int64)
        self.occurring[torch.tensor(seen.contexts(X))] = torch.tensor(contexts.contexts(X)[:, 0])
        self.register_buffer("initial", torch.empty_like(initial), persistent=False)
        self.set_rows(initial)
        with torch.no_grad():
            self.readout.fill_(1.0).requires_grad_(False)

    def set_rows(self, weights: Tensor) -> None:
        """Set the weights of all 2^k contexts, (2^k, D), those that training never saw, too."""
        with torch.no_grad():
            self.initial.copy_(weights)
            self.hidden_weights[0].copy_(weights[self.occurring])

    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Return inputs (n, D), trained row of each (0 where none), untrained outputs (n,).

        The outputs are those of the initial weights, and nan in contexts that are trained.
        """
        X = as_features(X, self.n_features)
        rows, inputs = torch.tensor(self.seen.contexts(X)), self._as_inputs(X)
        untrained = torch.full((len(X),), torch.nan, dtype=self.dtype)
        unseen = rows < 0
        weights = self.initial[torch.tensor(self.local.contexts(X)[:, 0])[unseen]]
        untrained[unseen] = torch.einsum("nd,nd->n", inputs[unseen], weights)
        return inputs, rows.clamp(min=0), untrained

    def gate_pattern(self, *prepared: Tensor) -> Tensor:
        """Row of the weights, shape (n, 1)."""
        return prepared[1][:, None]

    def _gated(self, layer: int, sums: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        rows, untrained = prepared[1][:, None], prepared[2][:, None]
        return torch.where(untrained.isnan(), sums.gather(1, rows), untrained)

    def _first_layer_gating(self) -> GlobalContexts:
        return self.seen


class NetworkModel(BinaryClassifier):
    """A network and its training as a classifier.

    Parameters
    ----------
    network : Network
        Trained in place.
    training : callable
        Trains the network on inputs (n, D) and labels (n,) in {-1, +1}, and returns the history.
    """

    def __init__(self, network: Network, training: Training) -> None:
        self.network = network
        self.training = training

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train the network."""
        X, signs = self._validate(X, y)
        self.history_ = self.training(self.network, X, signs)
        return self

    def margin_view(self) -> FittedMargin:
        """Gates and coefficients of the network."""
        return FittedMargin(self.network.architecture(), self.network.coef())

    def history(self) -> tuple[HistoryPoint, ...]:
        """Return what the training recorded."""
        return self.history_

    def _decide(self, X: Array) -> Array:
        return self.network.decision(X)


def shallow_models(factory: ModelFactory, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train gd-shallow as the setting says, and without momentum."""
    samples = factory.data.parts.train
    for name, setting in _momenta("gd-shallow", factory.config):
        model = _shallow(ModelFactory(setting, factory.data))
        yield name, model.fit(samples.X, samples.y)


def _shallow(factory: ModelFactory) -> NetworkModel:
    config, X = factory.config, factory.data.parts.train.X
    network = ShallowGLN(
        factory.contexts,
        X,
        dtype=torch.float32 if factory.published else torch.float64,
        seed=config.seed,
    )
    if config.trains_as_released:
        return NetworkModel(network, partial(_trained_as_released, factory))
    training = TrainingConfig(
        steps=config.steps,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        seed=config.seed,
    )
    return NetworkModel(network, lambda net, X, y: train(net, X, y, training).history)


def _trained_as_released(
    factory: ModelFactory, network: Network, X: Array, y: Array
) -> tuple[HistoryPoint, ...]:
    """Train the released network of all 2^k contexts, and put its weights into a collapsed one."""
    assert isinstance(network, ShallowGLN)
    config = factory.config
    whole = released_shallow_gln(factory.contexts, seed=config.seed)
    training = train_as_released(whole, X, y, momentum=config.momentum, data_seed=config.split_seed)
    network.set_rows(whole.hidden_weights[0].detach())
    return training.history


def gln_without_momentum(
    factory: ModelFactory, fitted: Fitted
) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train gd-gln without momentum, where the setting has momentum."""
    if "gd-gln" not in fitted:
        return
    for name, setting in _momenta("gd-gln", factory.config):
        if name not in fitted:
            yield name, ModelFactory(setting, factory.data).fit_one("gd-gln")


def _momenta(name: str, setting: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    yield name, setting
    if setting.momentum:
        yield name + WITHOUT_MOMENTUM, replace(setting, momentum=0.0)


def limit_models(factory: ModelFactory, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Train limit-gln beside the svm-gln of the cell, whose optimum is the limit's bound."""
    samples, svm = factory.data.parts.train, fitted["svm-gln"]
    assert isinstance(svm, GLNSVC)
    optimum = svm.solution_.certificate.lower
    config = LimitConfig(steps=LIMIT_STEPS)
    network = GLN([factory.contexts], seed=factory.config.seed)

    def towards_the_limit(net: Network, X: Array, y: Array) -> tuple[HistoryPoint, ...]:
        return train_to_limit(net, X, y, config, optimum=optimum).history

    yield "limit-gln", NetworkModel(network, towards_the_limit).fit(samples.X, samples.y)
