"""The numbers of one model of a comparison, and of one pair of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.counts import Count
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, Status
from implicit_bias.bounds.status import excess, norm_at_margin_1
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.modules import stationarity

if TYPE_CHECKING:
    from implicit_bias.training.history import HistoryPoint


@dataclass(frozen=True, eq=False)
class MarginResult:
    """A model as a solution of its margin problem on the training samples.

    Attributes
    ----------
    fitted : FittedMargin
        Its coefficients and, for an SVM, its solution.
    gates : int
        A number that models share if and only if they have the same gates and groups.
    problem : int
        A number that models share if and only if they solve the same optimization problem (gates,
        groups, norm, C, intercept).
    inseparable : bool
        Whether its margin is hard, and an SVM of the same gates has proven that nothing separates
        the samples.
    certificate : Certificate
        Bounds from the model's coefficients and, for an SVM, its dual variables.
    optimum : float
        Largest certified lower bound on the optimal norm among the compared models of the same
        problem; 0 where none has dual variables.
    unit_norms : ndarray of shape (G,)
        Norm of each group as a fraction of the whole norm.
    margins : ndarray of shape (N,)
        Normalized margin y_n (f(x_n) + b) / norm of each training sample; with many classes the
        smallest f_{y_n}(x_n) - f_k(x_n), offsets included, over the norm.
    """

    fitted: FittedMargin = field(repr=False)
    gates: int = field(repr=False)
    problem: int = field(repr=False)
    inseparable: bool
    certificate: Certificate
    optimum: float
    unit_norms: Array = field(repr=False)
    margins: Array = field(repr=False)

    @property
    def min_margin(self) -> float:
        """Smallest normalized margin: with a hard margin at most 1 / optimum.

        Negative where a sample is misclassified.
        """
        return float(self.margins.min())

    @property
    def norm(self) -> float:
        """Norm at unit margin (with C finite: the primal value); inf where not separated."""
        return self.certificate.upper

    @property
    def gap(self) -> float:
        """Relative duality gap of the certificate."""
        return self.certificate.gap

    @property
    def units(self) -> int:
        """Groups in the norm."""
        return len(self.unit_norms)

    @property
    def excess(self) -> float:
        """Relative suboptimality: norm / optimum - 1; nan where no optimum is known."""
        return excess(self.norm, self.optimum)

    def excess_at(self, point: HistoryPoint) -> float:
        """Excess at a point of the history; nan where the network did not separate its samples."""
        # A point has norm and margin of the weights as they were at that step.
        if point.min_margin <= 0:
            return np.nan
        return excess(norm_at_margin_1(point.norm, point.min_margin), self.optimum)

    @property
    def largest_margin(self) -> float | None:
        """1 / optimum, an upper bound on the normalized margin of every predictor of this problem.

        None where the optimum is not known, is one of a soft margin, or nothing separates.
        """
        if self.inseparable or not self.hard_margin or not 0 < self.optimum < np.inf:
            return None
        # A margin over its norm is 1 / (norm at unit margin), which is at most 1 / (minimum norm).
        # The optimum is a lower bound on that minimum.
        return 1.0 / self.optimum

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which groups (G,) are nonzero.

        For an SVM by its multipliers, for a network those with at least 1 % of the largest norm.
        """
        if self.fitted.solution is None:
            # A network has no multipliers, and gradient descent takes no unit to exactly 0.
            return stationarity.active_units(self.unit_norms)
        return self.fitted.solution.active

    @property
    def active_units(self) -> int:
        """Number of active groups."""
        return int(np.count_nonzero(self.active))

    @property
    def support_vectors(self) -> int | None:
        """Number of support vectors, for an SVM that separates its training samples."""
        if self.fitted.solution is None or not self.fitted.has_predictor:
            return None
        return len(self.fitted.support)

    @property
    def status(self) -> Status | None:
        """How the solve ended, for an SVM."""
        if self.fitted.solution is None:
            return None
        return self.fitted.solution.status

    @property
    def C(self) -> float | Array:
        """Weight of the hinge loss in the problem, or of each sample's."""
        return self.fitted.C

    @property
    def hard_margin(self) -> bool:
        """Whether C is infinite."""
        return bool(np.isinf(self.C).all())

    @property
    def dropped(self) -> int:
        """Training samples left out, because they cannot be separated with the rest."""
        return len(self.fitted.dropped)


@dataclass(frozen=True, eq=False)
class ModelResult:
    """One model of a comparison.

    Attributes
    ----------
    name : str
        As the user called it.
    fitted : FittedMargin or None
        The model as a solution of a margin problem; None for a model that is none.
    margin : MarginResult or None
        The same on the training samples; None also where these were not given.
    history : tuple of HistoryPoint
        Training history of a network; empty for an SVM.
    planned_steps : int
        Steps that a network was to be trained for; 0 for an SVM.
    interrupted : bool
        See `is_interrupted`.
    predicted : ndarray of shape (n,)
        The class that it gives each test sample; None where it is undecided.
    wrong : ndarray of bool, shape (n,)
        The misclassified test samples; f(x) = 0, or two largest f_k(x), counts as wrong. Empty
        without a predictor.
    train_wrong : Count or None
        How many of the training samples; None where these were not given, or without a predictor.
    scores : mapping from class to ndarray of shape (n,)
        Decision values of the test samples; empty for a classifier of another package.
    """

    name: str
    fitted: FittedMargin | None = field(repr=False)
    margin: MarginResult | None
    history: tuple[HistoryPoint, ...] = field(default=(), repr=False)
    planned_steps: int = 0
    interrupted: bool = False
    predicted: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=object), repr=False)
    wrong: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)
    train_wrong: Count | None = None
    scores: Mapping[Any, Array] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> Count:
        """How many of the test samples are misclassified."""
        return Count(int(np.count_nonzero(self.wrong)), len(self.wrong))

    @property
    def error(self) -> float:
        """Error rate on the test samples.

        nan for an SVM that found no predictor, because its training samples are not separable.
        """
        return self.count.share

    @property
    def train_error(self) -> float:
        """Error rate on the training samples; nan where they were not given."""
        if self.train_wrong is None:
            return np.nan
        return self.train_wrong.share

    @property
    def excess(self) -> float:
        """Relative suboptimality of the norm at unit margin; nan where it is not known."""
        if self.margin is None:
            return np.nan
        return self.margin.excess

    @property
    def steps(self) -> int:
        """Steps that a network was trained for; 0 for an SVM."""
        if not self.history:
            return 0
        return self.history[-1].step

    @property
    def known_margin(self) -> MarginResult:
        """`margin`, of a model that has one.

        Raises
        ------
        ValueError
            It has none.
        """
        if self.margin is None:
            raise ValueError(f"{self.name} has no margin on training samples")
        return self.margin

    @property
    def has_predictor(self) -> bool:
        """False for an SVM that has proven its training samples not separable."""
        # A classifier of another package predicts, whatever its problem is.
        return self.fitted is None or self.fitted.has_predictor

    @property
    def inseparable(self) -> bool:
        """Whether it has a hard-margin problem, proven to have no solution."""
        return self.margin is not None and self.margin.inseparable

    @property
    def soft_margin(self) -> bool:
        """Whether it is a solution of a problem with a finite C."""
        return self.margin is not None and not self.margin.hard_margin

    @property
    def gates_moved(self) -> bool:
        """Whether training changed any gate, so that the problem is that of the last step only."""
        return any(point.gates_changed > 0 for point in self.history)

    def row(self) -> dict[str, Any]:
        """Return the scalars of a table of models."""
        # A key that no model has makes no column. A model without a key has an empty cell.
        row: dict[str, Any] = {
            "model": self.name,
            "error": self.error,
            "train_error": self.train_error,
            "interrupted": self.interrupted,
        }
        if self.history:
            row |= {"steps": self.steps, "planned_steps": self.planned_steps}
        if self.margin is not None:
            status = None
            if self.margin.status is not None:
                status = self.margin.status.label
            row |= {
                "min_margin": self.margin.min_margin,
                "norm": self.margin.norm,
                "optimum": self.margin.optimum,
                "excess": self.margin.excess,
                "gap": self.margin.gap,
                "units": self.margin.units,
                "active_units": self.margin.active_units,
                "support_vectors": self.margin.support_vectors,
                "C": float(np.min(self.margin.C)),  # the least, where each sample has its own
                "dropped": self.margin.dropped,
                "status": status,
            }
        return row


def first_svm(models: Iterable[ModelResult]) -> ModelResult | None:
    """Return the first SVM among models that have a margin; None if there is none."""
    return next((model for model in models if model.known_margin.status is not None), None)


@dataclass(frozen=True)
class PairResult:
    """Two models on the test samples.

    Attributes
    ----------
    first, second : str
        Their names.
    disagreement : float
        Fraction of samples on which their predictions differ; nan, like the rest, where one of
        them has no predictor.
    by_chance : float
        Disagreement of independent models with these error rates; see `compare`.
    """

    first: str
    second: str
    disagreement: float
    by_chance: float
