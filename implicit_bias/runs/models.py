"""From a run's configuration to its data and its fitted models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

from implicit_bias._deprecated import OldAttribute
from implicit_bias.datasets.catalogue import load
from implicit_bias.datasets.dataset import Dataset, Split, split
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
from implicit_bias.estimators.svm import GLNSVC, GatedReLUSVC, GatedSVC, HiddenLayerSVC
from implicit_bias.gating import Gating, GlobalContexts, HyperplaneContexts, UnitGates
from implicit_bias.networks import Network
from implicit_bias.protocols import lippl2022
from implicit_bias.runs.configuration import OnFailure, RunConfig

# These take what gd-relu has learned.
NEED_RELU = ("svm-lc", "svm-hl")
# Of the protocol lippl2022, whose training has been released.
RELEASED_NETWORKS = ("gd-gln", "gd-relu")
# Training samples where the user names no number: at most these, and at most 4/5 of the data.
DEFAULT_TRAIN_SIZE = 1000


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a configuration: all samples, and the split."""

    everything: Dataset
    parts: Split


class SvmOptions(TypedDict):
    """Arguments by which a margin classifier knows how to solve."""

    C: float
    solver: str
    tol: float
    device: str
    on_failure: OnFailure
    soft_C: float | None
    fit_intercept: bool


class NetworkOptions(TypedDict):
    """Arguments by which a network classifier knows how to train."""

    steps: int
    batch_size: int | None
    learning_rate: float
    momentum: float
    dtype: Literal["float32", "float64"]
    device: str
    random_state: int
    progress: bool


def load_data(config: RunConfig) -> Data:
    """Load and split the data of a configuration.

    Raises
    ------
    DataError
        Missing or corrupt files.
    ValueError
        More training samples than there are.
    """
    everything = load(config.dataset, positive=config.positive, negative=config.negative)
    size = config.train_size
    if size is None:
        size = min(DEFAULT_TRAIN_SIZE, len(everything) * 4 // 5)
    return Data(everything, split(everything, size, seed=config.split_seed))


def fit_models(
    config: RunConfig, data: Data, *, progress: bool = False
) -> Iterator[tuple[str, BinaryClassifier]]:
    """Fit the models of a configuration to its training samples; see `ModelFactory.fit`."""
    return ModelFactory(config, data, progress=progress).fit()


class ModelFactory:
    """Makes the models of a configuration, by name.

    Parameters
    ----------
    config : RunConfig
        Architecture, seeds, protocol, training and solver.
    data : Data
        From `load_data`.
    progress : bool
        Whether networks show a progress bar on standard error while they train.
    """

    def __init__(self, config: RunConfig, data: Data, *, progress: bool = False) -> None:
        self.config, self.data, self.progress = config, data, progress
        self.published = config.protocol == "lippl2022"
        self._contexts: HyperplaneContexts | None = None

    def fit(self) -> Iterator[tuple[str, BinaryClassifier]]:
        """Fit the models of the configuration, and yield each once it is done.

        ``svm-lc`` and ``svm-hl`` train a ``gd-relu`` even where the configuration does not name
        it. A solve that does not end optimal warns and keeps its certified bounds.

        Yields
        ------
        name : str
            From ``config.models``, in that order, but those that need ``gd-relu`` last.
        model : BinaryClassifier
            Fitted.
        """
        names = self.config.models
        order = sorted(names, key=lambda name: name in NEED_RELU)
        if any(name in NEED_RELU for name in order) and "gd-relu" not in order:
            order = ["gd-relu", *order]
        relu: ReLUClassifier | None = None
        for name in order:
            model = self.fit_one(name, relu)
            if isinstance(model, ReLUClassifier):
                relu = model
            if name in names:
                yield name, model

    def fit_one(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the model, fitted to the training samples.

        A network that `RunConfig.trains_as_released` is trained on the CPU, by
        `protocols.released_training`.
        """
        model, train = self.build(name, relu), self.data.parts.train
        if not (self.config.trains_as_released and name in RELEASED_NETWORKS):
            return model.fit(train.X, train.y)
        from implicit_bias.protocols.released_training import train_from_released_start

        assert isinstance(model, GLNClassifier | ReLUClassifier)
        config = self.config
        trainer = partial(
            train_from_released_start,
            seed=config.seed,
            momentum=config.momentum,
            data_seed=config.split_seed,
        )
        return model.set_params(device="cpu").fit_by(train.X, train.y, trainer)

    def build(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the unfitted model; ``relu`` is what svm-lc and svm-hl build on."""
        size, svm = (self.config.units, self.config.hyperplanes), self.svm_options()
        match name:
            case "gd-gln" | "local-gln" | "gd-relu":
                return self.build_network(name)
            case "svm-gln":
                return GLNSVC(*size, contexts=self.contexts(), **svm)
            case "svm-l2":
                return GLNSVC(*size, "l2", contexts=self.contexts(), **svm)
            case "svm-shallow":
                joint = GlobalContexts.collapse(self.contexts(), self.data.parts.train.X)
                return GatedSVC(joint, **svm)
            case "svm-linear":
                return GatedSVC(**svm)
            case "svm-rc":
                return GatedSVC(self.unit_gates(), **svm)
            case "svm-lc":
                assert relu is not None
                return GatedReLUSVC(gates=relu, **svm)
            case "svm-hl":
                assert relu is not None
                return HiddenLayerSVC(relu, **svm)
        raise ValueError(f"no model is called {name!r}")

    def build_network(
        self, name: str, *, homogeneous: bool = False
    ) -> GLNClassifier | ReLUClassifier:
        """Return an unfitted network.

        A ``homogeneous`` one has no readout bias, and is float64, in any protocol.
        """
        published = self.published and not homogeneous
        config, size = self.config, (self.config.units, self.config.hyperplanes)
        training = NetworkOptions(
            steps=config.steps,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            dtype="float32" if published else "float64",
            device=config.device,
            random_state=config.seed,
            progress=self.progress,
        )
        match name:
            case "gd-gln":
                contexts = self.contexts()
                return GLNClassifier(*size, contexts=contexts, readout_bias=published, **training)
            case "local-gln":
                return GLNClassifier(*size, contexts=self.contexts(), rule="local", **training)
            case "gd-relu":
                return ReLUClassifier(config.units, **training)
        raise ValueError(f"no network is called {name!r}")

    def svm_options(self) -> SvmOptions:
        """Return the arguments of a margin classifier that say how to solve.

        Without an intercept: the data have a constant feature, in the norm, as published.
        """
        config = self.config
        return SvmOptions(
            C=config.C,
            solver=config.solver,
            tol=config.tol,
            device=config.device,
            on_failure=config.on_failure,
            soft_C=config.soft_C,
            fit_intercept=False,
        )

    def contexts(self) -> HyperplaneContexts:
        """Return the contexts of the gated linear models, drawn once: they all share them."""
        if self._contexts is None:
            self._contexts = self._draw_contexts()
        return self._contexts

    def _draw_contexts(self) -> HyperplaneContexts:
        config, X = self.config, self.data.parts.train.X
        if self.published:
            return lippl2022.draw_contexts(
                X,
                config.units,
                config.hyperplanes,
                threshold="median" if config.threshold == "median" else "random",
                reference=self.data.everything.X,
                seed=config.seed,
            )
        return HyperplaneContexts.random(
            X,
            config.units,
            config.hyperplanes,
            threshold=config.threshold,
            random_state=config.seed,
        )

    def unit_gates(self) -> Gating:
        """Draw the gates of svm-rc."""
        config = self.config
        if self.published:
            reference = self.data.everything.X
            return lippl2022.draw_unit_gates(config.units, reference=reference, seed=config.seed)
        return UnitGates.random(
            self.data.parts.train.X,
            config.units,
            threshold=config.threshold,
            random_state=config.seed,
        )

    setting = OldAttribute("config")
    solving = OldAttribute("svm_options")
