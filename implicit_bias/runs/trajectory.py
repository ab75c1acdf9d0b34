"""When has a ReLU network finished choosing its contexts? SVM-LC along its training.

At chosen steps the gates of the network are taken as they are then, and the SVM with these gates
is solved. Its certified optimum, its error and its disagreement with the network say how much of
the network's generalization lies in the contexts that it has learned by then, and how much in
the weights on top of them. Where the gates of some step leave samples that no coefficients can
separate, these are left out, and counted.

Source: Lippl, Abbott, Chung (2022), section 5, for SVM-LC. The trajectory is not in the
paper; derived here.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from implicit_bias.estimators.networks import ReLUClassifier
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data
from implicit_bias.runs.models import ModelFactory

STEPS = (0, 10, 30, 100, 300, 1000, 3200)


@dataclass(frozen=True)
class TrajectoryPoint:
    """SVM-LC with the gates of one step, on the validation samples.

    Attributes
    ----------
    step : int
        The step at which the gates were taken.
    gates_changed : float
        Share of (training sample, unit) gates that differ from step 0.
    gates_left : float
        Share of them that differ from the trained network.
    network_error : float
        Error of the network at that step.
    error : float
        Error of SVM-LC.
    optimum : float
        Certified lower bound on its norm.
    gap : float
        Relative gap of its certificate.
    dropped : int
        Training samples that no coefficients could classify together with the others.
    disagreement, disagreement_at_end : float
        With the network of that step, and with the trained network.
    status : str
        How the solve ended; errors and disagreements are nan where it found no predictor.
    """

    step: int
    gates_changed: float
    gates_left: float
    network_error: float
    error: float
    optimum: float
    gap: float
    dropped: int
    disagreement: float
    disagreement_at_end: float
    status: str


def context_trajectory(
    config: RunConfig, data: Data, steps: tuple[int, ...] = STEPS, *, progress: bool = False
) -> Iterator[TrajectoryPoint]:
    """Train the ``gd-relu`` of a configuration and solve SVM-LC with its gates at some steps.

    Parameters
    ----------
    config : RunConfig
        Data, width, seeds, training and solver.
    data : Data
        From `load_data`.
    steps : tuple of int
        When to take the gates; those beyond ``config.steps`` are left out.
    progress : bool
        Show a progress bar of the training on standard error.

    Yields
    ------
    TrajectoryPoint
        As soon as it is solved.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C, also where the training answered it with the network so far: its end is not known.
    """
    train, validation = data.parts.train, data.parts.validation
    factory = ModelFactory(replace(config, on_failure="drop"), data, progress=progress)
    asked = tuple(step for step in sorted(set(steps)) if 0 <= step <= config.steps)
    if not asked:
        raise ValueError(f"no step to take gates at: {steps}, of a training of {config.steps}")
    relu = factory.build("gd-relu").set_params(checkpoints=asked).fit(train.X, train.y)
    assert isinstance(relu, ReLUClassifier)
    if relu.training_.interrupted:
        raise KeyboardInterrupt
    changed = {point.step: point.gates_changed for point in relu.history()}
    at_end = relu.predict(validation.X)
    prepared = relu.network_.prepare(train.X)
    last_gates = relu.network_.gate_pattern(*prepared)
    for step, network in relu.checkpoints_.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the point counts what it left out
            svm = factory.build("svm-lc", network).fit(train.X, train.y)
        view = svm.margin_view()
        assert view is not None
        assert view.solution is not None
        solved = not view.solution.status.inseparable
        predicted = svm.predict(validation.X)
        then = relu.classes_of(network.decision(validation.X))
        right = validation.y
        yield TrajectoryPoint(
            step=step,
            gates_changed=changed[step],
            gates_left=(network.gate_pattern(*prepared) != last_gates).double().mean().item(),
            network_error=float(np.mean(then != right)),
            error=_share(predicted != right, solved),
            optimum=view.solution.certificate.lower,
            gap=view.solution.certificate.gap,
            dropped=len(view.dropped),
            disagreement=_share(predicted != then, solved),
            disagreement_at_end=_share(predicted != at_end, solved),
            status=view.solution.status.label,
        )


def _share(mask: NDArray[np.bool_], known: bool) -> float:
    return float(mask.mean()) if known else np.nan
