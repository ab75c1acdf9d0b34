"""scikit-learn classifiers: they store, validate, build, solve, and expose. No numerics here.

=================  ============================================================================
GatedSVC           any gating a user brings; without one, the linear SVM
GLNSVC             SVM-GLN and SVM-L2; with one unit, the shallow GLN
GatedReLUSVC       SVM-RC (random gates) and SVM-LC (the gates of a trained network)
HiddenLayerSVC     SVM-HL: a linear SVM on the hidden activations of a network
GLNClassifier      a gated linear network trained by gradient descent
ReLUClassifier     a ReLU network trained by gradient descent
=================  ============================================================================

All take two classes of any label type; ``classes_[1]`` is the positive one. A prediction of
exactly 0 (an input whose gates are all off) goes to ``classes_[0]``.

Source: Lippl, Abbott, Chung (2022), sections 3 to 5.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    get_args,
    runtime_checkable,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from implicit_bias.gating import (
    Gating,
    GlobalContexts,
    HyperplaneContexts,
    NoGates,
    Threshold,
    UnitGates,
    l2_metric,
)
from implicit_bias.problem import HasHiddenLayer, MarginProblem, Structure
from implicit_bias.solvers import OnFailure, Solution, solve_relaxed
from implicit_bias.validation import Array, as_device

if TYPE_CHECKING:
    import torch

    from implicit_bias.limit import LimitResult
    from implicit_bias.networks import Network
    from implicit_bias.training import HistoryPoint, TrainingResult

    Trainer: TypeAlias = Callable[[Network, Array, Array], TrainingResult | LimitResult]

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None

UNFITTED_NETWORK = (
    "this %(name)s is not fitted, so it has no gates or activations yet: fit it first; and where "
    "scikit-learn clones (grid search, cross-validation), which un-fits, pass its network_"
)


@runtime_checkable
class HasGating(Protocol):
    """What has gates of its own: a network, or a classifier that trained one."""

    def gating(self) -> Gating:
        """Gates of the hidden units."""


@dataclass(frozen=True, eq=False)
class MarginView:
    """A fitted classifier as a solution, good or bad, of a margin problem.

    Attributes
    ----------
    structure : Structure
        Gates, groups and metric.
    coef : ndarray of shape (M, D)
        Its coefficients zeta.
    solution : Solution or None
        What the solver returned, for an SVM.
    C : float
        inf for a network.
    dropped : ndarray of int
        Training samples left out of the problem.
    samples : str
        Fingerprint of the training samples; empty for a network.
    local : bool
        For a network: whether each unit learned by itself, so that no SVM is known to be its limit.
    """

    structure: Structure
    coef: Array
    solution: Solution | None = None
    C: float = np.inf
    dropped: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    samples: str = ""
    local: bool = False

    def problem(self, X: ArrayLike, signs: ArrayLike) -> MarginProblem:
        """Margin problem on samples X (n, D) with labels (n,) in {-1, +1}.

        On the training samples themselves, those that fitting left out are left out again.
        """
        posed = self.structure.problem(X, signs, self.C)
        if len(self.dropped) == 0 or not self._fitted_to(X, signs):
            return posed
        return posed.subset(np.setdiff1d(np.arange(posed.n_samples), self.dropped))

    def alpha(self, X: ArrayLike, signs: ArrayLike) -> Array | None:
        """Dual variables of `problem`; None unless these are the training samples."""
        if self.solution is None or not self._fitted_to(X, signs):
            return None
        return np.delete(self.solution.alpha, self.dropped)

    def _fitted_to(self, X: ArrayLike, signs: ArrayLike) -> bool:
        return self.samples == fingerprint(np.asarray(X), np.asarray(signs))


def fingerprint(X: Array, signs: Array) -> str:
    """Digest of samples: equal for equal inputs (n, D) and labels (n,)."""
    digest = blake2b(digest_size=16)
    for array in (X, signs):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


class BinaryClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Two classes of any label type, from the sign of a real-valued decision function."""

    classes_: NDArray[Any]
    n_features_in_: int

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to inputs X (n, D) and labels y (n,)."""

    @abstractmethod
    def margin_view(self) -> MarginView | None:
        """Return the margin problem's side of the model; None where it has none."""

    @abstractmethod
    def history(self) -> tuple[HistoryPoint, ...]:
        """Training history; empty where nothing was trained."""

    @abstractmethod
    def _decide(self, X: Array) -> Array:
        """f(x_n), shape (n,), of validated inputs."""

    def decision_function(self, X: ArrayLike) -> Array:
        """Predictor f(x_n), shape (n,); positive for ``classes_[1]``."""
        check_is_fitted(self)
        return self._decide(validate_data(self, X, reset=False, dtype=np.float64, order="C"))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input, shape (n,)."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def signs(self, y: ArrayLike) -> Array:
        """Labels (n,) as -1 and +1, by the classes seen in fitting.

        Raises
        ------
        ValueError
            A label that fitting did not see.
        """
        check_is_fitted(self)
        labels = np.asarray(y)
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"labels must be among the fitted classes {self.classes_}")
        return np.where(labels == self.classes_[1], 1.0, -1.0)

    def _validate(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_ = np.unique(y)
        if len(self.classes_) == 1:
            raise ValueError(
                f"y contains one class only, {self.classes_.tolist()[0]!r}: a classifier needs "
                "samples of two classes"
            )
        return np.asarray(X), self.signs(y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class _MarginSVC(BinaryClassifier, ABC):
    """A classifier that solves one margin problem; subclasses say which.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes; the second is the positive one.
    structure_ : Structure
        Gates, groups and metric.
    solution_ : Solution
        Dual variables, status and certificate.
    failure_ : Solution or None
        The proof that the hard margin has no solution, where ``on_failure`` then asked for
        another one.
    fitted_C_ : float
        The C of ``solution_``: ``soft_C`` where the hard margin had no solution and
        ``on_failure="soft"``.
    dropped_ : ndarray of int
        Training samples that ``on_failure="drop"`` left out.
    samples_ : str
        Fingerprint of the training samples.
    dual_coef_ : ndarray of shape (1, n_support)
        y_n alpha_n of the support vectors, as in scikit-learn's SVC.
    """

    structure_: Structure
    solution_: Solution
    failure_: Solution | None
    fitted_C_: float
    dropped_: NDArray[np.int64]
    samples_: str
    C: float
    solver: str
    tol: float
    device: str
    on_failure: OnFailure
    soft_C: float | None

    @abstractmethod
    def _structure(self, X: Array) -> Structure:
        """Build gates, groups and metric from the training inputs (n, D)."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the gates from the training inputs and solve the margin problem.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Inputs; include a constant column where predictors should have an offset.
        y : array_like of shape (n,)
            Labels of two classes.

        Raises
        ------
        ValueError
            NaN, one class, more than two classes, parameters out of range.
        SolveError
            Not separable, or the tolerance was not reached, and ``on_failure="raise"``.
        """
        if self.on_failure not in get_args(OnFailure):
            raise ValueError(
                f"on_failure must be one of {get_args(OnFailure)}, got {self.on_failure!r}"
            )
        X, signs = self._validate(X, y)
        self.structure_ = self._structure(X)
        problem = self.structure_.problem(X, signs, self.C)
        relaxed = solve_relaxed(
            problem,
            self.on_failure,
            self.soft_C,
            solver=self.solver,
            tol=self.tol,
            device=self.device,
        )
        self.solution_ = relaxed.solution
        self.failure_ = relaxed.failure
        self.fitted_C_ = relaxed.C
        self.dropped_ = relaxed.dropped
        self.samples_ = fingerprint(X, signs)
        self.dual_coef_ = (signs * self.solution_.alpha)[None, self.support_]
        if self.on_failure == "raise":
            self.solution_.raise_for_status()
        if relaxed.message:
            warnings.warn(relaxed.message, ConvergenceWarning, stacklevel=2)
        return self

    @property
    def coef_(self) -> Array:
        """Coefficients zeta of each gate column, shape (M, D)."""
        return self.solution_.coef

    @property
    def support_(self) -> NDArray[np.int64]:
        """Indices of the support vectors, shape (n_support,)."""
        return self.solution_.support

    @property
    def group_norms_(self) -> Array:
        """||zeta_g|| of each group, shape (G,): which hidden units the norm keeps."""
        return self.solution_.group_scale

    @property
    def n_iter_(self) -> int:
        """Iterations of the solver, at least 1."""
        return max(1, self.solution_.stats.iterations)

    def margin_view(self) -> MarginView:
        """Structure, coefficients and solution."""
        check_is_fitted(self)
        return MarginView(
            self.structure_,
            self.coef_,
            self.solution_,
            self.fitted_C_,
            self.dropped_,
            self.samples_,
        )

    def history(self) -> tuple[HistoryPoint, ...]:
        """Nothing was trained."""
        return ()

    def _decide(self, X: Array) -> Array:
        return self.structure_.decision(X, self.coef_)


class GatedSVC(_MarginSVC):
    """SVM under the group norm of any gating; without a gating, the linear SVM.

    Parameters
    ----------
    gating : Gating or None
        Gates and groups; None is the constant gate 1.
    metric : mapping from group to ndarray, optional
        See `MarginProblem`.
    C : float
        Weight of the hinge loss; inf is the hard margin.
    solver : str
        "auto", "interior-point", "working-set", "active-set", "ecos", "osqp", "clarabel" or "scs".
    tol : float
        Relative gap between the certified bounds.
    device : str
        Where the native solvers compute.
    on_failure : {"raise", "warn", "soft", "drop"}
        What to do where the solve does not end optimal; see `solve_relaxed`.
    soft_C : float or None
        C of the soft margin that "soft" and "drop" then solve; None is 100 over the root mean
        square of the feature norms.
    """

    def __init__(
        self,
        gating: Gating | None = None,
        *,
        metric: dict[int, Array] | None = None,
        C: float = np.inf,
        solver: str = "auto",
        tol: float = 1e-6,
        device: str = "cpu",
        on_failure: OnFailure = "raise",
        soft_C: float | None = None,
    ) -> None:
        self.gating = gating
        self.metric = metric
        self.C = C
        self.solver = solver
        self.tol = tol
        self.device = device
        self.on_failure = on_failure
        self.soft_C = soft_C

    def _structure(self, X: Array) -> Structure:
        gating = NoGates(X.shape[1]) if self.gating is None else self.gating
        if not isinstance(gating, Gating):
            raise ValueError(
                f"gating must be a Gating, such as UnitGates(weights, thresholds), got a "
                f"{type(gating).__name__}: gates of given samples alone go into a MarginProblem"
            )
        return Structure(gating, metric=self.metric)


class GLNSVC(_MarginSVC):
    """Where a gated linear network goes: SVM-GLN (norm="gln") or SVM-L2 (norm="l2").

    With one unit both are the shallow GLN, whose contexts that no training sample is in
    predict 0.

    Parameters
    ----------
    n_units, n_hyperplanes : int
        H hidden units, each with C = 2^k contexts cut by k hyperplanes.
    norm : {"gln", "l2"}
        Sum of the units' norms, or the exact ||beta||_2 over all joint contexts.
    threshold : {"median", "random", "zero"} or array of shape (H, k)
        See `HyperplaneContexts.random`; the median is that of the training inputs.
    C, solver, tol, device, on_failure, soft_C
        As in `GatedSVC`.
    random_state : int, Generator, RandomState or None
        Seed of the hyperplanes; `GLNClassifier` draws the same ones from the same seed.
    contexts : HyperplaneContexts, optional
        Contexts to use instead of drawing any; the parameters that would shape them are then
        ignored.
    """

    def __init__(
        self,
        n_units: int = 50,
        n_hyperplanes: int = 1,
        norm: Literal["gln", "l2"] = "gln",
        threshold: Threshold = "median",
        C: float = np.inf,
        solver: str = "auto",
        tol: float = 1e-6,
        device: str = "cpu",
        random_state: RandomState = None,
        *,
        contexts: HyperplaneContexts | None = None,
        on_failure: OnFailure = "raise",
        soft_C: float | None = None,
    ) -> None:
        self.n_units = n_units
        self.n_hyperplanes = n_hyperplanes
        self.norm = norm
        self.threshold = threshold
        self.C = C
        self.solver = solver
        self.tol = tol
        self.device = device
        self.random_state = random_state
        self.contexts = contexts
        self.on_failure = on_failure
        self.soft_C = soft_C

    def _structure(self, X: Array) -> Structure:
        if self.norm not in ("gln", "l2"):
            raise ValueError(f"norm must be 'gln' or 'l2', got {self.norm!r}")
        contexts = self.contexts or HyperplaneContexts.random(
            X,
            self.n_units,
            self.n_hyperplanes,
            threshold=self.threshold,
            random_state=_generator(self.random_state),
        )
        if contexts.n_units == 1:
            return Structure(GlobalContexts.collapse(contexts, X))
        if self.norm == "gln":
            return Structure(contexts)
        one_group = np.zeros_like(contexts.groups)
        return Structure(contexts, one_group, {0: l2_metric(contexts.n_units, contexts.n_contexts)})


class GatedReLUSVC(_MarginSVC):
    """Where a ReLU network with frozen gates goes: SVM-RC, or SVM-LC for learned gates.

    Parameters
    ----------
    n_units : int
        H; with random gates.
    gates : "random", or a network or classifier with a ``gating()``
        Random gates are SVM-RC; those of a trained network are SVM-LC. In grid searches and
        cross-validation pass ``classifier.network_``: scikit-learn un-fits a classifier that it
        clones.
    always_on : bool
        Append a unit that is always on to random gates, so that no sample has all gates off.
    C, solver, tol, device, on_failure, soft_C
        As in `GatedSVC`.
    random_state : int, Generator, RandomState or None
        Seed of random gates.
    init : {"normal", "orthogonal"}
        Directions of random gates.
    threshold : {"median", "random", "zero"} or array of shape (H,)
        Thresholds of random gates.
    """

    def __init__(
        self,
        n_units: int = 50,
        gates: Literal["random"] | HasGating = "random",
        always_on: bool = True,
        C: float = np.inf,
        solver: str = "auto",
        tol: float = 1e-6,
        device: str = "cpu",
        random_state: RandomState = None,
        *,
        init: Literal["normal", "orthogonal"] = "normal",
        threshold: Threshold = "median",
        on_failure: OnFailure = "raise",
        soft_C: float | None = None,
    ) -> None:
        self.n_units = n_units
        self.gates = gates
        self.always_on = always_on
        self.C = C
        self.solver = solver
        self.tol = tol
        self.device = device
        self.random_state = random_state
        self.init = init
        self.threshold = threshold
        self.on_failure = on_failure
        self.soft_C = soft_C

    def _structure(self, X: Array) -> Structure:
        if isinstance(self.gates, HasGating):
            return Structure(self.gates.gating())
        if isinstance(self.gates, str) and self.gates == "random":
            gating = UnitGates.random(
                X,
                self.n_units,
                init=self.init,
                threshold=self.threshold,
                always_on=self.always_on,
                random_state=_generator(self.random_state),
            )
            return Structure(gating)
        raise ValueError(
            "gates must be 'random', or a network or classifier with gates of its own, got a "
            f"{type(self.gates).__name__}: other gatings go into GatedSVC"
        )


class HiddenLayerSVC(_MarginSVC):
    """SVM-HL: a linear SVM on the hidden activations of a network.

    Parameters
    ----------
    network : network or classifier with ``hidden_activations(X)``, or None
        None is the linear SVM on the inputs. In grid searches and cross-validation pass
        ``classifier.network_``: scikit-learn un-fits a classifier that it clones.
    C, solver, tol, device, on_failure, soft_C
        As in `GatedSVC`.

    Notes
    -----
    ``coef_`` has shape (1, H): one weight a hidden unit.
    """

    def __init__(
        self,
        network: HasHiddenLayer | None = None,
        *,
        C: float = np.inf,
        solver: str = "auto",
        tol: float = 1e-6,
        device: str = "cpu",
        on_failure: OnFailure = "raise",
        soft_C: float | None = None,
    ) -> None:
        self.network = network
        self.C = C
        self.solver = solver
        self.tol = tol
        self.device = device
        self.on_failure = on_failure
        self.soft_C = soft_C

    def _structure(self, X: Array) -> Structure:
        if self.network is None:
            return Structure(NoGates(X.shape[1]))
        n_hidden = self.network.hidden_activations(X[:1]).shape[1]
        return Structure(NoGates(n_hidden), representation=self.network)


class _NetworkClassifier(BinaryClassifier, ABC):
    """A classifier that trains one network; subclasses say which.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes; the second is the positive one.
    training_ : TrainingResult or LimitResult
        The trained network, and loss, error, smallest margin and norm at chosen steps.
    checkpoints_ : dict from int to Network
        Copies of the network as it was at the steps in ``checkpoints``.
    """

    training_: TrainingResult | LimitResult
    checkpoints_: dict[int, Network]
    steps: int
    batch_size: int | None
    learning_rate: float
    momentum: float
    loss: Literal["logistic", "exponential"]
    rule: Literal["gradient", "local"] = "gradient"
    checkpoints: tuple[int, ...] = ()
    dtype: Literal["float32", "float64"]
    device: str
    random_state: RandomState
    progress: bool

    @abstractmethod
    def _network(self, X: Array, seed: int) -> Network:
        """Build the network for training inputs (n, D)."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the network for the training inputs (n, D) and train it on labels (n,).

        Raises
        ------
        ValueError
            NaN, one class, more than two classes, parameters out of range.
        TrainingDiverged
            The loss is not finite any more.
        """
        from implicit_bias.training import TrainingConfig, train

        X, signs, network, seed = self._prepare(X, y)
        config = TrainingConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            loss=self.loss,
            rule=self.rule,
            seed=seed,
        )
        if not all(0 <= step <= self.steps for step in self.checkpoints):
            raise ValueError(
                f"checkpoints must be steps from 0 to {self.steps}, got {self.checkpoints}"
            )
        steps = tuple(sorted({*config.recorded_steps(), *self.checkpoints}))
        self.checkpoints_ = {}

        def keep(point: HistoryPoint) -> None:
            if point.step in self.checkpoints:
                self.checkpoints_[point.step] = deepcopy(network)

        config = replace(config, record=steps)
        self.training_ = train(network, X, signs, config, progress=self.progress, record=keep)
        return self._warned()

    def fit_by(self, X: ArrayLike, y: ArrayLike, trainer: Trainer) -> Self:
        """Build the network and train it in another way, towards its limit above all.

        The classifier's own ``steps``, ``batch_size``, ``learning_rate``, ``momentum``, ``loss``,
        ``rule`` and ``checkpoints`` do not count.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs.
        y : array_like of shape (n,)
            Two classes.
        trainer : callable
            Takes the network with its initial weights, inputs (n, D) and labels (n,) in {-1, +1},
            and returns the result: ``partial(train_to_limit, config=LimitConfig())``, say.

        Raises
        ------
        ValueError
            NaN, one class, more than two classes, parameters out of range.
        """
        X, signs, network, _ = self._prepare(X, y)
        self.checkpoints_ = {}
        self.training_ = trainer(network, X, signs)
        return self._warned()

    def _prepare(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Network, int]:
        """Return samples (n, D), labels (n,), the untrained network, and its weights' seed."""
        X, signs = self._validate(X, y)
        seed = int(_generator(self.random_state).integers(2**31))
        return X, signs, self._network(X, seed).to(as_device(self.device)), seed

    def _warned(self) -> Self:
        """Return the fitted classifier, with a warning if its training was interrupted."""
        if self.training_.interrupted:
            warnings.warn(
                f"training was interrupted after {self.n_iter_} of {self.training_.config.steps} "
                "steps; the network is kept as it is",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    @property
    def network_(self) -> Network:
        """The trained network."""
        return self.training_.network

    @property
    def n_iter_(self) -> int:
        """Gradient steps done."""
        return self.training_.steps

    def gating(self) -> Gating:
        """Gates that the network has now."""
        check_is_fitted(self, msg=UNFITTED_NETWORK)
        return self.network_.gating()

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Activations of the last hidden layer, shape (n, H)."""
        check_is_fitted(self, msg=UNFITTED_NETWORK)
        return self.network_.hidden_activations(X)

    def margin_view(self) -> MarginView | None:
        """Gates and zeta of a network of one hidden layer (a readout bias is left out)."""
        check_is_fitted(self)
        if not self.network_.has_margin_structure:
            return None
        structure = Structure(self.network_.gating())
        return MarginView(structure, self.network_.coef(), local=self.training_.local)

    def history(self) -> tuple[HistoryPoint, ...]:
        """Loss, error, smallest margin and norm at chosen steps."""
        check_is_fitted(self)
        return self.training_.history

    def _decide(self, X: Array) -> Array:
        return self.network_.decision(X)


class GLNClassifier(_NetworkClassifier):
    """A gated linear network, trained by gradient descent or unit by unit.

    Parameters
    ----------
    n_units : int or sequence of int
        Hidden units; a sequence has one entry a hidden layer.
    n_hyperplanes, threshold
        As in `GLNSVC`.
    steps, batch_size, learning_rate, momentum, loss
        As in `TrainingConfig`.
    rule : {"gradient", "local"}
        Gradient descent on the network's loss, or local learning: each unit predicts the class
        by online logistic regression on the outputs of the layer before it, as GLNs are usually
        trained (Veness et al. 2017, 2021; online is ``batch_size=1``).
    readout_bias : bool
        Give the readout a bias, as the published protocol does; it breaks homogeneity.
    dtype : {"float32", "float64"}
        Precision of the network.
    device : str
        Where torch computes.
    random_state : int, Generator, RandomState or None
        Seed of hyperplanes, weights and batches; `GLNSVC` draws the same hyperplanes from it.
    contexts : HyperplaneContexts, optional
        Contexts of one hidden layer to use instead of drawing any.
    progress : bool
        Show a progress bar on standard error.
    """

    def __init__(
        self,
        n_units: int | Sequence[int] = 50,
        n_hyperplanes: int = 1,
        threshold: Threshold = "median",
        *,
        steps: int = 3200,
        batch_size: int | None = 128,
        learning_rate: float = 0.04,
        momentum: float = 0.0,
        loss: Literal["logistic", "exponential"] = "logistic",
        rule: Literal["gradient", "local"] = "gradient",
        readout_bias: bool = False,
        dtype: Literal["float32", "float64"] = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        contexts: HyperplaneContexts | None = None,
        progress: bool = False,
    ) -> None:
        self.n_units = n_units
        self.n_hyperplanes = n_hyperplanes
        self.threshold = threshold
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.loss = loss
        self.rule = rule
        self.readout_bias = readout_bias
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.contexts = contexts
        self.progress = progress

    def _network(self, X: Array, seed: int) -> Network:
        from implicit_bias.networks import GLN

        if self.contexts is not None:
            layers = [self.contexts]
        else:
            # The first layer draws what `GLNSVC` draws from the same seed.
            rng = _generator(self.random_state)
            layers = [
                HyperplaneContexts.random(
                    X, width, self.n_hyperplanes, threshold=self.threshold, random_state=rng
                )
                for width in np.atleast_1d(self.n_units).tolist()
            ]
        return GLN(layers, readout_bias=self.readout_bias, dtype=_dtype(self.dtype), seed=seed)


class ReLUClassifier(_NetworkClassifier):
    """A ReLU network without bias units, trained by gradient descent.

    Parameters
    ----------
    n_units : int or sequence of int
        Hidden units; a sequence has one entry a hidden layer.
    steps, batch_size, learning_rate, momentum, loss
        As in `TrainingConfig`.
    dtype, device, random_state, progress
        As in `GLNClassifier`.
    checkpoints : tuple of int
        Steps at which to keep a copy of the network, in ``checkpoints_``: for SVM-LC with the
        gates of that time, pass ``gates=classifier.checkpoints_[step]`` to `GatedReLUSVC`.
    """

    def __init__(
        self,
        n_units: int | Sequence[int] = 50,
        *,
        steps: int = 3200,
        batch_size: int | None = 128,
        learning_rate: float = 0.04,
        momentum: float = 0.0,
        loss: Literal["logistic", "exponential"] = "logistic",
        dtype: Literal["float32", "float64"] = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        progress: bool = False,
        checkpoints: tuple[int, ...] = (),
    ) -> None:
        self.n_units = n_units
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.loss = loss
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.progress = progress
        self.checkpoints = checkpoints

    def _network(self, X: Array, seed: int) -> Network:
        from implicit_bias.networks import ReLUNetwork

        widths = np.atleast_1d(self.n_units).tolist()
        return ReLUNetwork(X.shape[1], widths, dtype=_dtype(self.dtype), seed=seed)


def _generator(random_state: RandomState) -> np.random.Generator:
    # A RandomState lends its bit generator, so that scikit-learn's seeds work as they are.
    bits = random_state._bit_generator if isinstance(random_state, np.random.RandomState) else None
    return np.random.default_rng(random_state if bits is None else bits)


def _dtype(name: str) -> torch.dtype:
    import torch

    if name not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {name!r}")
    return torch.float64 if name == "float64" else torch.float32
