"""Train a network towards t -> infinity beside the max-margin SVM that it converges to.

With fixed gates the network's margin problem does not change, and its solution is the limit of
training (unless the network is `Network.relaxed`). So the SVM is solved first: its certified lower
bound is what the network's norm exceeds, and its decisions are compared with the network's. A
network that trains its gates has no such problem, and is measured by its KKT residual alone.
Training under another norm than l2 has none either: it is measured by the KKT gap in that norm.
"""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from implicit_bias.base.options import DEFAULTS, SolverOptions
from implicit_bias.base.validation import Array
from implicit_bias.estimators.networks import NetworkClassifier
from implicit_bias.modules.stationarity import kkt_measure
from implicit_bias.networks import Network
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data
from implicit_bias.runs.models import ModelFactory
from implicit_bias.solvers import Solution, solve
from implicit_bias.training.history import OnProgress
from implicit_bias.training.limit import (
    ComparisonPredictor,
    LimitConfig,
    LimitResult,
    check_goals,
    train_to_limit,
)

# Samples up to which the multipliers of one of this package's networks take a second or two.
FEW_SAMPLES = 2000


def train_beside_svm(
    network: Network,
    X: Array,
    y: NDArray[Any],
    config: LimitConfig,
    *,
    compare_on: Array | None = None,
    solving: SolverOptions = DEFAULTS,
    until_excess: float | None = None,
    on_progress: OnProgress | None = None,
    **goals: Any,
) -> tuple[LimitResult, Solution | None]:
    """Solve the SVM of a network with fixed gates, then train the network towards it.

    Parameters
    ----------
    network : Network
        Trained in place.
    X : ndarray of shape (N, D)
        Training inputs.
    y : ndarray of shape (N,)
        Labels, -1 or +1; or 0 .. K - 1, of a network with an output for each class.
    config : LimitConfig
        How to train.
    compare_on : ndarray of shape (n, D), optional
        Inputs on which the decisions of network and SVM are compared; by default X.
    solving : SolverOptions
        How to solve the SVM.
    until_excess, on_progress, **goals
        As in `train_to_limit`; the goals are ``stop_at_gap`` alone.

    Returns
    -------
    trained : LimitResult
        Its training.
    solution : Solution or None
        The SVM of its gates; None where training changes them, where there are several hidden
        layers, or where it is no limit of the network (`Network.relaxed`, another norm than l2).

    Raises
    ------
    SolveError
        The SVM has no solution: the samples are not separable, say.
    ValueError
        An excess over an optimum that is not known; or see `train_to_limit`.
    """
    check_goals(until_excess, **goals)
    euclidean = config.geometry == PARAMETER_NORMS["l2"]
    has_svm = network.fixed_gates and network.has_margin_structure and not network.relaxed
    if until_excess is not None and not euclidean:
        raise ValueError(
            "until_excess is over the optimum of gradient descent's norm, l2, not of "
            f"{config.limit_norm}: use stop_at_gap"
        )
    if until_excess is not None and not has_svm:
        raise ValueError(
            "until_excess needs a network that converges to its SVM: one hidden layer of fixed "
            f"gates; this {type(network).__name__} can stop at a gap, or after a number of steps"
        )

    solution: Solution | None = None
    optimum: float | None = None
    reference: ComparisonPredictor | None = None
    if euclidean and has_svm:
        architecture = network.architecture()
        solution = solve(architecture.problem(X, y, classes=network.classes), *solving)
        solution.raise_for_status()
        # The lower bound: an excess over it is at least the true one.
        optimum = solution.certificate.lower
        inputs = X
        if compare_on is not None:
            inputs = compare_on
        reference = ComparisonPredictor(inputs, architecture.decision(inputs, solution.coef))

    measure = None
    if euclidean and len(y) <= FEW_SAMPLES:
        measure = kkt_measure(X, y)
    trained = train_to_limit(
        network,
        X,
        y,
        config,
        optimum=optimum,
        until_excess=until_excess,
        reference=reference,
        measure=measure,
        on_progress=on_progress,
        **goals,
    )
    return trained, solution


def fit_beside_svm(
    config: RunConfig, data: Data, limit: LimitConfig, **goals: Any
) -> tuple[NetworkClassifier, LimitResult]:
    """Train the one network of a configuration towards its limit.

    Parameters
    ----------
    config : RunConfig
        Data, architecture and solver; of ``models`` the first.
    data : Data
        From `load_data`; network and SVM are compared on its validation samples.
    limit : LimitConfig
        How to train.
    **goals
        When to stop, and ``on_progress``, as in `train_beside_svm`.

    Returns
    -------
    classifier : NetworkClassifier
        Fitted.
    trained : LimitResult
        Its training.

    Raises
    ------
    ValueError
        A network without such a limit; or see `train_beside_svm`.
    """
    config = replace(config, steps=limit.steps, batch_size=None)
    classifier = ModelFactory(config, data).build_network(config.models[0], homogeneous=True)

    def train(network: Network, X: Array, y: NDArray[Any]) -> LimitResult:
        trained, _ = train_beside_svm(
            network,
            X,
            y,
            limit,
            compare_on=data.parts.validation.X,
            solving=config.solving,
            **goals,
        )
        return trained

    samples = data.parts.train
    classifier.fit_by(samples.X, samples.y, train)
    assert isinstance(classifier.training_, LimitResult)
    return classifier, classifier.training_
