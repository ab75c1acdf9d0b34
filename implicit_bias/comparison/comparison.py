"""The result of `compare`: its tables, and the facts that its verdicts rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.counts import CONFIDENCE, Count, PairedDifference
from implicit_bias.base.wording import (
    UNKNOWN,
    html_table,
    minus,
    number,
    percent,
    percent_range,
    text_table,
)
from implicit_bias.comparison.models import Predicts
from implicit_bias.comparison.results import ModelResult, PairResult, first_svm
from implicit_bias.comparison.verdict import WORDS, Conclusion, Ranking, Standing, conclude
from implicit_bias.datasets.labels import label_text
from implicit_bias.estimators.base import dense
from implicit_bias.problem import C_in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from implicit_bias.datasets.dataset import Split
    from implicit_bias.training.history import HistoryPoint

# Columns in a table of predictions, beside one for each model.
TRUE_LABEL = "true label"
MODELS_DIFFER = "models differ"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of `compare`; printing it shows a short table and the verdicts.

    `report` writes a page, `plot` draws it.

    Attributes
    ----------
    models : tuple of ModelResult
        In the order given.
    pairs : tuple of PairResult
        Each pair once.
    classes : ndarray of shape (K,)
        All classes that a label, a prediction or a model of this package has, sorted.
    estimators : mapping from name to fitted classifier
        The models, as they were given to `compare`.
    X, y : array_like of shape (n, D), ndarray of shape (n,)
        The test samples.
    train : tuple (X, y) or None
        The training samples; None where they were not given.
    user_split : Split or None
        The samples where they come from the user's own file. Then the first verdict is on errors.

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
    classes: NDArray[Any]
    estimators: Mapping[str, Predicts]
    X: ArrayLike
    y: NDArray[Any]
    train: tuple[ArrayLike, NDArray[Any]] | None
    user_split: Split | None = None

    def __repr__(self) -> str:
        names = ", ".join(model.name for model in self.models)
        return f"Comparison({names}; {self.n_samples} samples)"

    def __str__(self) -> str:
        parts = [text_table(*table) for table in self.short_tables()]
        if self.note_on_norms:
            parts.append(self.note_on_norms)
        parts.append("\n".join(conclusion.headline for conclusion in self.conclusions()))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [html_table(*table) for table in self.short_tables()]
        if self.note_on_norms:
            parts.append(f"<p>{escape(self.note_on_norms)}</p>")
        parts += [f"<p>{escape(conclusion.headline)}</p>" for conclusion in self.conclusions()]
        return "".join(parts)

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
        FileExistsError
            The folder has files of these names that belong to no report.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> from implicit_bias import MaxMarginSVC, compare
        >>> X, y = [[1.0], [2.0], [-1.0], [-2.0]], [1, 1, -1, -1]
        >>> result = compare({"svm": MaxMarginSVC().fit(X, y)}, X, y, train=(X, y))
        >>> result.report(mkdtemp(), data_name="four points").name
        'report.html'
        """
        from implicit_bias.report.page import report_on

        return report_on(self, folder, title=title, data_name=data_name)

    def plot(self) -> Figure:
        """Draw errors with their intervals and, where known, the excess over the optimum.

        Returns
        -------
        matplotlib Figure
            No window opens, and pyplot does not know it.

        Examples
        --------
        >>> from implicit_bias import MaxMarginSVC, compare
        >>> X, y = [[1.0], [2.0], [-1.0], [-2.0]], [1, 1, -1, -1]
        >>> figure = compare({"svm": MaxMarginSVC().fit(X, y)}, X, y, train=(X, y)).plot()
        >>> len(figure.axes)
        2
        """
        from implicit_bias.report.figures import overview

        return overview(self)

    # --- samples ---------------------------------------------------------------------------------

    @property
    def n_samples(self) -> int:
        """Test samples."""
        return len(self.y)

    @property
    def n_train(self) -> int:
        """Training samples; 0 where they were not given."""
        return 0 if self.train is None else len(self.train[1])

    @property
    def many_classes(self) -> bool:
        """Whether there are more than two."""
        return len(self.classes) > 2

    @cached_property
    def held_out(self) -> bool | None:
        """Whether any test sample has inputs that no training sample has; None if unknown."""
        if self.train is None:
            return None
        import pandas as pd

        inputs = [np.asarray(dense(X)) for X in (self.train[0], self.X)]
        # Rows are compared by their hashes. A missing value equals itself.
        samples = np.concatenate(inputs)
        flat = samples.reshape(len(samples), -1)  # of images, say
        rows = pd.util.hash_pandas_object(pd.DataFrame(flat), index=False)
        known, asked = np.split(rows.to_numpy(), [self.n_train])
        return not np.isin(asked, known).all()

    # --- models and pairs ------------------------------------------------------------------------

    @property
    def predicting(self) -> list[ModelResult]:
        """The models that have a predictor."""
        return [model for model in self.models if model.has_predictor]

    def model(self, name: str) -> ModelResult:
        """Return the model of this name; KeyError, which lists all names, if there is none."""
        models = {model.name: model for model in self.models}
        if not isinstance(name, str) or name not in models:
            raise KeyError(f"no model is called {name!r}: there are {', '.join(models)}")
        return models[name]

    def pair(self, first: str, second: str) -> PairResult:
        """Return the pair of these names, in either order; KeyError if there is none."""
        # `model` raises for names that do not exist, with a list of those that do.
        names = {self.model(first).name, self.model(second).name}
        if len(names) == 1:
            raise KeyError(f"a pair is of two models, got {first!r} twice")
        return next(pair for pair in self.pairs if {pair.first, pair.second} == names)

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """How much more often the first is wrong than the second, on the same samples.

        None where one of them has no predictor.
        """
        wrong_first = self.model(first).wrong
        wrong_second = self.model(second).wrong
        if len(wrong_first) == 0 or len(wrong_second) == 0:
            return None
        return PairedDifference.of(wrong_first, wrong_second)

    def agreement(self, first: str, second: str) -> Count | None:
        """On how many test samples two models agree; None where one has no predictor."""
        disagreement = self.pair(first, second).disagreement
        if np.isnan(disagreement):
            return None
        # A pair keeps the fraction alone; times n it is an integer again, up to rounding.
        return Count(self.n_samples - round(disagreement * self.n_samples), self.n_samples)

    def problems(self) -> list[list[ModelResult]]:
        """Models with a margin, those of the same problem together."""
        grouped: dict[int, list[ModelResult]] = {}
        for model in self.models:
            if model.margin is not None:
                grouped.setdefault(model.margin.problem, []).append(model)
        return list(grouped.values())

    @property
    def note_on_norms(self) -> str:
        """Which margins and norms compare; empty where those of all models do."""
        problems = self.problems()
        if len(problems) < 2:
            return ""
        note = str(WORDS["notes"]["norms"])
        same = []
        for models in problems:
            if len(models) > 1:
                same.append(", ".join(model.name for model in models))
        if same:
            note += WORDS["notes"]["same_problem"].format(models="; ".join(same))
        return note

    def svm_of(self, network: ModelResult) -> ModelResult | None:
        """Return the (first) SVM of the network's margin problem; None if there is none."""
        for models in self.problems():
            # By identity: results are not compared by their values.
            if network in models:
                return first_svm(models)
        return None

    def soft_svms_of(self, network: ModelResult) -> list[ModelResult]:
        """SVMs of the network's gates with a finite C: they solve another problem."""
        found = []
        for model in self.models:
            if network.margin is None or model.margin is None or model.margin.hard_margin:
                continue
            if model.margin.gates == network.margin.gates and model.margin.status is not None:
                found.append(model)
        return found

    # --- verdicts --------------------------------------------------------------------------------

    @property
    def ranks_models(self) -> bool:
        """Whether the models are compared by their errors, and not only by their limits."""
        # With trained networks the question is how far they are from their limits. On the user's
        # own data it is also which model has the lowest error.
        return self.user_split is not None or not any(model.history for model in self.models)

    def conclusions(self, to_limit: Mapping[str, str] | None = None) -> list[Conclusion]:
        """Return the verdict on each trained network, or one on all models by their errors.

        On data of the user's own there are both, and the verdict on all models comes first.

        Parameters
        ----------
        to_limit : mapping from name to command, optional
            How to train the networks to their limits; by default as in Python.
        """
        conclusions = []
        if self.ranks_models:
            conclusions.append(conclude(self.ranking()))
        for model in self.models:
            if model.history:
                facts = self.standing(model)
                if to_limit is not None:
                    facts = replace(facts, to_limit=to_limit.get(model.name, ""))
                conclusions.append(conclude(facts))
        return conclusions

    def standing(self, network: ModelResult) -> Standing:
        """Gather what is known of a trained network beside its SVM, or one with a finite C."""
        facts = Standing(
            network=network.name,
            excess=network.excess,
            train_wrong=network.train_wrong,
            wrong=network.count,
            held_out=self.held_out,
            trained_on_given=self.n_train > 0,
            inseparable=network.inseparable,
            gates_moved=network.gates_moved,
        )
        if network.fitted is not None:
            facts = replace(
                facts,
                relaxed=network.fitted.relaxed,
                local=network.fitted.local,
                geometry=network.fitted.geometry,
                constrained=network.fitted.constrained,
            )
        svm = self.svm_of(network)
        if svm is None:
            # An SVM of the same gates with a finite C is not the limit of the network. Without the
            # SVM that is, its predictions are compared with those of the network.
            soft_svms = self.soft_svms_of(network)
            if not soft_svms:
                return facts
            svm = soft_svms[0]
            facts = replace(facts, soft=C_in_words(svm.known_margin.C))
        else:
            # The same problem has the same groups. Those of the soft SVMs above may be others.
            facts = replace(facts, dead=_dead_units(network, svm))
        return replace(
            facts,
            svm=svm.name,
            agreement=self.agreement(network.name, svm.name),
            # A pair has disagreements, the verdict speaks of agreement.
            chance_agreement=1 - self.pair(network.name, svm.name).by_chance,
        )

    def ranking(self) -> Ranking:
        """Gather what is known of all models by their errors on the test samples."""
        if not self.predicting:
            names = [model.name for model in self.models]
            return Ranking(models=names, best="", count=Count(0, 0))

        # The lowest error, and the models whose errors are not significantly higher.
        best = min(self.predicting, key=lambda model: model.error)
        tied = []
        for model in self.predicting:
            difference = self.difference(best.name, model.name)
            if model is not best and difference is not None and not difference.decided:
                tied.append(model.name)

        # The largest duality gap of the SVMs. A network has one bound only, and an infinite gap.
        gap = math.nan  # without an SVM; the maximum of nan and a number is the number, by fmax
        for model in self.predicting:
            if model.margin is not None and math.isfinite(model.margin.gap):
                gap = np.fmax(gap, model.margin.gap)
        facts = Ranking(
            models=[model.name for model in self.predicting],
            best=best.name,
            count=best.count,
            held_out=self.held_out,
            tied=tied,
            gap=float(gap),
        )
        if self.train is None:
            return facts

        # A predictor that always answers with the most frequent class of the training samples.
        labels, counts = np.unique(self.train[1], return_counts=True)
        label = labels.tolist()[counts.argmax()]
        majority = label_text(label)
        if self.user_split is not None:
            # The user's labels are numbered in `Dataset`, which has their names.
            majority = self.user_split.train.names[int(label)]
        beside_majority = PairedDifference.of(best.wrong, self.y != label)
        return replace(facts, majority=majority, beside_majority=beside_majority)

    # --- tables ----------------------------------------------------------------------------------

    def model_frame(self) -> pd.DataFrame:
        """One row per model: scalars only."""
        import pandas as pd

        return pd.DataFrame([model.row() for model in self.models])

    def pair_frame(self) -> pd.DataFrame:
        """One row per pair."""
        import pandas as pd

        return pd.DataFrame([asdict(pair) for pair in self.pairs])

    def prediction_frame(self, names: Sequence[Any] | None = None) -> pd.DataFrame:
        """One row per test sample: its label, the class by each model, whether these differ.

        Last come the scores of each model, by the names of the classes (by default their labels).
        With the index of X, where that is a pandas frame. There is no class where a model is
        undecided, or has no predictor.
        """
        import pandas as pd

        columns: dict[str, Any] = {TRUE_LABEL: self.y}
        for model in self.models:
            columns[model.name] = model.predicted
        if len(self.predicting) > 1:
            # Undecided models have None, which differs from every class and equals another None.
            first, *others = [model.predicted for model in self.predicting]
            columns[MODELS_DIFFER] = np.any([predicted != first for predicted in others], axis=0)
        labels = self.classes.tolist()
        if names is None:
            names = labels
        name_of = dict(zip(labels, names, strict=True))
        for model in self.predicting:
            for label, scores in model.scores.items():
                columns[f"{model.name}: score of {name_of[label]}"] = scores
        frame = pd.DataFrame(columns)
        if isinstance(self.X, pd.DataFrame):
            frame.index = self.X.index
        return frame

    def history_frame(self) -> pd.DataFrame:
        """One row per point of a training history, with the name of its model."""
        from implicit_bias.training.history import history_frame

        names = []
        points: list[HistoryPoint] = []
        for model in self.models:
            names += [model.name] * len(model.history)
            points += model.history
        frame = history_frame(points)
        frame.insert(0, "model", names)
        return frame

    def short_tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Return headings and rows of what matters first, of the models and of their pairs."""
        headings = ["model", "error", f"{100 * CONFIDENCE:.0f} % interval"]
        rows = [[model.name, *_error_cells(model)] for model in self.models]
        if any(model.margin is not None for model in self.models):
            headings += ["margin", "norm", "excess"]
            for row, model in zip(rows, self.models, strict=True):
                row += _margin_cells(model)
        tables = [(headings, rows)]
        pairs = []
        for pair in self.pairs:
            agreement = self.agreement(pair.first, pair.second)
            if agreement is not None:  # both have a predictor
                expected = percent(1.0 - pair.by_chance, space=" ")
                found = percent(agreement.share, space=" ")
                pairs.append([pair.first, pair.second, found, expected, str(agreement)])
        if pairs:
            headings = ["first model", "second model", "agreement", "if independent", "samples"]
            tables.append((headings, pairs))
        return tables


def _error_cells(model: ModelResult) -> list[str]:
    """Write the error of a model, and its interval."""
    if not model.has_predictor:
        return [UNKNOWN, UNKNOWN]
    error = percent(model.error, space=" ")
    return [error, percent_range(*model.count.interval, space=" ")]


def _margin_cells(model: ModelResult) -> list[str]:
    """Write normalized margin, norm at unit margin and excess of a model.

    The excess of a soft margin is over the minimum of another problem: its C is beside it.
    """
    margin = UNKNOWN
    norm = UNKNOWN
    excess = UNKNOWN
    if model.has_predictor and model.margin is not None:
        margin = minus(number(model.margin.min_margin))
        norm = number(model.margin.norm)
        excess = percent(model.excess, space=" ")
    if model.inseparable:
        excess = "not separable"
    elif model.soft_margin:
        excess += f" (C = {C_in_words(model.known_margin.C)})"
    return [margin, norm, excess]


def _dead_units(network: ModelResult, svm: ModelResult) -> int:
    """Count the units of norm 0 in a network that are active in its SVM.

    Units that are merely small do not count: they have a gradient, and may grow.
    """
    solution = svm.known_margin.fitted.solution
    margin = network.margin
    # With one group there is one norm for all units together, which says nothing about any of them.
    if margin is None or solution is None or margin.units == 1:
        return 0
    return int(np.count_nonzero((margin.unit_norms == 0) & solution.active))
