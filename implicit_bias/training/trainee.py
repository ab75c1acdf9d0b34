"""What is trained towards its limit: the log of a module's loss as a function of its weights.

F(theta) = log(1/N sum_n l(s_n)),     s_n the (log-sum-exp) margin of sample n.

A `Trainee` is a network of this package, or any other homogeneous torch module, with its samples.
It evaluates F and its gradient at any weights theta, and measures the module at those it has.

Samples enter in chunks, so that memory is bounded. With the chunks' own sums S_c of losses,
F + log N = log sum_c S_c, and the gradient of F is the mean of the gradients of the log S_c with
the weights S_c / sum S; both are accumulated without underflow.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import as_class_labels, as_labels, pointing_to_the_page
from implicit_bias.base.wording import listed_parts
from implicit_bias.modules import evaluate
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.margins import NO_PARAMETER, Margins, differentiated
from implicit_bias.modules.stationarity import balance
from implicit_bias.modules.subject import NOTHING_TRAINED, Subject, margins_of, offering_leading
from implicit_bias.networks import Network
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm, check_parts
from implicit_bias.problem.margins import logsumexp_margins
from implicit_bias.training.history import (
    chunks,
    min_margin,
    outputs_in_chunks,
    outputs_of,
    samples_of,
)
from implicit_bias.training.losses import LOSSES, MarginLoss

# Inputs of a module: one argument, or a tuple of its arguments, samples as the first axis of each.
Inputs: TypeAlias = ArrayLike | Tensor | tuple[ArrayLike | Tensor, ...]


@dataclass(frozen=True, eq=False)
class State:
    """All that the next step of a descent depends on.

    Attributes
    ----------
    step : int
        Gradients so far.
    weights, velocity : Tensor of shape (P,)
        theta and v; of steepest descent the moving average m of the gradients.
    age : int
        k, the steps since the velocity was last 0.
    log_loss, min_margin : float
        F and the smallest margin at the weights.
    step_size : float
        The one to be tried next.
    evaluations, restarts : int
        Forward passes of the backtracking so far, and how often the velocity was set to 0.
    variation : float
        V of steepest descent; 0 before its first step.
    """

    step: int
    weights: Tensor
    velocity: Tensor
    age: int
    log_loss: float
    min_margin: float
    step_size: float = 1.0
    evaluations: int = 0
    restarts: int = 0
    variation: float = 0.0


@dataclass(frozen=True, eq=False)
class Trainee:
    """A module, in float64 and trained in place, and its training samples.

    Attributes
    ----------
    module : nn.Module
        A network of this package, or any other module.
    inputs : tuple of Tensor
        Arguments of the module, each with the samples as first axis.
    labels : Tensor of shape (N,)
        -1 and +1, or classes 0..K-1.
    parameters : dict from name to Parameter
        What is trained, theta (P,) one after the other; all else is constant.
    degree : float
        L: f(x; c theta) = c^L f(x; theta).
    norm : ParameterNorm
        Norm of the steepest descent.
    loss : MarginLoss
        l.
    chunk : int or None
        Samples that one pass takes at a time; None for all.
    leading : bool
        Whether the degree and the gap are those of the leading-order part.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    labels: Tensor
    parameters: dict[str, nn.Parameter]
    degree: float
    norm: ParameterNorm
    loss: MarginLoss
    chunk: int | None
    leading: bool

    # --- F and its gradient at any weights

    def start(self) -> State:
        """Return the state at the module's present weights, at rest."""
        weights = flattened(self.parameters.values()).detach()
        log_loss, margin, _ = self.evaluate(weights)
        if not math.isfinite(log_loss):
            raise ValueError(
                f"the log loss is {log_loss} at the network's present weights: they, or the "
                "outputs, are not finite; start from smaller weights"
            )
        return State(0, weights, torch.zeros_like(weights), 0, log_loss, margin)

    @torch.no_grad()
    def set_weights(self, weights: Tensor) -> None:
        """Give the module the weights (P,)."""
        for name, values in self.by_name(weights).items():
            self.parameters[name].copy_(values)

    def by_name(self, weights: Tensor) -> dict[str, Tensor]:
        """View a vector (P,) as the parameters, by name."""
        parts = dict[str, Tensor]()
        start = 0
        for name, w in self.parameters.items():
            parts[name] = weights[start : start + w.numel()].view_as(w)
            start += w.numel()
        return parts

    @torch.no_grad()
    def evaluate(self, weights: Tensor) -> tuple[float, float, Tensor]:
        """F, the smallest margin, and the logarithms of the losses (N,) at weights (P,)."""
        self.set_weights(weights)
        outputs = outputs_in_chunks(self.module, self.inputs, self.chunk)
        # In logarithms, as the losses themselves underflow late in a training.
        log_losses = self.loss.log_loss(logsumexp_margins(outputs, self.labels))
        log_loss = torch.logsumexp(log_losses, dim=0) - math.log(len(log_losses))
        return log_loss.item(), min_margin(self.module, outputs, self.labels), log_losses

    def differentiate(self, weights: Tensor) -> tuple[float, Tensor, Tensor]:
        """F, its gradient (P,), and the logarithms of the losses (N,) at weights (P,)."""
        self.set_weights(weights)
        log_n = math.log(len(self.labels))
        # The logarithm of sum S_c over the chunks so far, and its gradient.
        log_sum = weights.new_full((), -math.inf)
        gradient = torch.zeros_like(weights)
        all_log_losses = []
        for rows in chunks(len(self.labels), self.chunk):
            outputs = outputs_of(self.module, samples_of(self.inputs, rows))
            log_losses = self.loss.log_loss(logsumexp_margins(outputs, self.labels[rows]))
            log_S = torch.logsumexp(log_losses, dim=0)
            with differentiated():
                parts = torch.autograd.grad(log_S - log_n, list(self.parameters.values()))
            log_S = log_S.detach()
            # Both gradients are weighted by their fractions of the sum, neither of which overflows.
            both = torch.logaddexp(log_sum, log_S)
            gradient *= (log_sum - both).exp()
            gradient += (log_S - both).exp() * flattened(parts)
            log_sum = both
            all_log_losses.append(log_losses.detach())
        return (log_sum - log_n).item(), gradient, torch.cat(all_log_losses)

    # --- the module as it is

    @cached_property
    def has_units(self) -> bool:
        """Whether there are units that can be left behind as the weights grow, or that can die.

        A linear predictor has none.
        """
        return not Subject(self.function, self.degree).linear

    @property
    def has_margin_problem(self) -> bool:
        """Whether the limit is known as the optimum of a convex problem, with the norm `size`."""
        if isinstance(self.module, Network):
            return self.module.has_margin_structure
        return not self.leading

    @property
    def function(self) -> Margins:
        """Margins of the module as it is, with their gradients."""
        with torch.no_grad():
            outputs = outputs_of(self.module, samples_of(self.inputs, slice(1)))
        classes = None
        if outputs.ndim == 2:
            classes = outputs.shape[1]
        labels = self.labels.cpu().numpy()
        return Margins(self.module, self.inputs, labels, classes, names=self.parameters)

    def size(self) -> float:
        """Norm to which margins are compared, homogeneous of the same degree as the outputs."""
        if isinstance(self.module, Network) and self.norm == PARAMETER_NORMS["l2"]:
            return self.module.norm()
        weights = {name: w.detach() for name, w in self.parameters.items()}
        # The margins of a network of this package leave the readout's bias out, too.
        if isinstance(self.module, Network):
            weights.pop("readout_bias", None)
        # Of degree L, as the margins are, so that their ratio does not depend on the scale.
        return self.norm.value(weights) ** self.degree

    def balance(self) -> float:
        """Deviation from |w_h| = ||W_h||, eq. (18); nan where that is not known."""
        if isinstance(self.module, Network):
            return balance(self.module)
        return math.nan

    def gap(self, deadline: Deadline = NEVER) -> float:
        """Relative KKT gap in the trainee's norm, with the best multipliers.

        It is nan where a sample is misclassified.
        """
        subject = Subject.known(self.function, self.degree, leading=self.leading)
        return subject.gap(self.norm, deadline=deadline)

    @torch.no_grad()
    def predictions(self, X: ArrayLike) -> Tensor:
        """Predicted classes (n,) of further inputs (n, D)."""
        arguments = evaluate.as_arguments(X, self.module)
        inputs = evaluate.as_inputs(arguments, len(arguments[0]), self.labels.device)
        return predicted(outputs_of(self.module, inputs))


def predicted(decision: Tensor) -> Tensor:
    """Classes (n,) of outputs: whether f(x) > 0, or the k of the largest f_k(x)."""
    if decision.ndim == 1:
        return decision > 0
    return decision.argmax(dim=1)


def flattened(parts: Iterable[Tensor]) -> Tensor:
    """Put tensors one after the other, as one vector (P,)."""
    return torch.cat([part.reshape(-1) for part in parts])


@pointing_to_the_page()
def as_trainee(
    module: nn.Module,
    inputs: Inputs,
    labels: ArrayLike | Tensor,
    norm: ParameterNorm = PARAMETER_NORMS["l2"],
    chunk: int | None = None,
    *,
    loss: MarginLoss = LOSSES["exponential"],
    leading: bool = False,
    deadline: Deadline = NEVER,
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
        Norm of the steepest descent.
    chunk : int, optional
        Samples that one pass takes at a time.
    loss : MarginLoss
        Loss of a margin.
    leading : bool
        Whether a module may be homogeneous in the limit only, as of large parameters.
    deadline : Deadline
        When to end the search for that limit.

    Raises
    ------
    TimeoutError
        The deadline has passed before the degree of the limit was known.
    ValueError
        Weights that are not float64; inputs, outputs or labels that do not fit, or are not finite;
        no parameter to train; outputs that depend on the rest of the batch, or on chance.
    HomogeneityError
        A module that is not homogeneous in its parameters.

    Warns
    -----
    RuntimeWarning
        There was no time to look for jumps of the limit in some parameters.
    """
    module = evaluate.as_module(module)
    trained = {name: w for name, w in module.named_parameters() if w.requires_grad and w.numel()}
    check_parts(norm, list(trained))
    if isinstance(module, Network):  # whose degree is known
        _check_double(trained)
        prepared, targets = module.prepare_samples(inputs, labels)  # type: ignore[arg-type]
        degree = float(module.n_layers)
        return Trainee(module, prepared, targets, trained, degree, norm, loss, chunk, leading=False)

    if not trained:
        raise ValueError(NO_PARAMETER)
    # --- samples, on the device of the parameters
    array = evaluate.labels_as_array(labels)
    device = next(iter(trained.values())).device
    tensors = evaluate.as_inputs(evaluate.as_arguments(inputs, module), len(array), device)
    # --- homogeneity, which is measured on the first samples: a bias shows there as well as on all
    first = samples_of(tensors, slice(evaluate.PROBES))
    name_of_module = "module"
    if not _is_double(trained):
        name_of_module = "module.double()"
    call = f"call `train_to_limit({name_of_module}, inputs, labels, leading=True)`"
    with evaluate.undisturbed(module) as copied, offering_leading(call):
        function = margins_of(copied, first, array[: evaluate.PROBES])
        if function.classes is None:
            y = as_labels(array, len(array))
        else:
            y, _ = as_class_labels(array, len(array), function.classes)
        # --- theta: a parameter without a gradient (a gate's weights) is constant, no part of it
        values = evaluate.values_of(copied)
        leaves = [values[name].requires_grad_() for name in trained]
        # Of all outputs in one: it only matters here which parameters reach them.
        total = evaluate.evaluate(copied, values, first).sum()
        if not total.requires_grad:
            raise ValueError(NOTHING_TRAINED)
        with differentiated():
            slopes = torch.autograd.grad(total, leaves, allow_unused=True)
        reached = dict[str, nn.Parameter]()
        for (name, w), slope in zip(trained.items(), slopes, strict=True):
            if slope is not None:
                reached[name] = w
        subject = Subject.of(function, reached, leading=leading, deadline=deadline)
    if subject.not_checked:
        warnings.warn(
            f"whether the leading-order part jumps in {listed_parts(subject.not_checked)} was not "
            "checked, for lack of time: pass a larger max_seconds",
            RuntimeWarning,
            stacklevel=3,
        )
    _check_double(trained)
    targets = torch.tensor(y, device=device)
    return Trainee(module, tensors, targets, reached, subject.degree, norm, loss, chunk, leading)


def _is_double(parameters: dict[str, nn.Parameter]) -> bool:
    return all(weights.dtype == torch.float64 for weights in parameters.values())


def _check_double(parameters: dict[str, nn.Parameter]) -> None:
    if not _is_double(parameters):
        raise ValueError(
            "training towards the limit needs float64: build the network with "
            "dtype=torch.float64 (dtype='float64'), or call network.double(), which changes the "
            "network in place, so that its optimizer still holds its parameters"
        )


def check_homogeneous(module: nn.Module) -> None:
    """Refuse a network of this package that has a bias; other modules are checked at once.

    Raises
    ------
    HomogeneityError
        A readout bias.
    """
    if isinstance(module, Network) and not module.homogeneous:
        raise HomogeneityError(
            "a network with a readout bias is not homogeneous, so it has no KKT gap: build it "
            "without one (readout_bias=False)"
        )
