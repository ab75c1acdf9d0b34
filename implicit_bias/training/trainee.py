"""What is trained towards its limit: a network of this package, or any homogeneous torch module.

A `Trainee` holds a module, its samples and its trained parameters, and knows what of them differs
between the two kinds: how inputs are prepared, which norm the margins are compared to, and what the
history records.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import as_features, pointing_to_the_page
from implicit_bias.modules import evaluate
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.margin_gradients import NO_PARAMETER, MarginGradients, differentiated
from implicit_bias.modules.stationarity import balance
from implicit_bias.modules.subject import NOTHING_TRAINED, Subject, margins_of, offering_leading
from implicit_bias.networks import Network
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm, check_parts
from implicit_bias.problem.margins import smallest_margins, soft_margins
from implicit_bias.training.history import HistoryPoint, Observer
from implicit_bias.training.losses import MarginLoss

if TYPE_CHECKING:
    from torch.nn import Parameter

# Inputs of a module: one argument, or a tuple of its arguments, samples as the first axis of each.
Inputs: TypeAlias = ArrayLike | Tensor | tuple[ArrayLike | Tensor, ...]


class Trainee(ABC):
    """A module and the samples that it is trained on, in float64.

    Attributes
    ----------
    module : nn.Module
        Trained in place.
    inputs : tuple of Tensor
        Arguments of the module, each with the samples as first axis.
    labels : Tensor of shape (N,)
        -1 and +1, or classes 0..K-1.
    parameters : dict from name to Parameter
        What is trained; all else is constant.
    degree : float
        L: f(x; c theta) = c^L f(x; theta).
    norm : ParameterNorm
        The geometry.
    chunk : int or None
        Samples that one pass takes at a time.
    has_program : bool
        Whether the margin problem is known to be that of `size`, so that an optimum is known.
    leading : bool
        Whether the degree and the gap are those of the leading part.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    labels: Tensor
    parameters: dict[str, Parameter]
    degree: float
    norm: ParameterNorm
    chunk: int | None
    has_program: bool
    leading: bool = False

    @abstractmethod
    def smallest_margin(self, outputs: Tensor) -> float:
        """Smallest margin of outputs (N,) or (N, K)."""

    @final
    def size(self) -> float:
        """Norm to which margins are compared, homogeneous of the same degree as the outputs.

        Raises
        ------
        ValueError
            It is no finite number.
        """
        with suppress(OverflowError):
            if math.isfinite(size := self.norm_of_degree()):
                return size
        raise ValueError(
            f"the norm of the parameters to the power {self.degree:.4g} is no finite number: scale "
            "the parameters down; a positive factor changes no gap"
        )

    @abstractmethod
    def norm_of_degree(self) -> float:
        """Compute `size`, which may be infinite, or raise OverflowError."""

    @abstractmethod
    def observer(self, loss: MarginLoss) -> Callable[[int], HistoryPoint]:
        """Return what measures the module after some steps; the gates it starts from are kept."""

    @abstractmethod
    def balance(self) -> float:
        """Deviation from |w_h| = ||W_h||, eq. (18); nan where that is not known."""

    @abstractmethod
    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Arguments of the module for further inputs (n, D)."""

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return self.labels.device

    def chunks(self) -> Iterator[slice]:
        """Yield the samples that one pass takes, one chunk after the other."""
        size = self.chunk or len(self.labels)
        for start in range(0, len(self.labels), size):
            yield slice(start, start + size)

    def chunk_outputs(self, rows: slice) -> Tensor:
        """Compute the outputs (n,) or (n, K) of some samples."""
        return outputs_of(self.module, tuple(tensor[rows] for tensor in self.inputs))

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Compute the outputs (N,) or (N, K) of all samples, without a gradient."""
        parts = [self.chunk_outputs(rows) for rows in self.chunks()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.no_grad()
    def predictions(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Predicted classes (n,) of further inputs: whether f(x) > 0, or the largest f_k(x)."""
        return predicted(outputs_of(self.module, inputs))

    def check_homogeneous(self) -> None:
        """Refuse a network of this package that has a bias; other modules are checked at once.

        Raises
        ------
        HomogeneityError
            A readout bias.
        """
        if isinstance(self.module, Network) and not self.module.homogeneous:
            raise HomogeneityError(
                "a network with a readout bias is not homogeneous, so it has no KKT gap: build it "
                "without one (readout_bias=False)"
            )

    @property
    def gradients(self) -> MarginGradients:
        """Margins of the module as it is, with their gradients."""
        with torch.no_grad():
            outputs, labels = self.chunk_outputs(slice(0, 1)), self.labels.cpu().numpy()
        classes = outputs.shape[1] if outputs.ndim == 2 else None
        return MarginGradients(self.module, self.inputs, labels, classes, names=self.parameters)

    def gap(self, deadline: Deadline = NEVER) -> float:
        """Relative KKT gap in the trainee's norm, with the best multipliers.

        It is nan where a sample is on the wrong side.
        """
        subject = Subject.known(self.gradients, self.degree, leading=self.leading)
        return subject.gap(self.norm, deadline=deadline)


@pointing_to_the_page()
def as_trainee(
    module: nn.Module,
    inputs: Inputs,
    labels: ArrayLike | Tensor,
    norm: ParameterNorm = PARAMETER_NORMS["l2"],
    chunk: int | None = None,
    *,
    leading: bool = False,
) -> Trainee:
    """Check a module and its samples, and make a trainee of them.

    Parameters
    ----------
    module : nn.Module
        A network of this package, or any homogeneous module, in float64.
    inputs : array_like, Tensor or tuple of them
        Of a network of this package the samples (N, D); of another module its argument, or a tuple
        of its arguments, each with the samples as first axis.
    labels : array_like of shape (N,)
        -1 and +1 for one output a sample, 0..K-1 for K outputs.
    norm : ParameterNorm
        The geometry.
    chunk : int, optional
        Samples that one pass takes at a time.
    leading : bool
        Whether a module may be homogeneous in the limit only, as of large parameters.

    Raises
    ------
    ValueError
        Weights that are not float64; inputs, outputs or labels that do not fit, or are not finite;
        no parameter to train; outputs that depend on the rest of the batch, or on chance.
    HomogeneityError
        A module that is not homogeneous in its parameters.
    """
    module = evaluate.as_module(module)
    check_parts(norm, [name for name, p in module.named_parameters() if p.requires_grad])
    if isinstance(module, Network):
        return _NetworkTrainee(module, inputs, labels, norm, chunk)  # type: ignore[arg-type]
    return _ModuleTrainee(module, inputs, labels, norm, chunk, leading=leading)


def outputs_of(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Compute the outputs (n,) or (n, K) of a module; (n, 1) counts as (n,)."""
    outputs: Tensor = module(*inputs)
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def predicted(decision: Tensor) -> Tensor:
    """Classes (n,) of outputs: whether f(x) > 0, or the k of the largest f_k(x)."""
    return decision > 0 if decision.ndim == 1 else decision.argmax(dim=1)


def _check_double(parameters: Mapping[str, Tensor]) -> None:
    if {weights.dtype for weights in parameters.values()} != {torch.float64}:
        raise ValueError(
            "training towards the limit needs float64: build the network with "
            "dtype=torch.float64 (dtype='float64'), or call network.double()"
        )


@final
class _NetworkTrainee(Trainee):
    """A network of this package."""

    def __init__(
        self,
        network: Network,
        X: ArrayLike,
        y: ArrayLike,
        norm: ParameterNorm,
        chunk: int | None,
    ) -> None:
        self.module = self.network = network
        self.norm, self.chunk, self.degree = norm, chunk, float(network.n_layers)
        self.has_program = network.has_margin_structure
        self.parameters = dict(network.named_parameters())
        _check_double(self.parameters)
        self.inputs, self.labels = network.prepare_samples(X, y)

    def smallest_margin(self, outputs: Tensor) -> float:
        return self.network.smallest_margin(outputs, self.labels)

    def norm_of_degree(self) -> float:
        if self.norm == PARAMETER_NORMS["l2"]:
            return self.network.norm()
        weights = {k: w.detach() for k, w in self.parameters.items() if k != "readout_bias"}
        return self.norm.value(weights) ** self.degree

    def observer(self, loss: MarginLoss) -> Callable[[int], HistoryPoint]:
        observe = Observer(self.network, self.inputs, self.labels, loss)
        return lambda step: replace(observe(step), norm=self.size())

    def balance(self) -> float:
        return balance(self.network)

    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        return self.network.prepare(as_features(X, self.network.n_features))


@contextmanager
def of_no_limit(parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Say what it means for a training that a module is not homogeneous."""
    double = all(weights.dtype == torch.float64 for weights in parameters.values())
    module = "module" if double else "module.double()"
    try:
        with offering_leading(f"call `train_to_limit({module}, inputs, labels, leading=True)`"):
            yield
    except HomogeneityError as error:
        raise HomogeneityError(f"training has no limit that is known: {error}") from error


@final
class _ModuleTrainee(Trainee):
    """Any homogeneous module."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        labels: ArrayLike | Tensor,
        norm: ParameterNorm,
        chunk: int | None,
        *,
        leading: bool,
    ) -> None:
        self.module, self.norm, self.chunk, self.leading = module, norm, chunk, leading
        self.has_program = not leading
        trained = (item for item in module.named_parameters() if item[1].requires_grad)
        given = {name: w for name, w in trained if w.numel()}
        if not given:
            raise ValueError(NO_PARAMETER)
        for name, w in given.items():
            if w.is_inference():
                raise ValueError(
                    f"the parameter {name!r} was made in torch.inference_mode(), so it cannot be "
                    "set: make the module, or a deepcopy of it, outside"
                )
            if any(step == 0 and n > 1 for step, n in zip(w.stride(), w.shape, strict=True)):
                raise ValueError(
                    f"entries of the parameter {name!r} share memory, so that none can be set: "
                    "make it of expanded.clone()"
                )
        device, signs = next(iter(given.values())).device, evaluate.labels_as_array(labels)
        self.inputs = evaluate.as_inputs(evaluate.as_arguments(inputs, module), len(signs), device)
        probes = tuple(tensor[: evaluate.PROBES] for tensor in self.inputs)
        with evaluate.undisturbed(module):
            with of_no_limit(given):
                gradients = margins_of(
                    *(module, probes, signs[: evaluate.PROBES]),
                    homogeneous=None if leading else given,
                )
            whole = MarginGradients(module, self.inputs, signs, gradients.classes)
            self.labels = torch.tensor(whole.labels, device=device)
            # A parameter without a gradient (a gate's weights) is constant, and no part of theta.
            values = evaluate.values_of(module)
            leaves = [values[name].requires_grad_() for name in given]
            total = evaluate.evaluate(module, values, probes).sum()
            if not total.requires_grad:
                raise ValueError(NOTHING_TRAINED)
            with differentiated(module):
                slopes = torch.autograd.grad(total, leaves, allow_unused=True)
            reached = zip(given.items(), slopes, strict=True)
            self.parameters = {name: w for (name, w), slope in reached if slope is not None}
            with of_no_limit(given):
                self.degree = Subject.of(gradients, self.parameters, leading=leading).degree
        _check_double(given)

    def smallest_margin(self, outputs: Tensor) -> float:
        return smallest_margins(outputs, self.labels).min().item()

    def norm_of_degree(self) -> float:
        weights = {name: w.detach() for name, w in self.parameters.items()}
        return self.norm.value(weights) ** self.degree

    def observer(self, loss: MarginLoss) -> Callable[[int], HistoryPoint]:
        def observe(step: int) -> HistoryPoint:
            outputs = self.outputs()
            smallest = smallest_margins(outputs, self.labels)
            return HistoryPoint(
                step=step,
                loss=loss(soft_margins(outputs, self.labels)).mean().item(),
                error=(smallest <= 0).double().mean().item(),
                min_margin=smallest.min().item(),
                norm=self.size(),
                gates_changed=math.nan,
            )

        return observe

    def balance(self) -> float:
        return math.nan

    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        return evaluate.as_inputs((np.asarray(X),), len(np.asarray(X)), self.device)
