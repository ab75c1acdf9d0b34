"""What keeps a module from having a limit that can be measured, each with its name and its cure.

Some traps can be mended here (a module in training mode, parameters that get no gradient): the
user is warned. Others make the question meaningless (a bias, softmax attention): an error says
which part of the module it is. All tests are of what the module computes; the module's forward
pass is watched only to name the culprit.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings as python_warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.margin_gradients import MarginGradients, Pairs, as_inputs, double, evaluated_at
from implicit_bias.networks import Network
from implicit_bias.options import OPTIMIZER_LIMITS
from implicit_bias.parameter_norms import ParameterNorm
from implicit_bias.stationarity import HomogeneityError, measured_degree
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like
from implicit_bias.validation import Array

# Outputs may differ by this share from those of another batch, by rounding.
BATCH_TOLERANCE = 1e-9
# Samples on which the forward pass is watched.
WATCHED = 4
# Share by which single outputs may miss c^L.
DEGREE_TOLERANCE = 1e-6
# f'(q) q must grow by this factor from the first of these margins to the second one. It grows
# fourfold for an exponential tail, twofold for exp(-sqrt q), 1.14-fold for (1 + q)^-p.
TAIL_MARGINS, TAIL_GROWTH, NEAR = (5.0, 20.0), 1.5, (0.99, 1.01)


class DiagnosisWarning(UserWarning):
    """A number that `diagnose` reports means less than it seems.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", DiagnosisWarning)  # where none is to pass unseen
    >>> warnings.simplefilter("default", DiagnosisWarning)
    """


@dataclass(frozen=True)
class Trap:
    """A function that breaks homogeneity: what it is, and what to do."""

    what: str
    cure: str


_NORMALISATION = Trap(
    "a normalisation layer",
    "leave it out, or diagnose with its weights and statistics folded into the layer before and "
    "without its bias",
)
_SATURATES = Trap("an activation that does not scale", "use ReLU, leaky ReLU or a power")
_ATTENTION = Trap(
    "softmax attention, which is not homogeneous in its key and query matrices",
    "freeze these (requires_grad_(False)), or use attention without softmax",
)
TRAPS: dict[str, Trap] = {
    **dict.fromkeys(("softmax", "scaled_dot_product_attention", "log_softmax"), _ATTENTION),
    "multi_head_attention_forward": _ATTENTION,
    **dict.fromkeys(
        ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"),
        _NORMALISATION,
    ),
    **dict.fromkeys(
        ("tanh", "sigmoid", "gelu", "silu", "elu", "selu", "celu", "softplus", "mish", "softsign"),
        _SATURATES,
    ),
    **dict.fromkeys(("hardtanh", "relu6", "hardsigmoid", "hardswish", "logsigmoid"), _SATURATES),
}
DROPOUT = (
    "dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[dict[nn.Module, bool]]:
    """Put a module into evaluation mode, and each of its parts back; yields who was training."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        # The caller may have switched gradients off, as loops do where they measure.
        with torch.inference_mode(False), torch.enable_grad():
            yield modes
    finally:
        _set(modes)


def _set(modes: Mapping[nn.Module, bool]) -> None:
    for part, mode in modes.items():
        part.training = mode


def mode_matters(
    module: nn.Module, inputs: tuple[Tensor, ...], modes: Mapping[nn.Module, bool]
) -> bool:
    """Whether a module's outputs in the modes it was in differ from those in evaluation mode.

    It is left in evaluation mode. Its buffers, which batch statistics would move, are copied, and
    torch's random numbers are put back.
    """
    if not any(modes.values()):
        return False

    def outputs() -> Tensor:
        values = {k: double(t).clone() for k, t in itertools.chain(*_named(module))}
        found = torch.func.functional_call(module, values, tuple(t[:WATCHED] for t in inputs))
        return cast(Tensor, found)

    with torch.no_grad(), torch.random.fork_rng():
        evaluated = outputs()
        _set(modes)
        try:
            return not torch.equal(outputs(), evaluated)
        except ValueError:  # batch statistics of a single sample
            return True
        finally:
            module.eval()


class _Watch(TorchFunctionMode):
    """Writes down which functions a forward pass calls, and in which part of the module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = {id(part): name for name, part in module.named_modules()}
        self.inside: list[str] = []
        self.seen: dict[str, list[str]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name in TRAPS or name in DROPOUT:
            places = self.seen.setdefault(name, [])
            if self.place not in places:
                places.append(self.place)
        return func(*args, **(kwargs or {}))

    @property
    def place(self) -> str:
        """Name of the part that is running; empty for the module itself."""
        return next((name for name in reversed(self.inside) if name), "")

    @contextmanager
    def following(self) -> Iterator[None]:
        """Know which part is running."""

        def enter(part: nn.Module, _: Any) -> None:
            self.inside.append(self.names.get(id(part), ""))

        def leave(part: nn.Module, _: Any, __: Any) -> None:
            self.inside.pop()

        handles = [
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def functions_used(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, list[str]]:
    """Which of the functions in `TRAPS` and `DROPOUT` a forward pass calls, and in which parts."""
    watch = _Watch(module)
    values = {k: double(t) for k, t in itertools.chain(*_named(module))}
    few = tuple(tensor[:WATCHED].clone() for tensor in inputs)
    with evaluated_at(inputs), torch.no_grad(), watch.following(), watch:
        torch.func.functional_call(module, values, few)
    for tensor, original in zip(few, inputs, strict=True):
        if not torch.equal(tensor.nan_to_num(), original[:WATCHED].nan_to_num()):
            raise ValueError(
                "the module writes into its inputs, so a second evaluation sees other ones: "
                "compute x = x * 2 instead of x *= 2, and leave inplace=True out of its first layer"
            )
    return watch.seen


def _named(module: nn.Module) -> tuple[Iterator[tuple[str, Tensor]], Iterator[tuple[str, Tensor]]]:
    return module.named_parameters(), module.named_buffers()


@dataclass(frozen=True, eq=False)
class Checked:
    """A module with samples that it can be measured on.

    Attributes
    ----------
    gradients : MarginGradients
        Of the parameters that count.
    degree : float
        L.
    excluded : tuple of str
        Names of the parameters that do not count.
    warnings : tuple of str
        What the user must know.
    """

    gradients: MarginGradients
    degree: float
    excluded: tuple[str, ...]
    warnings: tuple[str, ...]


def check(
    module: nn.Module,
    given: tuple[Tensor | Array, ...],
    labels: ArrayLike,
    *,
    modes: Mapping[nn.Module, bool],
    optimizer: object,
) -> Checked:
    """Check all that does not depend on the norm, of a module in evaluation mode.

    Raises
    ------
    HomogeneityError
        The module is not homogeneous; the message names the part that breaks it, with a cure.
    ValueError
        Inputs, outputs or labels that do not fit; outputs that are random, depend on the other
        samples of a batch, or are not finite.
    """
    warnings = list[str]()
    for name, parameter in module.named_parameters():
        if parameter.is_complex():
            raise ValueError(
                f"parameter {name!r} is complex, and norms here are of real numbers: hold its real "
                "and imaginary parts in parameters of their own"
            )
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    inputs = as_inputs(given, len(given[0]) if given[0].ndim else 0, device)
    seen = functions_used(module, inputs)
    classes = _classes(module, inputs, labels)
    if mode_matters(module, inputs, modes):
        warnings.append(
            "the module is in training mode, where its outputs differ from those in evaluation "
            "mode; it was measured in the latter and left as it was: call module.eval() first"
        )
    dropped = [place for name in DROPOUT for place in seen.get(name, ())]
    if dropped:
        warnings.append(
            f"dropout in {_places(dropped)} is off here, while training with it minimises another "
            "loss: leave it out of a training whose limit is asked for"
        )
    pairs = Pairs.of(labels, len(inputs[0]), classes)
    gradients = MarginGradients(module, inputs, pairs)
    _check_outputs(gradients)
    excluded = without_gradient(gradients)
    warnings += [
        f"parameter {name!r} gets no gradient from any sample (a gate's own weights, or units that "
        "are all dead), so it is not trained and does not count in the norm: freeze it with "
        "requires_grad_(False), or make it a buffer"
        for name in excluded
    ]
    untouched = _left_out(module, optimizer)
    warnings += [
        f"parameter {name!r} is not among those of the optimizer, so it does not count in the "
        "norm: freeze it with requires_grad_(False), or give it to the optimizer"
        for name in untouched
    ]
    excluded = tuple(dict.fromkeys([*excluded, *untouched]))
    if excluded:
        names = [name for name in gradients.shapes if name not in excluded]
        if not names:
            raise ValueError(
                "no parameter gets a gradient, so nothing is trained: is the output computed from "
                "the parameters without detach() and without no_grad()?"
            )
        gradients = gradients.restricted(names, gradients.theta)
    return Checked(gradients, _degree(gradients, seen), excluded, tuple(warnings))


def _classes(module: nn.Module, inputs: tuple[Tensor, ...], labels: ArrayLike) -> int | None:
    """K of outputs (N, K); None of outputs (N,) or (N, 1)."""
    values = {k: double(t) for k, t in itertools.chain(*_named(module))}
    with torch.no_grad():
        outputs = torch.func.functional_call(module, values, tuple(t[:WATCHED] for t in inputs))
    n = min(WATCHED, len(inputs[0]))
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the module returns a {type(outputs).__name__}, but must return one tensor of outputs "
            "(N,) or (N, K): wrap it in a module that does"
        )
    if outputs.ndim not in (1, 2) or len(outputs) != n or outputs.numel() == 0:
        raise ValueError(
            f"the module's outputs have shape {tuple(outputs.shape)} for {n} samples, but must be "
            "(N,) or (N, 1) for labels -1 and +1, or (N, K) for classes 0 .. K - 1: flatten them, "
            "or average over positions"
        )
    classes = None if outputs.ndim == 1 or outputs.shape[1] == 1 else outputs.shape[1]
    found = np.unique(np.asarray(labels))
    if classes is None and set(found.tolist()) == {0, 1}:
        raise ValueError(
            "labels are 0 and 1, but the module has one output a sample: recode them as -1 and +1 "
            "(2 * labels - 1)"
        )
    if classes is not None and -1 in found:
        raise ValueError(
            f"labels are {found[:5].tolist()}, but the module has {classes} outputs a sample: pass "
            f"classes 0 .. {classes - 1}"
        )
    return classes


def _check_outputs(gradients: MarginGradients) -> None:
    """Refuse outputs that are not finite, or that depend on more than the sample."""
    theta = gradients.theta
    outputs = gradients.outputs(theta)
    if not np.isfinite(outputs).all():
        raise ValueError(
            "the module's outputs contain NaN or infinity: are its inputs finite, and did its "
            "training diverge?"
        )
    size = np.abs(outputs).max()
    if np.abs(gradients.outputs(theta) - outputs).max() > BATCH_TOLERANCE * size:
        raise ValueError(
            "the module's outputs are random: two evaluations differ. Switch off what draws random "
            "numbers in evaluation mode, such as dropout(training=True)"
        )
    half = (len(outputs) + 1) // 2
    with torch.no_grad():
        alone = gradients.outputs_of(theta, slice(0, half)).cpu().numpy()
    if np.abs(alone - outputs[:half]).max() > BATCH_TOLERANCE * size:
        raise ValueError(
            "a sample's output depends on the other samples of its batch (batch statistics?): the "
            "module must treat its samples one by one"
        )


def without_gradient(gradients: MarginGradients) -> tuple[str, ...]:
    """Names of the parameters, not 0, in which a random combination of margins has no gradient."""
    weights = np.random.default_rng(0).random(len(gradients.pairs))
    theta = gradients.parameters(gradients.theta)
    v = gradients.parameters(gradients.combine(gradients.theta, weights))
    none = tuple(name for name, part in v.items() if theta[name].any() and not part.any())
    # Where all margins are 0 they do not show which parameters could get a gradient.
    shown = gradients.margins(gradients.theta).any() or any(part.any() for part in v.values())
    return none if shown else ()


def _left_out(module: nn.Module, optimizer: object) -> tuple[str, ...]:
    """Names of trained parameters that an optimizer was not given."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return ()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    own = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not any(id(p) in held for _, p in own):
        return ()  # of another copy of the module
    return tuple(name for name, p in own if id(p) not in held)


# --- homogeneity -----------------------------------------------------------------------------


def _degree(gradients: MarginGradients, seen: Mapping[str, list[str]]) -> float:
    margins = gradients.margins(gradients.theta)
    if not margins.any():
        return math.nan  # nothing is separated, whatever the degree
    try:
        return measured_degree(gradients, None)
    except HomogeneityError as error:
        raise HomogeneityError(f"{_cause(gradients, seen)} ({error.deviation})") from error


def _cause(gradients: MarginGradients, seen: Mapping[str, list[str]]) -> str:
    """Why a module is not homogeneous, and what to do."""
    for name, places in seen.items():
        trap = TRAPS.get(name)
        if trap is not None:
            broken = inhomogeneous(gradients)
            of = f"; not homogeneous in {_places(broken)}" if broken else ""
            return f"{trap.what}: {name} in {_places(places)}{of}: {trap.cure}"
    degrees = sample_degrees(gradients)
    if degrees is not None:
        least = degrees.min()
        first = int(np.argmin(degrees))
        other = int(np.argmax(degrees))
        return (
            f"samples of different degrees: {least:.4g} at sample {first}, {degrees[other]:.4g} at "
            f"sample {other}. Only the samples of the least degree keep a share of the gradient, "
            "so training goes to a KKT point of their program alone: give all contexts paths of "
            "the same number of layers, or diagnose the samples of one degree"
        )
    added = added_terms(gradients)
    biases = [name for name in added if len(gradients.shapes[name]) <= 1]
    if biases:
        return (
            f"biases: with {_places(biases)} set to 0 the module is homogeneous. Leave them out "
            "(bias=False), or freeze them at 0; a constant feature of the inputs does as well"
        )
    mixed = mixed_degrees(gradients)
    if len(mixed) > 1:
        sums = " and ".join(f"{degree:d}" for degree in mixed)
        through = f" ({_places(added or inhomogeneous(gradients))})" if gradients.shapes else ""
        return (
            f"a skip connection: the outputs are a sum of terms of degrees {sums}{through}. Give "
            "all paths the same number of trained layers, or train with the shortcut's weights "
            "frozen at 0"
        )
    broken = inhomogeneous(gradients)
    of = f" in {_places(broken)}" if broken else ""
    return f"the module is not homogeneous{of}: use layers and activations that scale"


def _places(names: list[str] | tuple[str, ...]) -> str:
    shown = [repr(name) if name else "the module's forward" for name in names]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _scaled(gradients: MarginGradients, scale: float, names: Any = None) -> Array:
    """Compute the outputs with some parameters scaled, by default all."""
    parts = gradients.parameters(gradients.theta)
    scaled = {
        name: scale * part if names is None or name in names else part
        for name, part in parts.items()
    }
    return gradients.outputs(gradients.flat(scaled))


def inhomogeneous(gradients: MarginGradients) -> list[str]:
    """Parameters in each of which alone the outputs are not homogeneous, of any degree."""
    original, found = gradients.outputs(gradients.theta), []
    for name in gradients.shapes:
        up, down = (_scaled(gradients, scale, (name,)) for scale in (2.0, 0.5))
        factor = float((up * original).sum() / np.square(original).sum())
        errors = (np.abs(up - factor * original), np.abs(factor * down - original))
        if max(error.max() for error in errors) > DEGREE_TOLERANCE * np.abs(up).max():
            found.append(name)
    return found


def sample_degrees(gradients: MarginGradients) -> Array | None:
    """Degree of each sample (N,), if each has one but not all the same."""
    original = gradients.outputs(gradients.theta)
    up, down = (_scaled(gradients, scale) for scale in (2.0, 0.5))
    sizes = [np.abs(outputs).max(axis=1) for outputs in (down, original, up)]
    if min(size.min() for size in sizes) <= 0:
        return None
    factor = sizes[2] / sizes[1]
    error = np.maximum(
        np.abs(up - factor[:, None] * original).max(axis=1) / sizes[2],
        np.abs(factor[:, None] * down - original).max(axis=1) / sizes[1],
    )
    degrees = np.log2(factor)
    same = np.ptp(degrees) <= DEGREE_TOLERANCE
    return None if same or error.max() > DEGREE_TOLERANCE else degrees


def added_terms(gradients: MarginGradients) -> list[str]:
    """Parameters without which (at 0) the module is homogeneous: each of one set that must go.

    The set are the vectors and scalars, biases as a rule; where these are not to blame, a single
    parameter.
    """
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if vectors and _degree_without(gradients, vectors) > 0:
        needed = [
            name
            for name in vectors
            if not _degree_without(gradients, [other for other in vectors if other != name]) > 0
        ]
        return needed or vectors
    # The shortcut is what leaves the paths of the largest degree.
    degrees = {name: _degree_without(gradients, [name]) for name in gradients.shapes}
    largest = max(degrees.values())
    return [name for name, degree in degrees.items() if degree == largest > 0]


def _degree_without(gradients: MarginGradients, names: list[str]) -> float:
    """Degree with some parameters at 0; 0 where the rest is not homogeneous, or nothing."""
    parts = gradients.parameters(gradients.theta)
    rest = [name for name in parts if name not in names]
    if not rest:
        return 0.0
    at = {name: torch.zeros_like(part) if name in names else part for name, part in parts.items()}
    without = gradients.restricted(rest, gradients.flat(at))
    if not without.margins(without.theta).any():
        return 0.0
    try:
        return measured_degree(without, None)
    except HomogeneityError:
        return 0.0


def mixed_degrees(gradients: MarginGradients, largest: int = 6) -> list[int]:
    """Degrees of outputs that are a polynomial of the parameters' scale; empty if they are none."""
    scales = np.linspace(0.5, 2.0, largest + 4)
    outputs = np.stack([_scaled(gradients, float(s)).reshape(-1) for s in scales])
    powers = scales[:, None] ** np.arange(largest + 1)
    terms, *_ = np.linalg.lstsq(powers, outputs)
    size = np.abs(outputs).max()
    if np.abs(powers @ terms - outputs).max() > DEGREE_TOLERANCE * size:
        return []
    return [degree for degree in range(largest + 1) if np.abs(terms[degree]).max() > 1e-5 * size]


# --- the loss and the optimizer ----------------------------------------------------------------


def loss_warning(loss: object, classes: int | None) -> str:
    """Say what is wrong with a loss; empty if nothing is.

    Parameters
    ----------
    loss : str, MarginLoss, or callable
        A name or object of `implicit_bias.training.losses`, or a function (or torch module) of
        outputs and targets as torch's losses are.
    classes : int or None
        K.
    """
    if loss is None:
        return ""
    cure = "train with cross-entropy, the logistic or the exponential loss"
    if isinstance(loss, (str, MarginLoss)):
        if loss in ("cross-entropy", "cross_entropy"):
            return ""
        margin_loss = as_loss(loss)  # type: ignore[arg-type]
        try:
            check_exponential_like(margin_loss)
        except LossError as error:
            return f"the loss {margin_loss.name!r} is not exponential-like ({error}): {cure}"
        return ""
    name = _name_of(loss)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    if getattr(loss, "label_smoothing", 0.0):
        return (
            f"the loss {name} smooths its labels, so it has a finite minimiser and no limit in "
            "direction: train with label_smoothing=0"
        )
    growth = _tail_growth(loss, classes)
    if growth is None:
        return (
            f"the loss {name} could not be evaluated as a function of outputs and targets, so it "
            "was not checked: pass a function of both"
        )
    if growth < TAIL_GROWTH:
        return (
            f"the loss {name} is not exponential-like: its tail does not fall exponentially, so "
            f"training need not go to a maximum margin at all: {cure}"
        )
    return ""


def _tail_growth(loss: Callable[..., Any], classes: int | None) -> float | None:
    """How much f'(q) q grows, loss = exp(-f(q)); 0 where the loss does not fall; None: no value."""
    width, growth = classes or 1, None
    for target in _targets(width):
        slopes = list[float]()
        try:
            for q in TAIL_MARGINS:
                before, after = (_loss_at(loss, factor * q, classes, target) for factor in NEAR)
                falls = before > after > 0
                slopes.append(math.log(before / after) if falls else 0.0)
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue  # not the target that this loss takes
        growth = max(growth or 0.0, slopes[1] / slopes[0] if slopes[0] > 0 else 0.0)
    return growth


def _loss_at(loss: Callable[..., Any], margin: float, classes: int | None, target: Tensor) -> float:
    """Loss of one sample of the first class."""
    outputs = torch.zeros(1, classes or 1, dtype=torch.float64)
    outputs[0, 0] = margin
    given = outputs if classes is not None or target.ndim == 2 else outputs[:, 0]
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")  # of a target that this loss does not like
        return float(loss(given, target))


def _targets(width: int) -> Iterator[Tensor]:
    """Targets of one sample of the first class, as losses of torch like them."""
    yield torch.zeros(1, dtype=torch.int64)
    for shape in ((1,), (1, width)):
        target = torch.zeros(shape, dtype=torch.float64)
        target[..., 0] = 1.0
        yield target


LIMIT_NORMS: dict[str, str] = {
    "SGD": OPTIMIZER_LIMITS["sgd"].norm,
    **dict.fromkeys(("Adam", "AdamW", "NAdam", "RAdam", "Adamax"), OPTIMIZER_LIMITS["adam"].norm),
    **dict.fromkeys(("Sign", "SignDescent", "SignSGD", "Signum"), OPTIMIZER_LIMITS["sign"].norm),
    "Muon": OPTIMIZER_LIMITS["muon"].norm,
}
OPTIMIZER_OF = {
    "l2": "gradient descent",
    "linf": "sign descent and Adam",
    "l1": "coordinate descent",
    "spectral": "spectral descent (Muon)",
}


def optimizer_warnings(optimizer: object, norm: ParameterNorm) -> list[str]:
    """Say what is wrong with a norm for an optimizer.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, its class, or its name
        None is never wrong.
    norm : ParameterNorm
        The geometry asked for.
    """
    if optimizer is None:
        return []
    name = optimizer if isinstance(optimizer, str) else _name_of(optimizer)
    known = {key.lower(): (key, value) for key, value in LIMIT_NORMS.items()}
    label, own = known.get(name.lower(), (name, None))
    warnings = list[str]()
    if own is None:
        warnings.append(
            f"where {name} goes is not known as a norm of the parameters, so a gap in "
            f"{norm.name} says nothing of it: known are {', '.join(LIMIT_NORMS)}"
        )
    elif own != norm.name:
        warnings.append(
            f"{label} goes to KKT points in the {own} norm, not in {norm.name}: pass norm={own!r}"
        )
    groups = optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else []
    if any(group.get("weight_decay", 0.0) for group in groups):
        warnings.append(
            f"{label} has weight decay, which stops the weights from growing: the limit is that of "
            "a penalised loss, not of the margin; train with weight_decay=0"
        )
    return warnings


def _name_of(thing: object) -> str:
    if inspect.isclass(thing) or inspect.isfunction(thing) or inspect.isbuiltin(thing):
        return str(thing.__name__)
    return type(thing).__name__


def check_module(module: object) -> nn.Module:
    """Refuse what is no module.

    Raises
    ------
    TypeError
        A classifier, say.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"diagnose takes a torch module, not a {type(module).__name__}: of a classifier of "
            "this package pass classifier.network_, with network_.prepare(X) as inputs"
        )
    return module


def is_gated(module: nn.Module) -> bool:
    """Whether a module is one of this package's networks with fixed gates and one hidden layer."""
    return isinstance(module, Network) and module.fixed_gates and module.has_margin_structure
