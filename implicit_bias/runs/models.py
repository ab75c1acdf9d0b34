"""From a run's configuration and its data to its fitted models."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from implicit_bias.base.options import OPTIMIZER_LIMITS
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, NetworkClassifier, ReLUClassifier
from implicit_bias.estimators.svm import GLNSVC, GatedReLUSVC, GatedSVC, HiddenLayerSVC
from implicit_bias.networks import Network
from implicit_bias.problem.gating import Gating, GlobalContexts, HyperplaneContexts, UnitGates
from implicit_bias.runs.configuration import RunConfig, chosen
from implicit_bias.runs.data import Data
from implicit_bias.training.history import OnProgress

# These take what gd-relu has learned.
NEED_RELU = ("svm-lc", "svm-hl")


class ModelFactory:
    """Makes the models of a configuration, by name.

    Parameters
    ----------
    config : RunConfig
        Architecture, seeds, training and solver.
    data : Data
        From `load_data`.
    on_progress : callable, optional
        Called before each step of a network's training, as in `implicit_bias.training.train`.
    """

    def __init__(
        self, config: RunConfig, data: Data, *, on_progress: OnProgress | None = None
    ) -> None:
        self.config = config
        self.data = data
        self.on_progress = on_progress

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
        if order[-1] in NEED_RELU and "gd-relu" not in order:
            order = ["gd-relu", *order]
        relu: ReLUClassifier | None = None
        for name in order:
            model = self.fit_one(name, relu)
            if isinstance(model, ReLUClassifier):
                relu = model
            if name in names:
                yield name, model

    def fit_one(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the model, fitted to the training samples."""
        model, train = self.build(name, relu), self.data.parts.train
        if isinstance(model, NetworkClassifier):
            return model.fit(train.X, train.y, on_progress=self.on_progress)
        return model.fit(train.X, train.y)

    def build(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the unfitted model; ``relu`` is what svm-lc and svm-hl build on."""
        size, svm = (self.config.units, self.config.hyperplanes), self.svm_options()
        match name:
            case "gd-gln" | "local-gln" | "gd-relu":
                return self.build_network(name)
            case "svm-gln" | "svm-l2":
                return GLNSVC(*size, name.removeprefix("svm-"), contexts=self.contexts, **svm)
            case "svm-shallow":
                joint = GlobalContexts.collapse(self.contexts, self.data.parts.train.X)
                return GatedSVC(joint, **svm)
            case "svm-linear":
                return GatedSVC(**svm)
            case "svm-rc":
                return GatedSVC(self.unit_gates(), **svm)
            case "svm-lc" if relu is not None:
                return GatedReLUSVC(gates=relu, **svm)
            case "svm-hl" if relu is not None:
                return HiddenLayerSVC(relu, **svm)
        raise ValueError(f"no model is called {name!r}, or it needs a trained gd-relu")

    def build_network(
        self, name: str, *, homogeneous: bool = False
    ) -> GLNClassifier | ReLUClassifier:
        """Return an unfitted network.

        A ``homogeneous`` one can be trained towards the limit.

        Raises
        ------
        ValueError
            No network has this name; or one that is to be homogeneous learns in a way of its own.
        """
        if homogeneous and name == "local-gln":
            raise ValueError("local learning has no limit of this kind: choose gd-gln, gd-relu")
        if homogeneous and self.config.optimizer != "sgd":
            raise ValueError(
                "a training to the limit has steps of its own, not those of "
                f"{self.config.optimizer}: leave the optimizer out, and name the norm of its "
                f"limit, {OPTIMIZER_LIMITS[self.config.optimizer].norm}"
            )
        config, size = self.config, (self.config.units, self.config.hyperplanes)
        training = {
            **chosen(config, "Training", "device"),
            "random_state": config.seed,
        }
        match name:
            case "gd-gln":
                return GLNClassifier(*size, contexts=self.contexts, **training)
            case "local-gln":
                return GLNClassifier(*size, contexts=self.contexts, rule="local", **training)
            case "gd-relu":
                return ReLUClassifier(config.units, **training)
        raise ValueError(f"no network is called {name!r}")

    def svm_options(self) -> dict[str, Any]:
        """Return the arguments of a margin classifier that say how to solve.

        Without an intercept: the data have a constant feature, in the norm.
        """
        own = {"class_weight": self.data.class_weight, "fit_intercept": False}
        return chosen(self.config, "Margin", "Solver") | own

    @cached_property
    def contexts(self) -> HyperplaneContexts:
        """The contexts of the gated linear models, drawn once: they all share them."""
        config, X = self.config, self.data.parts.train.X
        size = (config.units, config.hyperplanes)
        return HyperplaneContexts.random(
            X, *size, threshold=config.threshold, random_state=config.seed
        )

    def unit_gates(self) -> Gating:
        """Draw the gates of svm-rc."""
        units, rule, seed = self.config.units, self.config.threshold, self.config.seed
        X = self.data.parts.train.X
        return UnitGates.random(X, units, threshold=rule, random_state=seed)
