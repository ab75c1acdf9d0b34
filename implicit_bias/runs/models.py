"""From a run's configuration and its data to its fitted models."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from implicit_bias.base.options import OPTIMIZER_LIMITS
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, NetworkClassifier, ReLUClassifier
from implicit_bias.estimators.svm import GLNSVC, GatedReLUSVC, GatedSVC, HiddenLayerSVC
from implicit_bias.networks import Network
from implicit_bias.problem.gating import GlobalContexts, HyperplaneContexts, UnitGates
from implicit_bias.runs.configuration import TRAINING, RunConfig
from implicit_bias.runs.data import Data
from implicit_bias.training.history import OnProgress


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
        asked = self.config.models
        # SVMs on the gates or the activations that gd-relu has learned.
        need_relu = ("svm-lc", "svm-hl")
        order = sorted(asked, key=lambda name: name in need_relu)
        if order[-1] in need_relu and "gd-relu" not in order:
            order = ["gd-relu", *order]
        relu: ReLUClassifier | None = None
        for name in order:
            model = self.fit_one(name, relu)
            if isinstance(model, ReLUClassifier):
                relu = model
            if name in asked:
                yield name, model

    def fit_one(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the model, fitted to the training samples."""
        model = self.build(name, relu)
        train = self.data.parts.train
        if isinstance(model, NetworkClassifier):
            return model.fit(train.X, train.y, on_progress=self.on_progress)
        return model.fit(train.X, train.y)

    def build(self, name: str, relu: ReLUClassifier | Network | None = None) -> BinaryClassifier:
        """Return the unfitted model; ``relu`` is what svm-lc and svm-hl build on."""
        config = self.config
        X = self.data.parts.train.X
        # No intercept: the data have a constant feature, which counts in the norm.
        svm: dict[str, Any] = {
            **config.chosen("C", "on_failure", "solver", "tol", "device"),
            "fit_intercept": False,
        }
        match name:
            case "gd-gln" | "local-gln" | "gd-relu":
                return self.build_network(name)
            case "svm-gln":
                return GLNSVC(norm="gln", contexts=self.contexts, **svm)
            case "svm-l2":
                return GLNSVC(norm="l2", contexts=self.contexts, **svm)
            case "svm-shallow":
                return GatedSVC(GlobalContexts.collapse(self.contexts, X), **svm)
            case "svm-linear":
                return GatedSVC(**svm)
            case "svm-rc":
                gates = UnitGates.random(
                    X, config.units, threshold=config.threshold, random_state=config.seed
                )
                return GatedSVC(gates, **svm)
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
            No network has this name; or one that is to be homogeneous learns by another rule than
            gradient descent.
        """
        config = self.config
        if homogeneous and name == "local-gln":
            raise ValueError("local learning has no limit of this kind: choose gd-gln, gd-relu")
        if homogeneous and config.optimizer != "sgd":
            limit = OPTIMIZER_LIMITS[config.optimizer]
            cure = f"leave the optimizer out, and name the norm of its limit, {limit.norm}"
            if limit.constrained:
                cure = "it maximizes no margin; leave the optimizer out"
            raise ValueError(f"training towards the limit does not use {config.optimizer}: {cure}")
        training: dict[str, Any] = {
            **config.chosen(*TRAINING, "device"),
            "random_state": config.seed,
        }
        match name:
            case "gd-gln":
                return GLNClassifier(config.units, contexts=self.contexts, **training)
            case "local-gln":
                return GLNClassifier(config.units, contexts=self.contexts, rule="local", **training)
            case "gd-relu":
                return ReLUClassifier(config.units, **training)
        raise ValueError(f"no network is called {name!r}")

    @cached_property
    def contexts(self) -> HyperplaneContexts:
        """The contexts of the gated linear models, drawn once: they all share them."""
        config = self.config
        return HyperplaneContexts.random(
            self.data.parts.train.X,
            config.units,
            config.hyperplanes,
            threshold=config.threshold,
            random_state=config.seed,
        )
