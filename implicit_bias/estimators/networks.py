"""scikit-learn classifiers that train a network by gradient descent."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from implicit_bias.base.options import OptimizerName
from implicit_bias.base.validation import (
    Array,
    RandomState,
    as_device,
    as_generator,
    check_choice,
    check_count,
    detached,
)
from implicit_bias.estimators import base
from implicit_bias.problem.gating import Gating, HyperplaneContexts, Threshold
from implicit_bias.training.configuration import LossName, TrainingConfig

if TYPE_CHECKING:
    from implicit_bias.networks import Network, NetworkOptions
    from implicit_bias.training.history import HistoryPoint, OnProgress
    from implicit_bias.training.limit import LimitResult
    from implicit_bias.training.losses import MarginLoss
    from implicit_bias.training.minibatch import OwnResult, TrainingResult

    AnyTraining: TypeAlias = TrainingResult | LimitResult | OwnResult
    # Trains the network in place; what it returns counts where it is a result or a number of steps.
    Trainer: TypeAlias = Callable[[Network, Array, Array], object]


def _is_logistic(model: NetworkClassifier) -> bool:
    """Whether a network is trained with the loss whose minimum is a probability of the classes."""
    from implicit_bias.training.losses import LOSSES, as_loss

    return as_loss(model.loss) is LOSSES["logistic"]


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkClassifier(base.BinaryClassifier, ABC):
    """A classifier that trains a network, of any number of classes; subclasses say which.

    With K > 2 classes the network has K outputs, and the logistic loss is cross-entropy.

    Parameters
    ----------
    shared : bool
        Whether K > 2 classes share their hidden units; by default there is one network per class.
        Two classes have one output, so that there is nothing to share. With shared units, the norm
        of the limit is a sum of nuclear norms only where the units are many enough; see
        `implicit_bias.networks`.
    learning_rate : float or "auto"
        See `TrainingConfig`, whose default "auto" is; for gradient descent no more than 2 over the
        root mean square norm of the inputs, beyond which training diverges.
    steps, batch_size, momentum, optimizer, loss
        See `TrainingConfig`.
    checkpoints : tuple of int
        Steps at which to keep a copy of the network, in ``checkpoints_``.
    dtype : {"float32", "float64"}
        Precision of the network.
    device : str
        Where torch computes.
    random_state : int, Generator, RandomState or None
        Seed of all random draws: of hyperplanes, of weights, and of the order of the samples.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes; of two, the second is the positive one.
    training_ : TrainingResult, LimitResult or OwnResult
        The trained network, and loss, error, smallest margin and norm at chosen steps.
    checkpoints_ : dict from int to Network
        Copies of the network as it was at the steps in ``checkpoints``.
    """

    shared: bool = False
    steps: int = TrainingConfig.steps
    batch_size: int | None = TrainingConfig.batch_size
    learning_rate: float | Literal["auto"] = "auto"
    momentum: float = TrainingConfig.momentum
    optimizer: OptimizerName = "sgd"
    loss: LossName | MarginLoss = TrainingConfig.loss
    checkpoints: tuple[int, ...] = ()
    dtype: Literal["float32", "float64"] = "float64"
    device: str = "cpu"
    random_state: RandomState = None
    training_: AnyTraining = field(init=False)
    checkpoints_: dict[int, Network] = field(init=False)

    @property
    @abstractmethod
    def rule(self) -> Literal["gradient", "local"]:
        """What learns from the loss: the network as a whole, or each unit by itself."""

    @abstractmethod
    def _network(self, X: Array, seed: int) -> Network:
        """Build the network for training inputs (n, D)."""

    def _options(self, seed: int) -> NetworkOptions:
        """Return what the network is built with beside its sizes."""
        import torch

        check_choice(self.dtype, "dtype", ("float32", "float64"))
        options: NetworkOptions = {"dtype": getattr(torch, self.dtype), "seed": seed}
        if len(self.classes_) > 2:
            options |= {"classes": len(self.classes_), "shared": self.shared}
        return options

    def fit(self, X: ArrayLike, y: ArrayLike, *, on_progress: OnProgress | None = None) -> Self:
        """Build the network for the training inputs (n, D) and train it on labels (n,).

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs.
        y : array_like of shape (n,)
            Two classes or more.
        on_progress : callable, optional
            As in `implicit_bias.training.train`.

        Raises
        ------
        ValueError
            NaN, one class, parameters out of range.
        TrainingDiverged
            The loss is not finite any more.
        """
        from implicit_bias.training.minibatch import train

        X, signs = self._validate(X, y)
        network, seed = self._build(X)
        config = TrainingConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self._learning_rate(X),
            momentum=self.momentum,
            optimizer=self.optimizer,
            loss=self.loss,
            rule=self.rule,
            seed=seed,
        )
        kept = np.atleast_1d(detached(self.checkpoints)).tolist()
        for step in kept:
            check_count(step, "each step of checkpoints", 0, self.steps)
        # A copy is kept where a point is recorded: the training calls back there alone.
        config = replace(config, record=tuple(sorted({*config.recorded_steps, *kept})))
        self.checkpoints_ = {}

        def keep(point: HistoryPoint) -> None:
            if point.step in kept:
                # The network goes on being trained in place.
                self.checkpoints_[point.step] = deepcopy(network)

        self.training_ = train(network, X, signs, config, on_progress=on_progress, on_point=keep)
        self._warn_of_interruption()
        return self

    def fit_by(self, X: ArrayLike, y: ArrayLike, trainer: Trainer) -> Self:
        """Build the network and train it in another way, towards its limit above all.

        The classifier's own ``steps``, ``batch_size``, ``learning_rate``, ``momentum``, ``loss``,
        ``rule`` and ``checkpoints`` do not count.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs.
        y : array_like of shape (n,)
            Two classes or more.
        trainer : callable
            Takes the network with its initial weights, inputs (n, D) and labels (n,) in {-1, +1}
            or, of more classes, 0 .. K - 1, and trains it in place: ``partial(train_to_limit,
            config=LimitConfig())``, say, or your loop, on ``network.prepare_samples(X, y)``.
            Where it returns the number of its steps, that is ``n_iter_``, and else that is 0.

        Raises
        ------
        ValueError
            NaN, one class, parameters out of range.
        """
        from implicit_bias.training.limit import LimitResult
        from implicit_bias.training.minibatch import OwnResult, TrainingResult, after_own_loop

        X, signs = self._validate(X, y)
        network, _ = self._build(X)
        self.checkpoints_ = {}
        started = time.perf_counter()
        outcome = trainer(network, X, signs)
        seconds = time.perf_counter() - started
        # A trainer of this package has measured on its way; after another one the end is measured.
        if isinstance(outcome, (TrainingResult, LimitResult, OwnResult)):
            self.training_ = outcome
        else:
            steps = 0
            if isinstance(outcome, Integral):
                steps = int(outcome)
            self.training_ = after_own_loop(network, X, signs, steps, seconds)
        self._warn_of_interruption()
        return self

    def _learning_rate(self, X: Array) -> float:
        """Return the step size for inputs (n, D)."""
        if not isinstance(self.learning_rate, str):
            return self.learning_rate
        check_choice(self.learning_rate, "learning_rate", ("auto",), "a number")
        default = TrainingConfig.learning_rate
        size = np.sqrt(np.square(X).sum(axis=1).mean())
        # Beyond this step, times the inputs' norm, gradient descent diverges; the other optimizers
        # rescale their gradients.
        largest = 2.0
        if self.optimizer == "sgd" and size * default > largest:
            return float(largest / size)
        return default

    def _build(self, X: Array) -> tuple[Network, int]:
        """Return the untrained network for inputs (n, D), and the seed of its weights."""
        # Of an int this is a generator of its own, so that the hyperplanes are those of `GLNSVC`
        # with the same seed.
        seed = int(as_generator(self.random_state).integers(2**31))
        return self._network(X, seed).to(as_device(self.device)), seed

    def _warn_of_interruption(self) -> None:
        if self.training_.interrupted:
            warnings.warn(
                f"training was interrupted after {self.n_iter_} of {self.training_.config.steps} "
                "steps; the network is kept as it is",
                ConvergenceWarning,
                stacklevel=3,
            )

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, shape (n, K), that the logistic loss has fitted.

        Only with the logistic loss (cross-entropy), of which they are a part.
        """
        decision = self.decision_function(X)
        if decision.ndim == 1:
            # With two classes softmax(0, f) is the logistic function of f.
            decision = np.column_stack([np.zeros_like(decision), decision])
        return np.asarray(softmax(decision, axis=1))

    @property
    def network_(self) -> Network:
        """The trained network."""
        return self.training_.network

    @property
    def n_iter_(self) -> int:
        """Gradient steps done."""
        return self.training_.steps

    def _check_fitted(self) -> None:
        """Raise scikit-learn's NotFittedError, with the cure, for what has no network yet."""
        check_is_fitted(
            self,
            msg="this %(name)s is not fitted: fit it first; and where scikit-learn clones (grid "
            "search, cross-validation), which un-fits, pass its network_",
        )

    def gating(self) -> Gating:
        """Gates that the network has now."""
        self._check_fitted()
        return self.network_.gating()

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Activations of the last hidden layer, shape (n, H), of all networks side by side."""
        self._check_fitted()
        return self.network_.hidden_activations(X)

    def margin_view(self) -> base.FittedMargin | None:
        """Gates and zeta of a network of one hidden layer (a readout bias is left out)."""
        check_is_fitted(self)
        # More hidden layers are no convex problem in their products.
        if not self.network_.has_margin_structure:
            return None
        network = self.network_
        return base.FittedMargin(
            network.architecture(),
            network.coef(),
            local=self.training_.local,
            relaxed=network.relaxed,
            geometry=self.training_.config.limit_norm or "l2",
            constrained=self.training_.config.constrained,
        )

    def history(self) -> tuple[HistoryPoint, ...]:
        """Loss, error, smallest margin and norm at chosen steps."""
        check_is_fitted(self)
        return self.training_.history

    def _decide(self, X: Array) -> Array:
        return self.network_.decision(X)


@dataclass(eq=False, repr=False)
class GLNClassifier(NetworkClassifier):
    r"""A gated linear network, trained by gradient descent or unit by unit.

    .. math:: f(x) = \sum_h w_h \langle W_{h, c_h(x)}, x \rangle

    with one hidden layer, where c_h(x) is the context of x at unit h: the side of each of its
    hyperplanes.

    Parameters
    ----------
    n_units : int or sequence of int
        Hidden units; a sequence has one entry a hidden layer.
    n_hyperplanes, threshold
        See `GLNSVC`, which draws the same hyperplanes from the same ``random_state``.
    rule : {"gradient", "local"}
        Gradient descent on the network's loss, or local learning: each unit predicts the class
        by online logistic regression on the outputs of the layer before it, as GLNs are usually
        trained (Veness et al. 2017, 2021; online is ``batch_size=1``).
    readout_bias : bool
        Give the readout a bias, which breaks homogeneity.
    contexts : HyperplaneContexts, optional
        Contexts of one hidden layer to use instead of drawing any.
    steps, batch_size, learning_rate, momentum, optimizer, loss
        See `TrainingConfig`.
    shared, checkpoints, dtype, device, random_state
        See `NetworkClassifier`.

    Examples
    --------
    >>> from implicit_bias import GLNClassifier
    >>> from implicit_bias.datasets import make_toy
    >>> blobs = make_toy("blobs", 60)
    >>> network = GLNClassifier(n_units=5, steps=200, random_state=0).fit(blobs.X, blobs.y)
    >>> print(network.score(blobs.X, blobs.y), network.history()[-1].step)
    1.0 200
    """

    n_units: int | Sequence[int] = 50
    n_hyperplanes: int = 1
    threshold: Threshold = "median"
    _: KW_ONLY
    rule: Literal["gradient", "local"] = "gradient"
    readout_bias: bool = False
    contexts: HyperplaneContexts | None = None

    def _network(self, X: Array, seed: int) -> Network:
        from implicit_bias.networks import GLN

        widths = np.atleast_1d(detached(self.n_units)).tolist()
        # The first layer draws what `GLNSVC` draws from the same seed.
        rng = as_generator(self.random_state)
        layers = [
            base.contexts_of(self.contexts, X, width, self.n_hyperplanes, self.threshold, rng)
            for width in widths
        ]
        # Given contexts are those of one layer, whatever the widths say.
        if self.contexts is not None:
            layers = layers[:1]
        return GLN(layers, readout_bias=self.readout_bias, **self._options(seed))


@dataclass(eq=False, repr=False)
class ReLUClassifier(NetworkClassifier):
    r"""A ReLU network without bias units, trained by gradient descent.

    .. math:: f(x) = \sum_h w_h \max(0, \langle W_h, x \rangle)

    with one hidden layer.

    For SVM-LC with the gates of an earlier step pass ``gates=classifier.checkpoints_[step]`` to
    `GatedReLUSVC`.

    Parameters
    ----------
    n_units : int or sequence of int
        Hidden units; a sequence has one entry a hidden layer.
    steps, batch_size, learning_rate, momentum, optimizer, loss
        See `TrainingConfig`.
    shared, checkpoints, dtype, device, random_state
        See `NetworkClassifier`.

    Notes
    -----
    Lippl, Abbott, Chung (2022), section 5.

    Examples
    --------
    >>> from implicit_bias import ReLUClassifier
    >>> from implicit_bias.datasets import make_toy
    >>> blobs = make_toy("blobs", 60)
    >>> network = ReLUClassifier(n_units=20, steps=200, random_state=0).fit(blobs.X, blobs.y)
    >>> print(network.score(blobs.X, blobs.y), network.network_.homogeneous)
    1.0 True
    """

    n_units: int | Sequence[int] = 50
    rule: ClassVar[Literal["gradient"]] = "gradient"

    def _network(self, X: Array, seed: int) -> Network:
        from implicit_bias.networks import ReLUNetwork

        widths = np.atleast_1d(detached(self.n_units)).tolist()
        return ReLUNetwork(X.shape[1], widths, **self._options(seed))
