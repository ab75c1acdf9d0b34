r"""Weight decay: how far a network is from the limit of an optimizer that shrinks its weights.

A step with *decoupled* weight decay lambda_p of tensor p (AdamW, Lion, Muon) is

    theta_p <- (1 - eta lambda_p) theta_p - eta s_p u_p,

u_p the unit direction of steepest descent in the tensor's norm. That is a Frank-Wolfe step of

    minimize  L(theta)   subject to   ||theta_p||_p <= r_p = s_p / lambda_p  for every tensor p,

and where it converges it is at a KKT point of this problem (Xie and Li 2024; Chen et al. 2023), not
of a margin problem. With g the gradient of the loss that was minimized,

    gap    =  sum_p  r_p ||g_p||_{p,*} + <g_p, theta_p>           the Frank-Wolfe gap,
    score  =  gap / sum_p r_p ||g_p||_{p,*},

within the box the score is 0 exactly at a KKT point, and at most 2. Steps longer than s_p (Adam's,
where gradients grow) may lead out of the box. There the score alone says nothing: `reached` says
how far out the weights are.
Where L is convex, as of modules that are linear in their parameters, the gap bounds
L(theta) - min L over the box.

*Coupled* decay (SGD, Adam) is a penalty lambda / 2 ||theta||^2 instead: the measure is
||g + lambda theta|| / ||g||, over the tensors that have it.

==========  ==================================================================================
symbol      meaning
==========  ==================================================================================
lambda_p    weight decay of tensor p
s_p         scale of its steps, `modules.steps`
r_p         radius of its ball
||.||_p     linf of its entries (AdamW, Lion), or spectral (Muon), or the largest l2 norm of a row
            or a column (Scion)
||.||_{p,*} l1 of the entries, or nuclear, or the sum over the rows or columns
==========  ==================================================================================

Nothing else is asked of the module: it need not be homogeneous, nor separate the samples.

Source: Xie and Li (2024), "Implicit bias of AdamW"; Chen et al. (2023), "Lion secretly solves
constrained optimization"; Chen, Li and Liu (2025), "Muon optimizes under spectral norm
constraints".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from implicit_bias.diagnosis.loss_tail import JudgedLoss, Loss
from implicit_bias.modules.evaluate import as_module, same_random_numbers
from implicit_bias.modules.loading import Batch, batches
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.optimizers import has_decay
from implicit_bias.modules.past_rates import PastDecay, Rates, sums_of_decay
from implicit_bias.modules.steps import OptimizerError, Step, size_beside_eps, steps_of
from implicit_bias.norms.tensors import matrix_shape
from implicit_bias.training.losses import MarginLoss


class BoxThresholds:
    """From where on weights are near a KKT point or outside of the box, and decay has acted.

    Attributes
    ----------
    near : float
        Weights are near a KKT point if the score is at most this.
    negligible : float
        They are near one, too, if the gap is at most this fraction of the loss. At a KKT point
        inside of the box the gradient vanishes, and the score is a quotient of two small numbers.
    outside : float
        Norms that exceed their radius by more than this fraction are outside of the box.
    wall : float
        A weight or singular value within this fraction of the radius is at the wall.
    acted : float
        The limit with weight decay describes the weights if ``decayed`` is at least this.
    short : float
        Steps are shorter than those of the box if eps is at least this fraction of the gradients:
        a gradient of this size over the sum of both is a step of length 1 / (1 + short).
    """

    near: Final = 0.05
    negligible: Final = 1e-3
    outside: Final = 0.05
    wall: Final = 0.01
    acted: Final = 0.5
    short: Final = 0.1


@dataclass(frozen=True, eq=False)
class BoxLimit:
    r"""How far a network is from a KKT point of its loss in the box that weight decay sets.

    .. math:: \min_\theta \; L(\theta) \quad \text{subject to} \quad \|\theta_p\|_p \le r_p, \qquad
        \text{gap} = \sum_p r_p \|g_p\|_{p,*} + \langle g_p, \theta_p \rangle

    with the gradient g_p of tensor p and the radius r_p = s_p / lambda_p of its steps s_p and
    its weight decay lambda_p.

    Attributes
    ----------
    score : float
        The Frank-Wolfe gap over the sum of r_p ||g_p||_{p,*}: 0 at a KKT point, at most 2 in the
        box; nan where no tensor has decoupled decay.
    gap : float
        The Frank-Wolfe gap, in units of the loss.
    loss : float
        The loss at the weights.
    lower_bound : float
        Of modules that are linear in their parameters, a lower bound on the loss in the box, given
        that the loss is convex in the outputs; nan of others, and where a tensor has no radius.
    radii : dict from str to float
        Radius of each tensor, by name; inf of one without decoupled decay.
    norms : dict from str to float
        Norm of each tensor that has a radius.
    reached : float
        The largest norm over its radius.
    at_wall : float
        Fraction of the weights (of Muon's tensors the singular values) of at least 99 % of the
        radius.
    decayed : float
        How far decay has acted, 1 - exp(-sum_t eta_t lambda) of all past rates eta_t, of the tensor
        of which it is least; nan, unknown, where these rates are. Momentum lengthens coupled decay;
        that of normalized steps (Adam) depends on the gradients, and is nan. Of a scheduler that
        steps once per epoch it is right if the epochs had ``epoch_steps`` steps.
    free : dict from str to float
        Dual norm of the gradient of each tensor without decay.
    penalty_score : float
        ||g + lambda theta|| / ||g|| over the tensors with coupled decay; nan without such, inf
        where only g is 0.
    gradient_norm : float
        ||g||_2 over all tensors. Where it is 0, all weights in the box are a KKT point.
    eps_ratio : float
        The optimizer's eps over the size of the gradients, the smallest of all tensors: the root
        mean square of a tensor's entries, or the l2 norm of a matrix of Muon. Where it is not far
        below 1, steps are shorter than those that lead to the walls of the box; nan without eps, or
        where no tensor with eps has a gradient.
    epoch_steps : tuple of int
        Optimizer steps per epoch that ``decayed`` assumes, one number for each length, where
        ``rates`` was a scheduler that steps once per epoch. They are inferred from both counts of
        steps; a wrong one means that you asked in the middle of an epoch. Empty otherwise.

    Notes
    -----
    Xie and Li (2024), lemma 3.8, for AdamW; Chen et al. (2023) for Lion.

    In the box the score is at least 1 - ``reached``, since <g_p, theta_p> >= -||g_p||_{p,*}
    ||theta_p||_p: weights that stay far from all walls have a score near 1, however small the
    gradient is. Where decay has acted, theta_p / r_p is minus an average of the last steps u_p,
    of norm 1 each. So ``reached`` is small where steps cancel, or were shorter than their rate.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import box_gap
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.zero_()
    >>> adamw = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    >>> loss = torch.nn.functional.cross_entropy
    >>> found = box_gap(model, torch.eye(2), torch.tensor([0, 1]), optimizer=adamw, loss=loss)
    >>> found.score, found.near, found.radii
    (1.0, False, {'weight': 10.0})
    """

    score: float
    gap: float
    loss: float
    lower_bound: float
    radii: dict[str, float]
    norms: dict[str, float]
    reached: float
    at_wall: float
    decayed: float
    free: dict[str, float]
    penalty_score: float
    gradient_norm: float
    eps_ratio: float
    epoch_steps: tuple[int, ...] = ()

    @property
    def near(self) -> bool:
        """Whether each score is at most .05, or the gap negligible, with weights in the box."""
        if not math.isnan(self.penalty_score) and self.penalty_score > BoxThresholds.near:
            return False
        # Without decoupled decay there is no box to be in.
        if math.isnan(self.score):
            return True
        negligible = self.gap <= BoxThresholds.negligible * abs(self.loss)
        small = self.score <= BoxThresholds.near or negligible
        return small and self.reached <= 1.0 + BoxThresholds.outside

    @property
    def describes(self) -> bool | None:
        """Whether this limit, not the margin problem, describes the weights; None: not known."""
        if math.isnan(self.decayed):
            return None
        return self.decayed >= BoxThresholds.acted

    @property
    def short_steps(self) -> bool:
        """Whether the optimizer's eps makes its steps shorter than those of the box."""
        return self.eps_ratio >= BoxThresholds.short

    def __str__(self) -> str:
        found = "near" if self.near else "not near"
        if math.isnan(self.score):
            return (
                f"Weight decay as a penalty: {found} a stationary point, "
                f"|g + decay theta| / |g| = {self.penalty_score:.3g} (0 = stationary)."
            )
        size = f"The largest norm is {self.reached:.3g} times its radius"
        if self.reached > 1.0 + BoxThresholds.outside:
            size += ", outside of the box (as where gradients grow faster than beta2 forgets)"
        lines = [
            f"{found.capitalize()} a KKT point of the loss in the box that weight decay sets: "
            f"score {self.score:.3g} (0 = KKT point).",
            f"{size}; {100 * self.at_wall:.3g} % of the weights or singular values are at or "
            "beyond 99 % of it.",
        ]
        # In the box <g, theta> >= -||g||_* ||theta||.
        least = 1.0 - self.reached
        if not self.near and least > BoxThresholds.near and self.gradient_norm > 0.0:
            lines.append(
                f"The score is at least 1 - {self.reached:.3g} = {least:.3g} until the weights "
                "are nearer to the walls of the box."
            )
        if self.describes is None:
            lines.append("How far decay has acted is unknown: pass rates=.")
        elif not self.describes:
            lines.append(
                f"Decay has acted to {100 * self.decayed:.3g} % only: the margin problem describes "
                "the weights better. Train longer for the problem in the box."
            )
        else:
            lines.append(f"Decay has acted to {100 * self.decayed:.3g} %.")
        if self.epoch_steps:
            lengths = " and ".join(str(length) for length in self.epoch_steps)
            lines.append(f"This assumes epochs of {lengths} steps; else pass rates= as a list.")
        if self.gradient_norm == 0.0:
            lines.append("The gradient of the loss is 0: any weights in the box are a KKT point.")
        elif self.short_steps:
            lines.append(
                f"The optimizer's eps is {self.eps_ratio:.3g} times the gradients, so its steps "
                "are shorter than those of the box: train with a smaller eps."
            )
        return "\n".join(lines)


def box_gap(
    module: nn.Module,
    inputs: Any,
    labels: Any = None,
    *,
    optimizer: object,
    loss: Loss,
    rates: Rates | None = None,
) -> BoxLimit:
    r"""Measure how far a network is from the limit of an optimizer with weight decay.

    .. math:: \min_\theta L(\theta) \quad\text{s.t.}\quad \|\theta_p\|_p \le s_p / \lambda_p

    Parameters
    ----------
    module : nn.Module
        Any, in the mode (``.train()``, ``.eval()``) in which the loss is meant. Its parameters,
        buffers and gradients are not changed. What its forward pass stores on it is that of the
        last batch.
    inputs : Tensor, array_like, tuple of these, or iterable of (inputs, labels)
        All samples at once, a tuple for several arguments; or a DataLoader, without ``labels``.
    labels : object
        What the loss compares the outputs with, in the shape and dtype that it takes: classes (N,)
        for cross-entropy, floating 0 and 1 of the outputs' shape for BCE.
    optimizer : torch.optim.Optimizer, or a sequence of them
        What trains the module: norms, radii and decay are read from its parameter groups.
    loss : callable
        ``loss(outputs, labels)``, the mean over the samples that was minimized, without decay.
    rates : sequence of float, LRScheduler, sequence of LRScheduler, or BoxTrace, optional
        The learning rates of the past steps, for ``decayed``. A list has those of the first
        parameter group at each optimizer step; rates of other groups are in proportion. A
        scheduler, or one per optimizer, is replayed on a copy, where its rates follow from its
        settings. It must have been there from the first step on, and step after each optimizer
        step, or once per epoch. Of epochs ask after a complete one, the fifth or a later one:
        ``epoch_steps`` has the length that is assumed. A `BoxTrace` has recorded each step.
        By default the rate of now is taken for that of all steps; under a scheduler, or where it
        is 0, ``decayed`` is nan, unknown. Pass rates that you have set by hand.

    Returns
    -------
    BoxLimit

    Raises
    ------
    ValueError
        A loss that is no function, does not take these labels, or is no finite number; gradients
        that are not finite; labels beside a loader. Or ``rates`` that are not one per step, or of
        a scheduler that depends on more than its steps (ReduceLROnPlateau), or whose count and
        that of the optimizer leave several lengths of an epoch.
        `OptimizerError`: an optimizer without weight decay, or whose steps are not known.

    Notes
    -----
    Xie and Li (2024), lemma 3.8, for AdamW; Chen et al. (2023) for Lion.

    A gradient of 0 is no error: all weights in the box are then a KKT point, of score 0. With
    coupled decay only weights of 0 are stationary then.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import box_gap
    >>> X, y = torch.eye(2), torch.tensor([0, 1])
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[0.5, -0.5], [-0.5, 0.5]]))
    >>> adamw = torch.optim.AdamW(model.parameters(), weight_decay=2.0)
    >>> found = box_gap(model, X, y, optimizer=adamw, loss=torch.nn.functional.cross_entropy)
    >>> round(found.score, 6), found.reached, found.at_wall
    (0.0, 1.0, 1.0)

    After 500 steps with a rate that fell from 0.01 to 0:

    >>> rates = [0.01 * (1 - t / 500) for t in range(500)]
    >>> loss = torch.nn.functional.cross_entropy
    >>> round(box_gap(model, X, y, optimizer=adamw, loss=loss, rates=rates).decayed, 3)
    0.993
    """
    if isinstance(loss, type) or not callable(loss):
        raise ValueError(
            f"loss must be a function of outputs and labels, got {loss!r}: pass one such as "
            "torch.nn.functional.cross_entropy or torch.nn.CrossEntropyLoss()"
        )
    module = as_module(module)
    steps = steps_of(optimizer, module)
    past_decay = sums_of_decay(optimizer, steps, rates)
    with same_random_numbers(module):  # which dropout draws
        return _limit_in_box(module, batches(inputs, labels), loss, steps, past_decay)


def _limit_in_box(
    module: nn.Module,
    samples: Iterable[Batch],
    loss: Loss,
    steps: Sequence[Step],
    past_decay: PastDecay,
) -> BoxLimit:
    """Measure a module by the steps of its optimizer, and what `sums_of_decay` found."""
    if not any(step.decay > 0.0 for step in steps):
        raise OptimizerError(
            "the optimizer has no weight decay, so that nothing bounds the weights: diagnose "
            "measures the margin problem instead"
        )
    value, gradients, first_arguments = _gradients(module, samples, loss, steps)
    terms = Terms.of(steps, gradients)
    # min L >= L(theta) - gap, if L is convex in theta and every tensor has a ball.
    lower_bound = math.nan
    if len(terms.norms) == len(steps) and _is_affine(module, first_arguments):
        lower_bound = value - terms.gap
    # The slowest tensor counts. Where one is unknown (nan) it might be that one.
    least = float(np.min(list(past_decay.sums.values())))
    return BoxLimit(
        score=terms.score,
        gap=terms.gap,
        loss=value,
        lower_bound=lower_bound,
        radii=terms.radii,
        norms=terms.norms,
        reached=terms.reached,
        at_wall=terms.at_wall,
        decayed=-math.expm1(-least),
        free=terms.free,
        penalty_score=terms.penalty_score,
        gradient_norm=math.sqrt(sum(float(g.square().sum()) for g in gradients.values())),
        eps_ratio=_eps_ratio(steps, gradients),
        epoch_steps=past_decay.epoch_steps,
    )


def _has_box(optimizer: object, loss: object) -> bool:
    """Whether there is an optimizer object that has weight decay, and a loss with gradients."""
    return has_decay(optimizer) and callable(loss) and not isinstance(loss, MarginLoss)


def check_rates_apply(optimizer: object, loss: object) -> None:
    """Raise ValueError where there is no decay that the rates of past steps could be about."""
    if not _has_box(optimizer, loss):
        raise ValueError(
            "rates= says how far weight decay has acted, which is measured of an optimizer object "
            "with weight decay and a loss that is a function of outputs and targets: pass both, or "
            "leave rates out"
        )


def box_of(
    function: Margins,
    optimizer: object,
    loss: object,
    judged: JudgedLoss,
    past_decay: PastDecay | None = None,
) -> BoxLimit | None:
    """Do what `box_gap` does for a module that is diagnosed; None of a loss without gradients here.

    Parameters
    ----------
    function : Margins
        The module with its samples.
    optimizer : object
        What trained it; None without an optimizer object that has weight decay.
    loss : object
        What was minimized; it must be a function of outputs and targets.
    judged : JudgedLoss
        What `judge_loss` found of it: which targets it takes, if there is one output.
    past_decay : PastDecay, optional
        What `sums_of_decay` found; by default the optimizer's state is asked.
    """
    if not _has_box(optimizer, loss):
        return None
    labels = torch.as_tensor(function.labels)
    if function.classes is None:
        # Whether the loss takes 0 or -1 beside 1 was found out by its tail, if it has one.
        if judged.refusal is not None:
            return None
        labels = torch.where(labels > 0, 1.0, judged.low_label)

    given_loss: Any = loss

    def own_loss(outputs: Tensor, targets: Tensor) -> Any:
        if function.classes is not None:
            return given_loss(outputs, targets)
        if judged.flat:
            outputs = outputs.reshape(-1)
        return given_loss(outputs, targets.to(outputs))

    try:
        steps = steps_of(optimizer, function.module)
        if past_decay is None:
            past_decay = sums_of_decay(optimizer, steps, None)
        samples = batches(function.inputs, labels)
        return _limit_in_box(function.module, samples, own_loss, steps, past_decay)
    except ValueError:
        # The loss is the user's own, and may take other targets; steps may not be known. What a
        # diagnosis says of weight decay then names `box_gap`, which raises this error.
        return None


class FrankWolfe(NamedTuple):
    """The gap over the box, and its ratio to sum_p r_p ||g_p||_{p,*}; nan without a box."""

    gap: float
    score: float


def frank_wolfe(steps: Sequence[Step], gradients: Mapping[str, Tensor]) -> FrankWolfe:
    """Add up r_p ||g_p||_{p,*} + <g_p, theta_p> over the tensors with decoupled decay."""
    boxed = [step for step in steps if step.decoupled and step.decay > 0.0]
    if not boxed:
        return FrankWolfe(math.nan, math.nan)
    duals = 0.0  # sum of r_p ||g_p||_{p,*}
    products = 0.0  # sum of <g_p, theta_p>
    for step in boxed:
        g = gradients[step.name].double()
        duals += step.scale / step.decay * _dual(g, step.norm)
        products += float((g * step.parameter.detach().double()).sum())
    gap = duals + products
    return FrankWolfe(gap, _ratio(gap, duals))


@dataclass(frozen=True, eq=False)
class Terms:
    """What the scores are made of, at one set of weights and one gradient; see `BoxLimit`."""

    score: float
    gap: float
    radii: dict[str, float]
    norms: dict[str, float]
    reached: float
    at_wall: float
    free: dict[str, float]
    penalty_score: float

    @classmethod
    def of(cls, steps: Sequence[Step], gradients: Mapping[str, Tensor]) -> Terms:
        """Add the parts of all tensors up, in float64."""
        radii: dict[str, float] = {}
        norms: dict[str, float] = {}
        free: dict[str, float] = {}
        at_wall = 0
        counted = 0
        penalised: list[Tensor] = []
        gradients_there: list[Tensor] = []
        for step in steps:
            theta = step.parameter.detach().double()
            g = gradients[step.name].double()
            radii[step.name] = math.inf
            if step.decay == 0.0:
                # Without decay nothing bounds the tensor: at a KKT point its gradient is 0.
                free[step.name] = _dual(g, step.norm)
            elif step.decoupled:
                # The tensor has a ball of radius r_p: count its entries, or singular values, at
                # the wall.
                radius = step.scale / step.decay
                sizes = _sizes(theta, step.norm)
                radii[step.name] = radius
                norms[step.name] = float(sizes.max())
                at_wall += int((sizes >= (1.0 - BoxThresholds.wall) * radius).sum())
                counted += sizes.numel()
            else:
                # Decay that is added to the gradient is the gradient of lambda / 2 ||theta||^2.
                penalised.append((g + step.decay * theta).reshape(-1))
                gradients_there.append(g.reshape(-1))
        in_box = frank_wolfe(steps, gradients)
        return cls(
            score=in_box.score,
            gap=in_box.gap,
            radii=radii,
            norms=norms,
            reached=max((norms[name] / radii[name] for name in norms), default=math.nan),
            at_wall=at_wall / counted if counted else math.nan,
            free=free,
            penalty_score=_penalty_score(penalised, gradients_there),
        )


# --- gradients of the loss -----------------------------------------------------------------------


def _gradients(
    module: nn.Module, batches: Iterable[Batch], loss: Loss, steps: Sequence[Step]
) -> tuple[float, dict[str, Tensor], tuple[Any, ...]]:
    """Return the loss and its gradients, means over all samples, in float64; and the first inputs.

    Batches are read one by one, so that a loader's need not fit into memory together.
    """
    first_arguments: tuple[Any, ...] = ()
    sums = {step.name: torch.zeros_like(step.parameter, dtype=torch.float64) for step in steps}
    total = 0.0
    samples = 0
    for arguments, labels, count in batches:
        # Copies, so that neither parameters nor running statistics of the module change.
        values = {name: p.detach().clone() for name, p in module.named_parameters()}
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        for step in steps:
            values[step.name].requires_grad_(True)
        with torch.enable_grad():
            outputs = functional_call(module, values | buffers, _moved(arguments, values))
            value = _loss_of_batch(loss, outputs, _moved((labels,), values, floats=False)[0])
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError("loss(outputs, labels) must be one number, the mean of the batch")
            if not value.requires_grad:
                raise ValueError(
                    "loss(outputs, labels) has no gradient: compute it from the outputs, without "
                    "detach() and item()"
                )
            found = torch.autograd.grad(
                value.reshape(()), [values[step.name] for step in steps], allow_unused=True
            )
        if samples == 0:
            first_arguments = arguments
        # A batch's loss is its mean, so it counts as often as the batch has samples.
        total += count * float(value.detach())
        samples += count
        for step, gradient in zip(steps, found, strict=True):
            if gradient is not None:
                sums[step.name] += count * gradient.double()
    if samples == 0:
        raise ValueError("there are no samples")
    means = {name: gradient / samples for name, gradient in sums.items()}
    if not math.isfinite(total) or not all(bool(g.isfinite().all()) for g in means.values()):
        raise ValueError("the loss or its gradient is not finite at these weights")
    return total / samples, means, first_arguments


def _loss_of_batch(loss: Loss, outputs: Any, labels: Tensor) -> Any:
    """Call the caller's loss; where it fails, say which outputs and labels it was given."""
    try:
        return loss(outputs, labels)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the caller's own code, an assertion say
        given = type(outputs).__name__
        if isinstance(outputs, Tensor):
            given = f"outputs of shape {tuple(outputs.shape)} ({outputs.dtype})"
        raise ValueError(
            f"loss(outputs, labels) failed on {given} and labels of shape {tuple(labels.shape)} "
            f"({labels.dtype}): {error}. Pass labels with the shape and dtype that the loss takes: "
            "for BCEWithLogitsLoss and outputs (N, 1) these are labels.reshape(-1, 1).float() of 0 "
            "and 1, for cross_entropy classes of shape (N,) and dtype int64"
        ) from error


def _moved(
    arguments: tuple[Any, ...], values: Mapping[str, Tensor], *, floats: bool = True
) -> tuple[Any, ...]:
    """Return tensors on the module's device, floating ones in its precision."""
    like = next(iter(values.values()))
    found = []
    for one in arguments:
        if not isinstance(one, Tensor):
            found.append(one)
        elif floats and one.is_floating_point():
            found.append(one.to(like))
        else:
            found.append(one.to(like.device))
    return tuple(found)


# --- norms of a tensor ---------------------------------------------------------------------------


def _sizes(theta: Tensor, norm: str) -> Tensor:
    """Return the numbers of which the norm is the largest: |entries|, singular values, or rows."""
    if norm == "spectral":
        return torch.linalg.svdvals(_matrix(theta))
    if norm == "linf":
        return theta.abs().reshape(-1)
    if norm == "rows":
        return torch.linalg.vector_norm(_matrix(theta), dim=1)
    if norm == "columns":
        return torch.linalg.vector_norm(_matrix(theta), dim=0)
    return torch.linalg.vector_norm(theta).reshape(1)


def _dual(g: Tensor, norm: str) -> float:
    """||g||_*: nuclear, l1, or l2."""
    if norm == "l2":
        return float(torch.linalg.vector_norm(g))
    return float(_sizes(g, norm).sum())


def _matrix(tensor: Tensor) -> Tensor:
    """Return a tensor as Muon sees it: first axis, all others; a vector is a column."""
    return tensor.reshape(matrix_shape(tensor.shape))


# --- parts of the result -------------------------------------------------------------------------


def _ratio(gap: float, duals: float) -> float:
    # With a gradient of 0 all weights in the box are a KKT point.
    return gap / duals if duals > 0.0 else 0.0


def _penalty_score(sums: Sequence[Tensor], gradients: Sequence[Tensor]) -> float:
    """||g + lambda theta|| / ||g||."""
    if not sums:
        return math.nan
    stationarity = float(torch.linalg.vector_norm(torch.cat(list(sums))))
    size = float(torch.linalg.vector_norm(torch.cat(list(gradients))))
    # Without a gradient the penalty alone moves the weights, towards 0.
    if size == 0.0:
        return math.inf if stationarity > 0.0 else 0.0
    return stationarity / size


def _eps_ratio(steps: Sequence[Step], gradients: Mapping[str, Tensor]) -> float:
    """Return the smallest eps over the size of a gradient that is not 0; nan without any."""
    ratios = []
    for step in steps:
        if math.isnan(step.eps):
            continue
        g = gradients[step.name].double()
        norm = float(torch.linalg.vector_norm(g))
        size = size_beside_eps(norm, g.numel(), by_entry=step.norm == "linf")
        # Of a gradient of 0 there is no step to be too short.
        if size > 0.0:
            ratios.append(step.eps / size)
    return min(ratios, default=math.nan)


def _is_affine(module: nn.Module, arguments: tuple[Any, ...]) -> bool:
    """Whether the outputs on a first batch are affine in the parameters.

    They are compared at the weights, at random ones, and halfway between these.
    """
    here = {name: p.detach().clone() for name, p in module.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    other = {}
    middle = {}
    for name, p in here.items():
        size = float(p.abs().max()) or 1.0
        drawn = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        other[name] = size * drawn.to(p)
        middle[name] = 0.5 * (here[name] + other[name])
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        outputs = []
        for values in (here, other, middle):
            found = functional_call(module, values | buffers, _moved(arguments, values))
            if not isinstance(found, Tensor):
                return False
            outputs.append(found)
    # Affine: the outputs in the middle of two points are the mean of theirs, but for rounding.
    expected = 0.5 * (outputs[0] + outputs[1])
    largest = max(float(found.abs().max()) for found in outputs)
    allowed = 100.0 * torch.finfo(expected.dtype).eps * largest
    return bool((outputs[2] - expected).abs().max() <= allowed)
