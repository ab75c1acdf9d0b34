"""A setting: everything that one comparison depends on, and the models it means.

=============  ==========================================================================
model          what it is
=============  ==========================================================================
gd-gln         gated linear network trained by gradient descent
local-gln      the same network trained locally: each unit predicts the label itself
svm-gln        its limit: sum of the units' norms
svm-l2         the exact ||beta||_2 over all joint contexts
svm-shallow    one layer: one weight vector for each joint context that occurs
svm-linear     no gates
gd-relu        ReLU network trained by gradient descent
svm-rc         random 0/1 gates, one unit always on
svm-lc         the gates that gd-relu has learned
svm-hl         linear SVM on the hidden layer of gd-relu
=============  ==========================================================================

The protocol "lippl2022" is that of Lippl, Abbott, Chung (2022): their split, their random
draws, thresholds at the median over all 60,000 images (validation images included), their
training (mini-batch SGD in float32, a readout bias). Without it, thresholds come from the
training samples alone, and networks are homogeneous and float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from implicit_bias.datasets.catalogue import DATASET_NAMES, load
from implicit_bias.datasets.dataset import Dataset, Split, split
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
from implicit_bias.estimators.svm import GLNSVC, GatedReLUSVC, GatedSVC, HiddenLayerSVC
from implicit_bias.gating import Gating, GlobalContexts, HyperplaneContexts, UnitGates
from implicit_bias.networks import Network
from implicit_bias.protocols import lippl2022
from implicit_bias.solvers import SOLVER_NAMES, Tolerances
from implicit_bias.training.configuration import TrainingConfig

PROTOCOLS: tuple[str, ...] = ("default", "lippl2022")
MODEL_NAMES: tuple[str, ...] = (
    "gd-gln",
    "local-gln",
    "svm-gln",
    "svm-l2",
    "svm-shallow",
    "svm-linear",
    "gd-relu",
    "svm-rc",
    "svm-lc",
    "svm-hl",
)
# These take what gd-relu has learned.
NEED_RELU = ("svm-lc", "svm-hl")
# Training samples where the user names no number: at most these, and at most 4/5 of the data.
DEFAULT_TRAIN_SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Data, architecture, seeds and protocol of a comparison.

    Parameters
    ----------
    dataset : str
        One of `DATASET_NAMES`.
    positive, negative : tuple of int or None
        Digits of the two classes; 0-4 against 5-9 where not given.
    train_size : int or None
        N; by default 1,000 or 4/5 of the data, whichever is less.
    models : tuple of str
        Names from `MODEL_NAMES`.
    units, hyperplanes : int
        H and k.
    threshold : {"median", "random", "zero"}
        Thresholds of the hyperplanes.
    seed : int
        Seed of gates, weights and batches.
    split_seed : int
        Seed of the split in training and validation samples.
    protocol : {"default", "lippl2022"}
        See the module's head.
    C : float
        inf for the hard margin.
    on_failure : {"warn", "soft", "drop"}
        What to solve where the hard margin has no solution; see `solve_relaxed`.
    soft_C : float or None
        C of the soft margin that "soft" and "drop" solve; None is relative to the data's scale.
    steps : int
        Gradient steps.
    batch_size : int or None
        Samples a step; None for all.
    learning_rate, momentum : float
        Of gradient descent.
    solver, tol, device
        As in `implicit_bias.solve`.

    Raises
    ------
    ValueError
        A name or number out of its range.
    """

    dataset: str = "digits"
    positive: tuple[int, ...] | None = None
    negative: tuple[int, ...] | None = None
    train_size: int | None = None
    models: tuple[str, ...] = ("gd-gln", "svm-gln", "svm-l2")
    units: int = 20
    hyperplanes: int = 1
    threshold: str = "median"
    seed: int = 1
    split_seed: int = 1
    protocol: str = "default"
    C: float = np.inf
    on_failure: str = "warn"
    soft_C: float | None = None
    steps: int = 3200
    batch_size: int | None = 128
    learning_rate: float = 0.04
    momentum: float = 0.9
    solver: str = "auto"
    tol: float = 1e-6
    device: str = "cpu"

    def __post_init__(self) -> None:
        _check_name("dataset", self.dataset, DATASET_NAMES)
        _check_name("protocol", self.protocol, PROTOCOLS)
        _check_name("solver", self.solver, SOLVER_NAMES)
        _check_name("threshold", self.threshold, ("median", "random", "zero"))
        _check_name("on_failure", self.on_failure, ("warn", "soft", "drop"))
        if not self.models:
            raise ValueError(f"models must name at least one of {', '.join(MODEL_NAMES)}")
        for name in self.models:
            _check_name("models", name, MODEL_NAMES)
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"models names one twice: {', '.join(self.models)}")
        if not self.C > 0 or not (self.soft_C is None or 0 < self.soft_C < np.inf):
            raise ValueError(
                f"C must be in (0, inf] and soft_C positive and finite, got {self.C} and "
                f"{self.soft_C}"
            )
        Tolerances(gap=self.tol)
        TrainingConfig(
            batch_size=self.batch_size, learning_rate=self.learning_rate, momentum=self.momentum
        )
        for name, least in [("units", 1), ("hyperplanes", 0), ("steps", 1), ("seed", 0)]:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.protocol == "lippl2022" and self.dataset != "mnist":
            raise ValueError("the protocol lippl2022 is defined for MNIST only: --dataset mnist")
        if self.protocol == "lippl2022" and self.threshold == "zero":
            raise ValueError("the protocol lippl2022 has median and random thresholds only")

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: lists for tuples, "inf" for infinity."""
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {k: "inf" if v == np.inf else v for k, v in listed.items()}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Undo `facts`.

        Raises
        ------
        ValueError, TypeError
            Not the facts of a setting.
        """
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
        }
        fields = {key: np.inf if value == "inf" else value for key, value in fields.items()}
        return cls(**fields)


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a setting: all samples, and the split."""

    everything: Dataset
    parts: Split


def load_data(setting: Setting) -> Data:
    """Load and split the data of a setting.

    Raises
    ------
    DataError
        Missing or corrupt files.
    ValueError
        More training samples than there are.
    """
    everything = load(setting.dataset, positive=setting.positive, negative=setting.negative)
    size = setting.train_size
    if size is None:
        size = min(DEFAULT_TRAIN_SIZE, len(everything) * 4 // 5)
    return Data(everything, split(everything, size, seed=setting.split_seed))


def fit_models(
    setting: Setting, data: Data, *, progress: bool = False
) -> Iterator[tuple[str, BinaryClassifier]]:
    """Fit the models of a setting to its training samples; see `Builders.fit`."""
    return Builders(setting, data, progress=progress).fit()


class Builders:
    """Unfitted models of a setting, by name; with ``progress`` networks show a progress bar."""

    def __init__(self, setting: Setting, data: Data, *, progress: bool = False) -> None:
        self.setting, self.data, self.progress = setting, data, progress
        self.published = setting.protocol == "lippl2022"
        self._contexts: HyperplaneContexts | None = None

    def fit(self) -> Iterator[tuple[str, BinaryClassifier]]:
        """Fit the models of the setting to its training samples, and yield each once it is done.

        ``svm-lc`` and ``svm-hl`` train a ``gd-relu`` even where the setting does not name it. A
        solve that does not end optimal warns and keeps its certified bounds.

        Yields
        ------
        name : str
            From ``setting.models``, in that order, but those that need ``gd-relu`` last.
        model : BinaryClassifier
            Fitted.
        """
        names, train = self.setting.models, self.data.parts.train
        order = sorted(names, key=lambda name: name in NEED_RELU)
        if any(name in NEED_RELU for name in order) and "gd-relu" not in order:
            order = ["gd-relu", *order]
        relu: ReLUClassifier | None = None
        for name in order:
            model = self.build(name, relu).fit(train.X, train.y)
            if isinstance(model, ReLUClassifier):
                relu = model
            if name in names:
                yield name, model

    def build(
        self,
        name: str,
        relu: ReLUClassifier | Network | None = None,
        *,
        homogeneous: bool = False,
    ) -> BinaryClassifier:
        """Return the unfitted model; ``relu`` is what svm-lc and svm-hl build on.

        A ``homogeneous`` network has no readout bias, and is float64, in any protocol.
        """
        published = self.published and not homogeneous
        setting = self.setting
        solving = self.solving()
        training: dict[str, Any] = {
            "steps": setting.steps,
            "batch_size": setting.batch_size,
            "learning_rate": setting.learning_rate,
            "momentum": setting.momentum,
            "dtype": "float32" if published else "float64",
            "device": setting.device,
            "random_state": setting.seed,
            "progress": self.progress,
        }
        size = (setting.units, setting.hyperplanes)
        match name:
            case "gd-gln":
                contexts = self.contexts()
                return GLNClassifier(*size, contexts=contexts, readout_bias=published, **training)
            case "local-gln":
                return GLNClassifier(*size, contexts=self.contexts(), rule="local", **training)
            case "svm-gln":
                return GLNSVC(*size, contexts=self.contexts(), **solving)
            case "svm-l2":
                return GLNSVC(*size, "l2", contexts=self.contexts(), **solving)
            case "svm-shallow":
                joint = GlobalContexts.collapse(self.contexts(), self.data.parts.train.X)
                return GatedSVC(joint, **solving)
            case "svm-linear":
                return GatedSVC(**solving)
            case "gd-relu":
                return ReLUClassifier(setting.units, **training)
            case "svm-rc":
                return GatedSVC(self.unit_gates(), **solving)
            case "svm-lc":
                assert relu is not None
                return GatedReLUSVC(gates=relu, **solving)
            case "svm-hl":
                assert relu is not None
                return HiddenLayerSVC(relu, **solving)
        raise ValueError(f"no model is called {name!r}")

    def solving(self) -> dict[str, Any]:
        """Return the arguments of a margin classifier that say how to solve."""
        setting = self.setting
        return {
            "C": setting.C,
            "solver": setting.solver,
            "tol": setting.tol,
            "device": setting.device,
            "on_failure": setting.on_failure,
            "soft_C": setting.soft_C,
        }

    def contexts(self) -> HyperplaneContexts:
        """Return the contexts of the gated linear models, drawn once: they all share them."""
        if self._contexts is None:
            self._contexts = self._draw_contexts()
        return self._contexts

    def _draw_contexts(self) -> HyperplaneContexts:
        setting, X = self.setting, self.data.parts.train.X
        if self.published:
            return lippl2022.draw_contexts(
                X,
                setting.units,
                setting.hyperplanes,
                threshold="median" if setting.threshold == "median" else "random",
                reference=self.data.everything.X,
                seed=setting.seed,
            )
        return HyperplaneContexts.random(
            X,
            setting.units,
            setting.hyperplanes,
            threshold=setting.threshold,  # type: ignore[arg-type]  # checked by Setting
            random_state=setting.seed,
        )

    def unit_gates(self) -> Gating:
        """Draw the gates of svm-rc."""
        setting = self.setting
        if self.published:
            reference = self.data.everything.X
            return lippl2022.draw_unit_gates(setting.units, reference=reference, seed=setting.seed)
        return UnitGates.random(
            self.data.parts.train.X,
            setting.units,
            threshold=setting.threshold,  # type: ignore[arg-type]  # checked by Setting
            random_state=setting.seed,
        )


def _check_name(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}")
