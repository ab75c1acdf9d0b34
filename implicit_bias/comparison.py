"""Compare classifiers: errors, disagreement beyond chance, and how far each is from the limit.

On the evaluation samples: the error p of each model; for each pair the disagreement, the
disagreement expected by chance of independent models with these errors, their ratio, and Cohen's
kappa. With K classes chance gives

    p (1 - q) + q (1 - p) + p q (K - 2) / (K - 1),

the last term for two wrong answers that differ, each spread evenly over the K - 1 wrong classes;
with K = 2 it is 0.

On the training samples, for the models with a margin problem (SVMs, and networks of one hidden
layer): the smallest margin at norm 1, the norm at margin 1, its excess over the certified optimum
of that program, active units, and support vectors.

Source: Lippl, Abbott, Chung (2022), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from html import escape
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from implicit_bias.base.counts import CONFIDENCE, Count, PairedDifference
from implicit_bias.base.validation import Array, labels_of_any_type
from implicit_bias.base.wording import UNKNOWN, html_table, percent, percent_range, text_table
from implicit_bias.bounds.certificate import Certificate, Status, certify
from implicit_bias.bounds.status import excess, norm_at_margin_1
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin, dense
from implicit_bias.estimators.networks import NetworkClassifier
from implicit_bias.estimators.svm import GatedReLUSVC, HiddenLayerSVC
from implicit_bias.modules.stationarity import active_units
from implicit_bias.norms import Norm
from implicit_bias.problem import C_in_words, MarginProblem

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from implicit_bias.datasets.dataset import Split
    from implicit_bias.estimators.networks import AnyTraining
    from implicit_bias.training.history import HistoryPoint


# What a table of models has of each margin.
MARGIN_COLUMNS = (
    *("min_margin", "norm", "optimum", "excess", "gap", "units", "active_units"),
    *("support_vectors", "C", "dropped"),
)


# Columns of a table of predictions beside those of the models.
TRUE, DIFFER = "true label", "models differ"


@runtime_checkable
class Predicts(Protocol):
    """Any fitted scikit-learn classifier."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input."""


@runtime_checkable
class Searched(Protocol):
    """A search such as scikit-learn's GridSearchCV, which predicts by the best that it found."""

    best_estimator_: Predicts


@dataclass(frozen=True, eq=False)
class MarginResult:
    """A model as a solution of its margin problem on the training samples.

    Attributes
    ----------
    fitted : FittedMargin
        Its coefficients and, for an SVM, its solution.
    gates : int
        Equal for models that have the same gates and groups.
    program : int
        Equal for models that solve one and the same program (gates, groups, metric, C, intercept).
    inseparable : bool
        Whether its program is one of a hard margin, and an SVM of the same gates has proven that
        nothing separates the samples.
    certificate : Certificate
        Bounds from the model's coefficients and, for an SVM, its dual variables.
    optimum : float
        Largest certified lower bound on the optimal norm among the compared models of the same
        program; 0 where none has dual variables.
    unit_norms : ndarray of shape (G,)
        Share of each group in the norm.
    margins : ndarray of shape (N,)
        y_n (f(x_n) + b) / norm of each training sample in the program; with many classes the
        smallest f_{y_n}(x_n) - f_k(x_n), offsets included, over the norm.
    """

    fitted: FittedMargin = field(repr=False)
    gates: int = field(repr=False)
    program: int = field(repr=False)
    inseparable: bool
    certificate: Certificate
    optimum: float
    unit_norms: Array = field(repr=False)
    margins: Array = field(repr=False)

    @property
    def min_margin(self) -> float:
        """Smallest of the margins over the norm: with a hard margin at most 1 / optimum.

        Negative where a sample is misclassified.
        """
        return float(self.margins.min())

    @property
    def norm(self) -> float:
        """Norm at smallest margin 1 (with C finite: the primal value); inf where not separated."""
        return self.certificate.upper

    @property
    def gap(self) -> float:
        """Relative gap of the certificate."""
        return self.certificate.gap

    @property
    def units(self) -> int:
        """Groups in the norm."""
        return len(self.unit_norms)

    @property
    def excess(self) -> float:
        """Norm / optimum - 1; nan where no optimum is known."""
        return excess(self.norm, self.optimum)

    def excess_at(self, point: HistoryPoint) -> float:
        """Excess at a point of the history; nan where the network did not separate its samples."""
        if point.min_margin <= 0:
            return np.nan
        return excess(norm_at_margin_1(point.norm, point.min_margin), self.optimum)

    @property
    def largest_margin(self) -> float | None:
        """1 / optimum: no predictor of this program has a larger smallest margin.

        None where the optimum is not known, is one of a soft margin, or nothing separates.
        """
        known = not self.inseparable and self.hard_margin and 0 < self.optimum < np.inf
        return 1.0 / self.optimum if known else None

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which groups (G,) the norm has not switched off.

        For an SVM by its multipliers, for a network those with at least 1 % of the largest norm.
        """
        solution = self.fitted.solution
        return active_units(self.unit_norms) if solution is None else solution.active

    @property
    def active_units(self) -> int:
        """How many these are."""
        return int(np.count_nonzero(self.active))

    @property
    def support_vectors(self) -> int | None:
        """Their number, for an SVM that separates its training samples."""
        is_solved = self.fitted.solution is not None and self.fitted.has_predictor
        return len(self.fitted.support) if is_solved else None

    @property
    def status(self) -> Status | None:
        """How the solve ended, for an SVM."""
        return None if self.fitted.solution is None else self.fitted.solution.status

    @property
    def C(self) -> float | Array:
        """Weight of the hinge loss in the program, or of each sample's."""
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
    unseen : int
        Evaluation samples in a context (of one unit at least) that no training sample was in.
    planned_steps : int
        Steps that a network was to be trained for; 0 for an SVM.
    interrupted : bool
        See `is_interrupted`.
    predicted : ndarray of shape (n,)
        The class that it gives each evaluation sample; None where it is undecided.
    wrong : ndarray of bool, shape (n,)
        The evaluation samples on the wrong side; f(x) = 0, or two largest f_k(x), counts as wrong.
        Empty without a predictor.
    train_wrong : Count or None
        How many of the training samples; None where these were not given, or without a predictor.
    transformed : bool
        Whether it is a pipeline: margins, norms and gates are then those of its last step, on the
        inputs that the steps before make.
    scores : mapping from class to ndarray of shape (n,)
        What it gives each evaluation sample, see `scores_of`; empty for another package's.
    """

    name: str
    fitted: FittedMargin | None = field(repr=False)
    margin: MarginResult | None
    history: tuple[HistoryPoint, ...] = field(repr=False)
    unseen: int = 0
    planned_steps: int = 0
    interrupted: bool = False
    predicted: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=object), repr=False)
    wrong: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)
    train_wrong: Count | None = None
    transformed: bool = False
    scores: Mapping[Any, Array] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> Count:
        """How many of the evaluation samples are on the wrong side."""
        return Count(int(np.count_nonzero(self.wrong)), len(self.wrong))

    @property
    def error(self) -> float:
        """Share of the evaluation samples on the wrong side.

        nan for an SVM that found no predictor, because its training samples are not separable.
        """
        return self.count.share

    @property
    def train_error(self) -> float:
        """The same on the training samples; nan where they were not given."""
        return np.nan if self.train_wrong is None else self.train_wrong.share

    @property
    def steps(self) -> int:
        """Steps that a network was trained for; 0 for an SVM."""
        return self.history[-1].step if self.history else 0

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
        return self.fitted is None or self.fitted.has_predictor

    @property
    def inseparable(self) -> bool:
        """Whether it has a program of a hard margin, proven to have no solution."""
        return self.margin is not None and self.margin.inseparable

    @property
    def gates_moved(self) -> bool:
        """Whether training changed any gate, so that the program is that of the last step only."""
        return any(point.gates_changed > 0 for point in self.history)


@dataclass(frozen=True)
class PairResult:
    """Two models on the evaluation samples.

    Attributes
    ----------
    first, second : str
        Their names.
    disagreement : float
        Share of samples on which their predictions differ; nan, like the rest, where one of them
        has no predictor.
    by_chance : float
        What independent models of these errors would show; see the module's head.
    ratio : float
        disagreement / by_chance; nan where both models make no error.
    kappa : float
        Cohen's kappa of the predictions; nan where both predict one same class throughout.
    """

    first: str
    second: str
    disagreement: float
    by_chance: float
    ratio: float
    kappa: float


@dataclass(frozen=True, eq=False)
class Compared:
    """What a comparison is of: models and samples, as they were given to `compare`."""

    models: Mapping[str, Predicts]
    X: ArrayLike
    y: ArrayLike
    train: tuple[ArrayLike, ArrayLike] | None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of `compare`: printed, a short table and what follows from it.

    `report` writes a page, `plot` draws it.

    Attributes
    ----------
    models : tuple of ModelResult
        In the order given.
    pairs : tuple of PairResult
        Each pair once.
    n_samples : int
        Evaluation samples.
    n_train : int
        Training samples; 0 where they were not given.
    classes : ndarray of shape (K,)
        All classes that a label, a prediction or a model of this package has, sorted.
    of : Compared
        The models and samples.
    own : Split or None
        The samples where they are of a file of the user's own: errors come first then.

    Examples
    --------
    >>> from implicit_bias import MaxMarginSVC, compare
    >>> from implicit_bias.datasets import make_toy
    >>> blobs = make_toy("blobs", 40)
    >>> svms = {norm: MaxMarginSVC(norm).fit(blobs.X, blobs.y) for norm in ("l2", "linf")}
    >>> result = compare(svms, blobs.X, blobs.y)
    >>> result
    Comparison(l2, linf; 40 samples)
    >>> result.agreement("l2", "linf")
    Count(count=40, total=40)
    """

    models: tuple[ModelResult, ...]
    pairs: tuple[PairResult, ...]
    n_samples: int
    n_train: int
    classes: NDArray[Any]
    of: Compared
    own: Split | None = None

    @property
    def many_classes(self) -> bool:
        """Whether there are more than two."""
        return len(self.classes) > 2

    def __repr__(self) -> str:
        names = ", ".join(model.name for model in self.models)
        return f"Comparison({names}; {self.n_samples} samples)"

    def __str__(self) -> str:
        return "\n".join((text_table(*self._short_table()), "", *self._headlines()))

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(headline)}</p>" for headline in self._headlines())
        return html_table(*self._short_table()) + said

    @property
    def held_out(self) -> bool | None:
        """Whether the evaluation samples are others than the training samples; None if unknown."""
        if self.of.train is None:
            return None
        import pandas as pd

        train: Any = self.of.train[0]
        given: Any = self.of.X
        if np.shape(train) != np.shape(given):
            return True
        if sp.issparse(train) and sp.issparse(given):  # nan, a missing value, is not itself
            return bool((train != given).nnz > (train != train).multiply(given != given).nnz)
        one, other = (pd.Series(np.asarray(dense(inputs)).ravel()) for inputs in (train, given))
        return not ((one == other) | (one.isna() & other.isna())).all()

    def _headlines(self) -> list[str]:
        """Say what follows: a sentence for each trained network, or one for all models."""
        from implicit_bias import report  # words and pictures know comparisons: here only

        return [said.title for said in report.conclusions(self)]

    def _short_table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of what matters first: distance from the limit, and errors."""
        headings = ["model", "excess", "error", "wrong", f"{100 * CONFIDENCE:.0f} % interval"]
        return headings, [_short_row(model) for model in self.models]

    def report(
        self, folder: str | Path, *, title: str | None = None, data_name: str = "own data"
    ) -> Path:
        """Write the comparison as one self-contained page, with tables and figures beside it.

        Parameters
        ----------
        folder : str or Path
            Where to write; made if need be. An earlier report there is replaced.
        title : str, optional
            Heading of the page; by default the data and the models.
        data_name : str
            How the page calls the data.

        Returns
        -------
        Path
            The page, ``folder/report.html``.

        Raises
        ------
        ValueError
            The inputs are not numbers: where a pipeline encodes text, compare its last step on
            encoded inputs.
        FileExistsError
            The folder has files of these names that belong to no report.
        """
        from implicit_bias import report

        return report.report_on(self, folder, title=title, data_name=data_name)

    def plot(self) -> Figure:
        """Draw errors with their intervals and, where known, the excess over the optimum.

        Returns
        -------
        matplotlib Figure
            Of this function's own; no window opens, and pyplot does not know it.
        """
        from implicit_bias import report

        return report.overview(self)

    def model(self, name: str) -> ModelResult:
        """Return the model of this name; KeyError, which says all names, if there is none."""
        models = {model.name: model for model in self.models}
        if not (isinstance(name, str) and name in models):
            raise KeyError(f"no model is called {name!r}: there are {', '.join(models)}")
        return models[name]

    def pair(self, first: str, second: str) -> PairResult:
        """Return the pair of these names, in either order; KeyError if there is none."""
        names = frozenset(self.model(name).name for name in (first, second))
        if len(names) == 1:
            raise KeyError(f"a pair is of two models, got {first!r} twice")
        return next(pair for pair in self.pairs if {pair.first, pair.second} == names)

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """How much more often the first is wrong than the second, on the same samples.

        None where one of them has no predictor.
        """
        wrong = [self.model(name).wrong for name in (first, second)]
        return PairedDifference.of(*wrong) if all(map(len, wrong)) else None

    def agreement(self, first: str, second: str) -> Count | None:
        """On how many of the evaluation samples two models say the same; None where unknown."""
        share = self.pair(first, second).disagreement
        if np.isnan(share):
            return None
        return Count(self.n_samples - round(share * self.n_samples), self.n_samples)

    def programs(self) -> list[list[ModelResult]]:
        """Models with a margin, those of one and the same program together."""
        grouped: dict[int, list[ModelResult]] = {}
        for model in self.models:
            if model.margin is not None:
                grouped.setdefault(model.margin.program, []).append(model)
        return list(grouped.values())

    def svm_of(self, network: ModelResult) -> ModelResult | None:
        """Return the (first) SVM whose program is the network's; None if there is none."""
        return next((first_svm(same) for same in self.programs() if network in same), None)

    def soft_svms_of(self, network: ModelResult) -> list[ModelResult]:
        """SVMs of the network's gates and groups with a finite C: they solve another program."""
        return [
            model
            for model in self.models
            if model.margin is not None
            and network.margin is not None
            and model.margin.gates == network.margin.gates
            and model.margin.status is not None
            and not model.margin.hard_margin
        ]

    def model_frame(self) -> pd.DataFrame:
        """One row a model: scalars only."""
        import pandas as pd

        return pd.DataFrame([_model_row(model) for model in self.models])

    def pair_frame(self) -> pd.DataFrame:
        """One row a pair."""
        import pandas as pd

        return pd.DataFrame([asdict(pair) for pair in self.pairs])

    def prediction_frame(self, names: Sequence[Any] | None = None) -> pd.DataFrame:
        """One row an evaluation sample: its label, the class by each model, whether these differ.

        Last come the scores of each model, by the names of the classes (by default their labels).
        With the index of X, where that is a pandas frame. There is no class where a model is
        undecided, or has no predictor.
        """
        import pandas as pd

        columns = {TRUE: np.asarray(self.of.y)}
        columns |= {model.name: model.predicted for model in self.models}
        predicting = [model for model in self.models if model.has_predictor]
        said = [model.predicted for model in predicting]
        if len(said) > 1:
            columns[DIFFER] = np.any([each != said[0] for each in said[1:]], axis=0)
        labels = self.classes.tolist()
        named = dict(zip(labels, labels if names is None else names, strict=True))
        for model in predicting:
            of_names = {named[label]: values for label, values in model.scores.items()}
            columns |= score_columns(model.name, of_names)
        X = self.of.X
        return pd.DataFrame(columns, index=X.index if isinstance(X, pd.DataFrame) else None)

    def history_frame(self) -> pd.DataFrame:
        """One row a point of a training history, with the name of its model."""
        from implicit_bias.training.history import history_frame

        points = [(model.name, point) for model in self.models for point in model.history]
        frame = history_frame(point for _, point in points)
        frame.insert(0, "model", [name for name, _ in points])
        return frame


def first_svm(models: Iterable[ModelResult]) -> ModelResult | None:
    """Return the first SVM among models that have a margin; None if there is none."""
    return next((model for model in models if model.known_margin.status is not None), None)


def compare(
    models: Mapping[str, Predicts],
    X: ArrayLike,
    y: ArrayLike,
    *,
    train: tuple[ArrayLike, ArrayLike] | None = None,
) -> Comparison:
    """Compare fitted classifiers on evaluation samples.

    Parameters
    ----------
    models : mapping from name to fitted classifier
        This package's classifiers, pipelines that end in one, searches among these, or any of
        scikit-learn's interface (errors and disagreement only).
    X : array_like of shape (n, D)
        Evaluation inputs.
    y : array_like of shape (n,)
        Their labels.
    train : tuple (X, y), optional
        The samples that the models were fitted to; margins and norms need them.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        No models, no samples, labels that a model does not know, or not one a sample.
    TypeError
        Models that are no mapping, or do not predict.

    Examples
    --------
    >>> from implicit_bias import GLNSVC, MaxMarginSVC, compare
    >>> from implicit_bias.datasets import make_toy, split
    >>> moons = split(make_toy("blobs", 60), 40)
    >>> X, y = moons.train.X, moons.train.y
    >>> models = {"gated": GLNSVC(3, random_state=0).fit(X, y), "linear": MaxMarginSVC().fit(X, y)}
    >>> result = compare(models, moons.validation.X, moons.validation.y, train=(X, y))
    >>> print(result)
    model   excess     error  wrong    95 % interval
    gated   < 0.001 %  0 %    0 of 12  0 to 24 %
    linear  < 0.001 %  0 %    0 of 12  0 to 24 %
    <BLANKLINE>
    No ranking: gated is wrong on 0 % (0 of 12 unseen samples), and too few samples tell it from \
linear. Always answering “-1” would be wrong on 50 %, and too few samples tell gated from that.
    >>> page = result.report("my-report")  # doctest: +SKIP
    """
    _check_given(models, train)
    labels = labels_of_any_type(y)
    if not models or len(labels) == 0:
        raise ValueError("compare needs at least one fitted model and one evaluation sample")
    lasts = {name: last_step(model) for name, model in models.items()}
    said = {name: last.predictions(X, labels) for name, last in lasts.items()}
    classes = _classes(lasts, said, labels)
    margins, of_train = dict[str, MarginResult](), dict[str, Predictions]()
    if train is not None:
        train = train[0], labels_of_any_type(train[1])
        of_train = {name: last.predictions(*train) for name, last in lasts.items()}
        margins = _margin_results(lasts, of_train, train[1])
    results = tuple(
        ModelResult(
            name=name,
            fitted=last.fitted,
            margin=margins.get(name),
            history=() if last.own is None else last.own.history(),
            unseen=last.unseen(said[name].inputs),
            planned_steps=last.model.training_.config.steps
            if isinstance(last.model, NetworkClassifier)
            else 0,
            interrupted=is_interrupted(last.model),
            predicted=said[name].classes,
            wrong=said[name].wrong,
            train_wrong=of_train[name].count if train is not None else None,
            transformed=last.transformed,
            scores=said[name].scores,
        )
        for name, last in lasts.items()
    )
    pairs = combinations(results, 2)
    return Comparison(
        models=results,
        pairs=tuple(_pair(a, b, said, len(classes)) for a, b in pairs),
        n_samples=len(labels),
        n_train=0 if train is None else len(train[1]),
        classes=classes,
        of=Compared(dict(models), X, y, train),
    )


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of samples.

    Attributes
    ----------
    inputs : array_like of shape (n, D)
        What its last step is given; of one of this package's, dense.
    classes : ndarray of shape (n,)
        Their classes; None, which no label equals, where the model is undecided.
    wrong : ndarray of bool, shape (n,)
        Which of these are others than the labels; empty, shape (0,), without a predictor.
    scores : mapping from class to ndarray of shape (n,)
        See `scores_of`; empty for a classifier of another package.
    """

    inputs: ArrayLike
    classes: NDArray[Any]
    wrong: NDArray[np.bool_]
    scores: Mapping[Any, Array]

    @property
    def count(self) -> Count | None:
        """How many are wrong; None without a predictor."""
        count = Count(int(np.count_nonzero(self.wrong)), len(self.wrong))
        return count if count.total else None


@dataclass(frozen=True, eq=False)
class LastStep:
    """A classifier, and what it is given: of a pipeline the last step and what those before make.

    Attributes
    ----------
    model : Predicts
        The classifier.
    inputs : callable
        Makes its inputs of those that the pipeline is given.
    transformed : bool
        Whether it is a step of a pipeline.
    """

    model: Predicts
    inputs: Callable[[ArrayLike], ArrayLike]
    transformed: bool

    @property
    def own(self) -> BinaryClassifier | None:
        """The classifier, if it is one of this package."""
        return self.model if isinstance(self.model, BinaryClassifier) else None

    @cached_property
    def fitted(self) -> FittedMargin | None:
        """The margin problem's side of it; None where it has none."""
        return None if self.own is None else self.own.margin_view()

    def unseen(self, X: ArrayLike) -> int:
        """Count the inputs of the last step in contexts that no training sample was in."""
        if self.fitted is None:
            return 0
        architecture = self.fitted.architecture
        return int(np.count_nonzero(architecture.gating.unseen(architecture.inputs(X))))

    def predictions(self, X: ArrayLike, y: ArrayLike) -> Predictions:
        """Predict the classes of samples that the whole pipeline is given.

        It is undecided where f = 0, or where with many classes two f_k are the largest.

        Raises
        ------
        ValueError
            Labels that it does not know, or not one a sample.
        """
        inputs, labels, scores = self.inputs(X), np.asarray(y), dict[Any, Array]()
        if self.own is None:
            predicted = np.asarray(self.model.predict(inputs), dtype=object)
        else:
            self.own.signs(labels)  # refuses labels that it does not know
            inputs = dense(inputs)
            decision = self.own.decision_function(inputs)
            predicted = self.own.classes_of(decision).astype(object)
            scores = scores_of(decision, self.own.classes_)
            undecided = decision == 0
            if decision.ndim == 2:
                largest = decision == decision.max(axis=1, keepdims=True)
                undecided = largest.sum(axis=1) > 1
            predicted[undecided] = None
        if predicted.shape != labels.shape:
            raise ValueError(
                f"labels have the shape {labels.shape}, and predictions {predicted.shape}: pass "
                "one label a sample"
            )
        predicts = self.fitted is None or self.fitted.has_predictor
        wrong = np.asarray(predicted != labels, dtype=bool)
        return Predictions(inputs, predicted, wrong if predicts else wrong[:0], scores)


def scores_of(decision: Array, classes: NDArray[Any]) -> dict[Any, Array]:
    """Name decision values (n,) or (n, K) by their classes: of two, f(x) speaks for the second."""
    columns = decision.reshape(len(decision), -1).T
    return dict(zip(classes[-len(columns) :].tolist(), columns, strict=True))


def score_columns(name: str, scores: Mapping[Any, Array]) -> dict[str, Array]:
    """Give the scores of a model the headings that they have in tables of predictions."""
    return {f"{name}: score of {each}": values for each, values in scores.items()}


def last_step(model: Predicts) -> LastStep:
    """Return the classifier of this package that a pipeline ends in; else the model as it is.

    A search is the best model that it found.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from implicit_bias import MaxMarginSVC
    >>> pipeline = make_pipeline(StandardScaler(), MaxMarginSVC())
    >>> last_step(pipeline.fit([[1.0], [3.0]], [0, 1])).inputs([[2.0]]).tolist()
    [[0.0]]
    """
    if isinstance(model, Searched):
        return last_step(model.best_estimator_)
    if isinstance(model, Pipeline):
        last, before = last_step(model.steps[-1][1]), model[:-1]
        if isinstance(last.model, BinaryClassifier):
            return LastStep(
                last.model,
                lambda X: last.inputs(before.transform(X) if len(before) else X),
                transformed=True,
            )
    return LastStep(model, lambda X: X, transformed=False)


def training_of(model: Predicts) -> AnyTraining | None:
    """Training of a network, or of the network whose gates or activations an SVM was given."""
    match model:
        case (
            (NetworkClassifier() as network)
            | GatedReLUSVC(gates=NetworkClassifier() as network)
            | HiddenLayerSVC(network=NetworkClassifier() as network)
        ):
            return network.training_
    return None


def is_interrupted(model: Predicts) -> bool:
    """Whether Ctrl-C ended the solve of a fitted model, or the training that it rests on."""
    training, fitted = training_of(model), last_step(model).fitted
    solution = None if fitted is None else fitted.solution
    return (training is not None and training.interrupted) or (
        solution is not None and solution.status is Status.INTERRUPTED
    )


def _check_given(models: object, train: object) -> None:
    """Refuse what are no models with names, and no training samples with their labels."""
    wanted = 'a mapping from names to fitted classifiers, as {"svm": svm}'
    if not isinstance(models, Mapping):
        raise TypeError(f"models must be {wanted}, got a {type(models).__name__}")
    for name, model in models.items():
        if not (isinstance(name, str) and isinstance(model, Predicts)):
            raise TypeError(f"models must be {wanted}, got {name!r}: {type(model).__name__}")
    if train is not None and not (isinstance(train, tuple | list) and len(train) == 2):
        raise ValueError("train must be a pair: pass the inputs and their labels, train=(X, y)")


def _classes(
    lasts: Mapping[str, LastStep], said: Mapping[str, Predictions], labels: NDArray[Any]
) -> NDArray[Any]:
    """Return all classes (K,) that occur anywhere, sorted: numbers before names."""
    known = [last.own.classes_ for last in lasts.values() if last.own is not None]
    given = [predictions.classes for predictions in said.values()]
    found = {item for part in (labels, *known, *given) for item in part.tolist()}
    return np.array(sorted(found - {None}, key=lambda item: (isinstance(item, str), item)))


def _short_row(model: ModelResult) -> list[str]:
    excess = UNKNOWN if model.margin is None else percent(model.margin.excess, space=" ")
    if model.inseparable:
        excess = "not separable"
    elif model.margin is not None and not model.margin.hard_margin:  # of another program
        excess += f" (C = {C_in_words(model.margin.C)})"
    if not model.count.total:
        return [model.name, excess, UNKNOWN, UNKNOWN, UNKNOWN]
    interval = percent_range(*model.count.interval, space=" ")
    return [model.name, excess, percent(model.error, space=" "), str(model.count), interval]


def _pair(
    first: ModelResult, second: ModelResult, said: Mapping[str, Predictions], n_classes: int
) -> PairResult:
    p, q = first.error, second.error
    if np.isnan(p) or np.isnan(q):
        return PairResult(first.name, second.name, *(np.nan,) * 4)
    ours, theirs = said[first.name].classes, said[second.name].classes
    disagreement = float((ours != theirs).mean())
    by_chance = p * (1 - q) + q * (1 - p)
    if n_classes > 2:
        by_chance += p * q * (n_classes - 2) / (n_classes - 1)
    ratio = disagreement / by_chance if by_chance > 0 else np.nan
    kappa = _kappa(ours, theirs)
    return PairResult(first.name, second.name, disagreement, by_chance, ratio, kappa)


def _kappa(first: NDArray[Any], second: NDArray[Any]) -> float:
    from sklearn.metrics import cohen_kappa_score

    first, second = first.astype(str), second.astype(str)
    if len(np.unique([first, second])) == 1:
        return np.nan
    return float(cohen_kappa_score(first, second))


def _margin_results(
    lasts: Mapping[str, LastStep], of_train: Mapping[str, Predictions], y: ArrayLike
) -> dict[str, MarginResult]:
    solutions, problems = dict[str, FittedMargin](), dict[str, MarginProblem]()
    for name, last in lasts.items():
        if last.own is not None and last.fitted is not None:
            solutions[name] = last.fitted
            problems[name] = last.fitted.problem(of_train[name].inputs, last.own.signs(y))
    certificates = {name: _certificate(solutions[name], posed) for name, posed in problems.items()}
    names = list(problems)
    results = {}
    for name, problem in problems.items():
        alike = [n for n in names if problem is problems[n] or problem.has_gates_of(problems[n])]
        same = [other for other in alike if _same_norm(problem, problems[other])]
        view = solutions[name]
        group_norms = problem.group_norms(view.coef)
        norm = float(group_norms.sum()) or 1.0
        results[name] = MarginResult(
            fitted=view,
            gates=names.index(alike[0]),
            program=names.index(same[0]),
            inseparable=problem.hard_margin
            and any(
                solutions[other].inseparable and problems[other].intercept >= problem.intercept
                for other in alike
            ),
            certificate=certificates[name],
            optimum=max(certificates[other].lower for other in same),
            unit_norms=group_norms / norm,
            margins=problem.margins(problem.decision(view.coef), view.offset) / norm,
        )
    return results


def _certificate(fitted: FittedMargin, problem: MarginProblem) -> Certificate:
    """Bounds of a model's coefficients and dual variables; those of a kept solution are known."""
    solution = fitted.solution
    if solution is not None and solution.problem is problem:
        return solution.certificate
    return certify(problem, fitted.coef, fitted.alpha(problem), fitted.intercept)


def _same_norm(a: MarginProblem, b: MarginProblem) -> bool:
    """Whether two problems of the same gates and groups are one and the same program."""
    return (
        np.array_equal(a.C, b.C)
        and a.intercept == b.intercept
        and a.classes == b.classes
        and _equal(_norm_of(a), _norm_of(b))
    )


def _norm_of(problem: MarginProblem) -> Norm:
    """Return the norm of a problem; whether classes are apart says nothing of two."""
    binary = problem.is_binary_group_lasso
    return replace(problem.gate_norm, apart=False) if binary else problem.norm


def _equal(a: Any, b: Any) -> bool:
    """Whether two norms, or two values of their parameters, are the same."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if is_dataclass(a) and type(a) is type(b):
        return all(_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(np.array_equal(a, b))


def _model_row(model: ModelResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": model.name,
        "error": model.error,
        "train_error": model.train_error,
        "unseen": model.unseen,
        "interrupted": model.interrupted,
    }
    if model.history:
        row["steps"] = model.steps
        row["planned_steps"] = model.planned_steps
    if model.margin is not None:
        row |= {name: getattr(model.margin, name) for name in MARGIN_COLUMNS}
        row["C"] = float(np.min(model.margin.C))  # the least, where each sample has its own
        row["status"] = None if model.margin.status is None else model.margin.status.label
    return row
