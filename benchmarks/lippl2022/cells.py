"""A cell of the published experiments: its setting, its models, and what comes of them.

A cell has a split of the samples, a draw of gates, networks trained exactly as released, and SVMs
with the same gates:

===========  ===================================================================================
gd-gln       gated linear network (GLN), trained as released
gd-relu      ReLU network, trained as released
svm-gln      SVM on the gates of the GLN under the sum of its units' norms
svm-l2       SVM on the same gates under one Euclidean norm over all joint contexts
svm-shallow  SVM of one layer, with a weight vector for each joint context that occurs
svm-linear   linear SVM
svm-rc       SVM on random contexts: random 0/1 gates, and one unit that is always on
svm-lc       SVM on learned contexts: the gates of gd-relu
svm-hl       linear SVM on the hidden layer of gd-relu
===========  ===================================================================================

Thresholds at medians are those over all 60,000 images, validation images included. Further models
of a grid are in `as_published` and `further_models`.

Source: Lippl, Abbott, Chung (2022), sections 4 and 5, and their published code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.bench import rows_of
from benchmarks.lippl2022 import draws
from benchmarks.lippl2022.released_training import train_from_released_start
from implicit_bias.comparison import Comparison, compare, is_interrupted
from implicit_bias.datasets import load
from implicit_bias.datasets.dataset import Dataset, Split, split
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
from implicit_bias.estimators.svm import GLNSVC, GatedReLUSVC, GatedSVC, HiddenLayerSVC
from implicit_bias.problem.gating import Gating, GlobalContexts, HyperplaneContexts

MODEL_NAMES = (
    "gd-gln",
    "gd-relu",
    "svm-gln",
    "svm-l2",
    "svm-shallow",
    "svm-linear",
    "svm-rc",
    "svm-lc",
    "svm-hl",
)
# Beyond the paper, of the package's own draws: medians of the training samples, and homogeneous
# networks in float64.
HOMOGENEOUS = ("fashion-mnist",)
# These take what gd-relu has learned.
NEED_RELU = ("svm-lc", "svm-hl")
Fitted: TypeAlias = Mapping[str, BinaryClassifier]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a cell depends on.

    Parameters
    ----------
    dataset : str
        See `HOMOGENEOUS`.
    positive, negative : tuple of int, optional
        Classes that are +1 and -1; by default 0 to 4, and 5 to 9.
    train_size, split_seed : int
        N, and the seed of the split.
    units, hyperplanes : int
        H, and k of each unit.
    threshold : {"median", "random"}
        Thresholds of the hyperplanes.
    seed : int
        Of contexts, gates and weights.
    momentum : float
        0 or 0.9 as published.
    models : tuple of str
        From `MODEL_NAMES`.
    on_failure : {"warn", "drop"}
        Whether samples that nothing separates leave a soft margin, or are left out.
    tol : float
        Relative gap of the SVMs' certificates.
    """

    dataset: str = "mnist"
    positive: tuple[int, ...] | None = None
    negative: tuple[int, ...] | None = None
    train_size: int = 1000
    split_seed: int = 1
    units: int = 20
    hyperplanes: int = 1
    threshold: Literal["median", "random"] = "median"
    seed: int = 1
    momentum: float = 0.0
    models: tuple[str, ...] = ("gd-gln", "svm-gln", "svm-l2")
    on_failure: Literal["warn", "drop"] = "warn"
    tol: float = 1e-6


@dataclass(frozen=True, eq=False)
class Samples:
    """All images, and their split."""

    everything: Dataset
    parts: Split


@lru_cache(maxsize=1)
def _everything(
    dataset: str, positive: tuple[int, ...] | None, negative: tuple[int, ...] | None
) -> Dataset:
    """Load a data set; all of MNIST is 380 MB."""
    return load(dataset, positive=positive, negative=negative)


def load_samples(setting: Setting) -> Samples:
    """Load and split the data of a cell."""
    everything = _everything(setting.dataset, setting.positive, setting.negative)
    return Samples(everything, split(everything, setting.train_size, seed=setting.split_seed))


class Models:
    """Makes the models of a cell, by name.

    Parameters
    ----------
    setting : Setting
        The cell.
    data : Samples, optional
        From `load_samples`, which is asked where none are given.
    """

    def __init__(self, setting: Setting, data: Samples | None = None) -> None:
        self.setting = setting
        self.data = load_samples(setting) if data is None else data

    def fit(self) -> Iterator[tuple[str, BinaryClassifier]]:
        """Fit the models of the setting, and yield each once it is done.

        Those that need ``gd-relu`` come last, and train one where the setting does not name it.
        """
        names = sorted(self.setting.models, key=lambda name: name in NEED_RELU)
        if names[-1] in NEED_RELU and "gd-relu" not in names:
            names = ["gd-relu", *names]
        relu: ReLUClassifier | None = None
        for name in names:
            model = self.fit_one(name, relu)
            if isinstance(model, ReLUClassifier):
                relu = model
            if name in self.setting.models:
                yield name, model

    def fit_one(self, name: str, relu: ReLUClassifier | None = None) -> BinaryClassifier:
        """Return the model, fitted to the training samples; svm-lc and svm-hl build on ``relu``."""
        train = self.data.parts.train
        setting, svm = self.setting, self.svm_options()
        size = (setting.units, setting.hyperplanes)
        match name:
            case "gd-gln" if setting.dataset in HOMOGENEOUS:
                network = GLNClassifier(
                    *size,
                    contexts=self.contexts,
                    momentum=setting.momentum,
                    random_state=setting.seed,
                )
                return network.fit(train.X, train.y)
            case "gd-gln":
                network = GLNClassifier(
                    *size, contexts=self.contexts, readout_bias=True, dtype="float32"
                )
                return network.fit_by(train.X, train.y, self._train)
            case "gd-relu":
                relu = ReLUClassifier(setting.units, dtype="float32", random_state=setting.seed)
                return relu.fit_by(train.X, train.y, self._train)
            case "svm-gln" | "svm-l2":
                norm = name.removeprefix("svm-")
                return GLNSVC(*size, norm, contexts=self.contexts, **svm).fit(train.X, train.y)
            case "svm-shallow":
                joint = GlobalContexts.collapse(self.contexts, train.X)
                return GatedSVC(joint, **svm).fit(train.X, train.y)
            case "svm-linear":
                return GatedSVC(**svm).fit(train.X, train.y)
            case "svm-rc":
                return GatedSVC(self.unit_gates(), **svm).fit(train.X, train.y)
            case "svm-lc" if relu is not None:
                return GatedReLUSVC(gates=relu, **svm).fit(train.X, train.y)
            case "svm-hl" if relu is not None:
                return HiddenLayerSVC(relu, **svm).fit(train.X, train.y)
        raise ValueError(f"no model is called {name!r}, or it needs a trained gd-relu")

    @property
    def _train(self) -> Any:
        setting = self.setting
        return partial(
            train_from_released_start,
            seed=setting.seed,
            momentum=setting.momentum,
            data_seed=setting.split_seed,
        )

    def svm_options(self) -> dict[str, Any]:
        """Return the arguments of a margin classifier that say how to solve.

        Without an intercept: the data have a constant feature, in the norm.
        """
        return {
            "on_failure": self.setting.on_failure,
            "tol": self.setting.tol,
            "fit_intercept": False,
        }

    @cached_property
    def contexts(self) -> HyperplaneContexts:
        """The contexts of the gated linear models, drawn once: they all share them."""
        setting, X = self.setting, self.data.parts.train.X
        size = (setting.units, setting.hyperplanes)
        if setting.dataset in HOMOGENEOUS:
            return HyperplaneContexts.random(
                X, *size, threshold=setting.threshold, random_state=setting.seed
            )
        return draws.draw_contexts(
            X,
            *size,
            threshold=setting.threshold,
            reference=self.data.everything.X,
            seed=setting.seed,
        )

    def unit_gates(self) -> Gating:
        """Draw the gates of svm-rc."""
        reference = self.data.everything.X
        return draws.draw_unit_gates(
            self.setting.units, reference=reference, seed=self.setting.seed
        )

    def compare(self, fitted: Fitted) -> Comparison:
        """Compare fitted models on the validation samples."""
        train, validation = self.data.parts.train, self.data.parts.validation
        return compare(fitted, validation.X, validation.y, train=(train.X, train.y))


# Further models of a cell, fitted to its training samples, from those that its setting names.
MoreModels: TypeAlias = Callable[[Models, Fitted], Iterator[tuple[str, BinaryClassifier]]]


def no_more(models: Models, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Add no model to those that the setting names."""
    return iter(())


# What is kept of each model beside its disagreements.
COLUMNS = ("norm", "lower", "gap", "status", "dropped", "active_units")
# The networks that a cell may have, as trained.
NETWORKS = ("gd-gln", "gd-relu")
REDRAWN = "gd-gln-redrawn"


def measured(setting: Setting, more: MoreModels = no_more) -> Iterator[dict[str, Any]]:
    """Fit the models of a cell: a row a model.

    Parameters
    ----------
    setting : Setting
        The cell.
    more : callable
        Yields further models by name, compared with the others.

    Yields
    ------
    dict
        ===========================  ============================================================
        model, error                 name, and error on the validation images; nan without a
                                     predictor
        norm, lower, gap, status     norm at smallest margin 1, certified lower bound on it,
                                     relative gap, and how the solve ended
        dropped                      training samples that were left out
        active_units                 units whose coefficients are not 0
        from_network                 share of the validation images on which model and network of
                                     the cell differ
        from_redrawn, from_svm_gln   the same of gd-gln-redrawn and svm-gln
        ===========================  ============================================================
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the columns
        models = Models(setting)
        fitted: dict[str, BinaryClassifier] = {}
        for name, model in chain(models.fit(), more(models, fitted)):
            if is_interrupted(model):  # by Ctrl-C, which it answered with what it had: no result
                raise KeyboardInterrupt
            fitted[name] = model
        comparison = models.compare(fitted)
    apart = {}
    for pair in rows_of(comparison.pair_frame()):
        apart[pair["first"], pair["second"]] = pair["disagreement"]
        apart[pair["second"], pair["first"]] = pair["disagreement"]
    network = next((name for name in NETWORKS if name in fitted), "")
    for result, row in zip(comparison.models, rows_of(comparison.model_frame()), strict=True):
        row["lower"] = np.nan if result.margin is None else result.margin.certificate.lower
        name = result.name
        yield {
            "model": name,
            "error": row["error"],
            **{column: row.get(column) for column in COLUMNS},
            "from_network": apart.get((name, network), np.nan),
            "from_redrawn": apart.get((name, REDRAWN), np.nan),
            "from_svm_gln": apart.get((name, "svm-gln"), np.nan),
        }
