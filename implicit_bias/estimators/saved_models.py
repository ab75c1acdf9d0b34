"""Save and load fitted models as data, never as pickles.

A file holds the arrays, and a JSON header that names what they belong to (`base.tensors`).
Loading builds objects of the classes listed in `DATACLASSES`, `NETWORKS` and `CLASSIFIERS` only, so
an untrusted file cannot run code; but its numbers are its author's claims, which `certify` checks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from implicit_bias import estimators, infinite_width, networks, norms, problem, training
from implicit_bias.base.own_settings import own_settings
from implicit_bias.base.tensors import FileError as FileError
from implicit_bias.base.tensors import TensorFormat, Tensors
from implicit_bias.base.version import VERSION
from implicit_bias.bounds import certificate, separability
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.search import SearchOfC
from implicit_bias.problem import gating
from implicit_bias.solvers import base
from implicit_bias.training import limit, losses
from implicit_bias.training.driver import Ending

T = TypeVar("T")
MODELS = TensorFormat(
    "implicit-bias model 2",
    older=("implicit-bias model 1",),
    what="saved model of this package",
    cure="save it again with `implicit-bias fit`, `implicit-bias train` or save_model",
    wanted="the file that `implicit-bias fit`, `implicit-bias train` or save_model wrote",
)


def _by_name(*classes: type[T]) -> dict[str, type[T]]:
    return {cls.__name__: cls for cls in classes}


# What a file may name. Dataclasses are stored field by field.
DATACLASSES: dict[str, type] = _by_name(
    *(gating.NoGates, gating.HyperplaneContexts, gating.GlobalContexts, gating.UnitGates),
    *(norms.L1, norms.L2, norms.LInf, norms.Lp, norms.Spectral, norms.Nuclear),
    norms.Schatten,
    *(norms.SumOverGroups, norms.MaxOverGroups, norms.GroupNorm),
    *(problem.Architecture, certificate.Certificate, separability.Conflict),
    *(base.BoundsAt, base.Solution, base.SolveStats),
    *(training.TrainingConfig, training.HistoryPoint, training.TrainingResult),
    *(training.OwnLoop, training.OwnResult),
    *(limit.LimitConfig, limit.LimitPoint, limit.LimitResult),
    *(infinite_width.InfiniteWidthProblem, infinite_width.InfiniteWidthSolution),
    SearchOfC,
)
# What older files call them, their fields, and fitted attributes; "" is no attribute any more.
DATACLASSES |= {"Progress": base.BoundsAt, "Structure": problem.Architecture}
OLD_FIELDS = {"group_scale": "group_norms"}
OLD_ATTRIBUTES = {"structure_": "architecture_", "samples_": ""}
# Networks are stored as gates or sizes, and weights.
NETWORKS: dict[str, type[networks.Network]] = _by_name(
    networks.GLN, networks.ReLUNetwork, networks.FrozenGateReLU
)
# Classifiers are stored as parameters and fitted attributes.
CLASSIFIERS: dict[str, type[BinaryClassifier]] = _by_name(
    *(estimators.GatedSVC, estimators.GLNSVC, estimators.GatedReLUSVC, estimators.MaxMarginSVC),
    *(estimators.HiddenLayerSVC, estimators.GLNClassifier, estimators.ReLUClassifier),
    estimators.InfiniteWidthSVC,
)


@dataclass(frozen=True)
class SavedModel:
    """A loaded model, the facts saved with it, and the version that wrote it."""

    model: BinaryClassifier
    facts: Mapping[str, Any]
    version: str


def save_model(
    path: str | Path,
    model: BinaryClassifier,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted classifier to a file, replacing it only once all is written.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made if need be.
    model : BinaryClassifier
        One of this package's classifiers, fitted.
    facts : mapping, optional
        Anything JSON can hold: how the model was made.

    Raises
    ------
    NotFittedError
        The model is not fitted.
    TypeError
        Not such a classifier; or it holds something that is not data (a gating class of the
        user's own, say).

    Examples
    --------
    >>> from implicit_bias import MaxMarginSVC
    >>> model = MaxMarginSVC().fit([[1.0], [-1.0]], ["up", "down"])
    >>> save_model("svm.safetensors", model)  # doctest: +SKIP
    """
    if type(model) not in CLASSIFIERS.values():
        raise TypeError(
            f"save_model saves a fitted {', '.join(CLASSIFIERS)}, not a {type(model).__name__}: "
            "call it as save_model('svm.safetensors', model); of a pipeline save the last step, "
            "pipeline[-1], and keep the whole with joblib.dump"
        )
    check_is_fitted(model, msg="this %(name)s is not fitted, so there is nothing to save: fit it")
    arrays: dict[str, NDArray[Any]] = {}
    header = {
        "version": VERSION,
        "model": _encode(model, arrays),
        "facts": dict(facts or {}),
    }
    MODELS.write(path, arrays, header)


@own_settings()
def load_model(path: str | Path) -> SavedModel:
    """Read a classifier that `save_model` wrote.

    Raises
    ------
    FileError
        Not such a file, or a damaged one.
    FileNotFoundError
        No such file.

    Examples
    --------
    >>> load_model("svm.safetensors").model  # doctest: +SKIP
    MaxMarginSVC()
    """
    return MODELS.read(path, _decode_model)


def _decode_model(header: dict[str, Any], arrays: Tensors) -> SavedModel:
    model = _decode(header["model"], arrays)
    if not isinstance(model, BinaryClassifier):
        raise ValueError("it holds no classifier")
    _check_predictor(model, arrays)
    if not isinstance(header["facts"], dict):
        raise ValueError("its facts are not a mapping")
    return SavedModel(model, header["facts"], str(header["version"]))


def _check_predictor(model: BinaryClassifier, arrays: Tensors) -> None:
    """Predict an input, and read what was fitted: a missing or wrong part fails now, not later."""
    view, width = model.margin_view(), model.n_features_in_
    if width > sum(array.size for array in arrays.values()):  # before memory is taken for it
        raise ValueError(f"it has no weights for {width} inputs")
    with warnings.catch_warnings():  # of columns that have no names here
        warnings.simplefilter("ignore")
        decision = model.decision_function(np.zeros((1, width)))
    model.classes_of(decision)
    for name in filter(_is_fitted, dir(model)):
        repr(getattr(model, name))
    if (view is None or view.has_predictor) and not np.isfinite(decision).all():
        raise ValueError("its predictor is not finite")
    if decision.shape != ((1,) if len(model.classes_) == 2 else (1, len(model.classes_))):
        raise ValueError(f"its predictor does not fit its {len(model.classes_)} classes")


def _encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Turn a value into JSON, with its arrays put aside by name."""
    name = type(value).__name__
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return _encode(value.item(), arrays)
        case np.ndarray() if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            key = str(len(arrays))
            arrays[key] = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
            return {"array": key}
        case np.ndarray() if all(isinstance(item, str) for item in value.ravel().tolist()):
            return {"labels": value.tolist()}
        case list() | tuple():
            return {name: [_encode(item, arrays) for item in value]}
        case Mapping():
            return {"dict": [[_encode(k, arrays), _encode(v, arrays)] for k, v in value.items()]}
        case certificate.Status() | Ending():
            return {name.lower(): value.name}
        case losses.MarginLoss() if losses.LOSSES.get(value.name) is value:
            return {"loss": value.name}
    if is_dataclass(value) and DATACLASSES.get(name) is type(value):
        kept = [f.name for f in fields(value) if f.metadata.get("saved", True)]
        named = {key: _encode(getattr(value, key), arrays) for key in kept}
        return {"object": name, "fields": named}
    if NETWORKS.get(name) is type(value):
        return {"network": name, **_encode_network(value, arrays)}
    if CLASSIFIERS.get(name) is type(value):
        fitted = {key: item for key, item in vars(value).items() if _is_fitted(key)}
        parts = {"parameters": value.get_params(deep=False), "fitted": fitted}
        return {"classifier": name, **{k: _encode(part, arrays) for k, part in parts.items()}}
    kind = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"cannot save a {name}{kind} as data: a model can be saved if its classes and parameters "
        "are numbers of at most 8 bytes, text, arrays of these, and this package's own gatings, "
        "losses, networks and classifiers (pass random_state as an int)"
    )


def _decode(value: Any, arrays: Tensors) -> Any:
    """Undo `_encode`."""
    match value:
        case {"array": key}:
            return arrays[key]
        case {"labels": items}:
            return np.array(items)
        case {"list": items}:
            return [_decode(item, arrays) for item in items]
        case {"tuple": items}:
            return tuple(_decode(item, arrays) for item in items)
        case {"dict": items}:
            return {_decode(k, arrays): _decode(v, arrays) for k, v in items}
        case {"status": name}:
            return certificate.Status[name]
        case {"ending": name}:
            return Ending[name]
        case {"loss": name}:
            return losses.LOSSES[name]
        case {"object": name, "fields": named}:
            values = {
                OLD_FIELDS.get(key, key): _decode(part, arrays) for key, part in named.items()
            }
            if "interrupted" in values:  # of a training in a file of version 0.1
                stopped = values.pop("interrupted")
                values["ending"] = Ending.INTERRUPTED if stopped else Ending.STEPS
            return DATACLASSES[name](**values)
        case {"network": name}:
            return _decode_network(NETWORKS[name], value, arrays)
        case {"classifier": name, "parameters": parameters, "fitted": fitted}:
            model = CLASSIFIERS[name](**_decode(parameters, arrays))
            for key, item in _decode(fitted, arrays).items():
                if not _is_fitted(key):
                    raise ValueError(f"{key!r} is no fitted attribute")
                if now := OLD_ATTRIBUTES.get(key, key):
                    setattr(model, now, item)
            return model
        case dict():
            raise ValueError(f"unknown entry {sorted(value)}")
    return value


def _is_fitted(key: str) -> bool:
    return key.endswith("_") and not key.startswith("_")


def _encode_network(network: networks.Network, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    weights = {key: tensor.cpu().numpy() for key, tensor in network.state_dict().items()}
    options: dict[str, Any] = {"dtype": str(network.dtype).removeprefix("torch.")}
    if isinstance(network, networks.GLN):
        options |= {"gatings": network.gatings, "readout_bias": network.readout_bias is not None}
    else:
        widths = [len(layer) // network.n_networks for layer in network.hidden_weights]
        options |= {"n_features": network.n_features, "widths": widths}
    if network.classes is not None:
        options |= {"classes": network.classes, "shared": network.shared}
    return {"options": _encode(options, arrays), "weights": _encode(weights, arrays)}


def _decode_network(
    cls: Callable[..., networks.Network], value: Mapping[str, Any], arrays: Tensors
) -> networks.Network:
    options = _decode(value["options"], arrays)
    options["dtype"] = {"float32": torch.float32, "float64": torch.float64}[options["dtype"]]
    found, kind = _decode(value["weights"], arrays), options["dtype"]
    weights = {key: torch.tensor(array, dtype=kind) for key, array in found.items()}
    if options.get("classes", 1) > len(weights["readout"]):
        raise ValueError("its readout has fewer rows than classes")
    with torch.device("meta"):  # takes no memory, for sizes that the weights may not have
        # A frozen network is made from a ReLU network; its own gates come with the weights.
        frozen = cls is networks.FrozenGateReLU
        network = cls(networks.ReLUNetwork(**options)) if frozen else cls(**options)
    network.load_state_dict(weights, assign=True)
    return network
