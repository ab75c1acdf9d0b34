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
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from implicit_bias.estimators.networks import ReLUClassifier
from implicit_bias.report.style import BLACK, BLUE, VERMILION
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
    config: RunConfig, data: Data, steps: tuple[int, ...] = STEPS
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

    Yields
    ------
    TrajectoryPoint
        As soon as it is solved.
    """
    train, validation = data.parts.train, data.parts.validation
    factory = ModelFactory(replace(config, on_failure="drop"), data)
    asked = tuple(step for step in steps if step <= config.steps)
    relu = factory.build("gd-relu").set_params(checkpoints=asked).fit(train.X, train.y)
    assert isinstance(relu, ReLUClassifier)
    if relu.training_.interrupted:  # by Ctrl-C, which training answers with the network so far
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


def trajectory_figure(frame: pd.DataFrame) -> Figure:
    """Draw SVM-LC with the gates of each step: errors, disagreement and gates, norm."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    errors, apart, norm = figure.subplots(1, 3)
    steps = frame["step"]
    curves = (
        (errors, "network_error", "o-", BLUE, "network"),
        (errors, "error", "^--", VERMILION, "SVM with its gates"),
        (apart, "disagreement", "o-", BLUE, "network of this step"),
        (apart, "disagreement_at_end", "^--", VERMILION, "trained network"),
        (apart, "gates_left", "s:", BLACK, "gates unlike the last ones"),
    )
    for ax, column, line, colour, label in curves:
        ax.plot(steps, 100 * frame[column], line, color=colour, label=label)
    norm.plot(steps, frame["optimum"], "^--", color=VERMILION, label="certified optimum")
    errors.set_ylabel("error, % of unseen samples")
    apart.set_ylabel("disagreement of the SVM, %")
    norm.set_ylabel("norm at margin 1")
    for step, optimum, dropped in frame[["step", "optimum", "dropped"]].itertuples(index=False):
        if dropped:
            norm.annotate(f"{dropped} left out", (step, optimum), fontsize=8)
    for ax in (errors, apart, norm):
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks(steps, [f"{step:,}" for step in steps], fontsize=8)
        ax.minorticks_off()
        ax.set_xlabel("step at which the gates are taken")
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=8.5)
    return figure
