r"""Lazy or rich: whether a training stayed where the module is linear in its parameters.

Where the parameters hardly move, f(theta) = f(theta_0) + J_0 (theta - theta_0), J_0 the gradients
at the start: training is that of a linear model in the tangent features, and gradient descent leads
to the margin problem of the tangent kernel Theta_0 = J_0 J_0',

    gamma_0 = max_w  min_n <w, grad q_n(theta_0)> / ||w||,

before the weights grow far beyond the start, and the rich limit begins: a KKT point of the margin
problem in theta. Three numbers tell one from the other:

    distance   ||theta - theta_0|| / ||theta_0||
    alignment  <H Theta H, H Theta_0 H> / (||H Theta H|| ||H Theta_0 H||),    H = I - 1 1' / N
    share      min_n <theta - theta_0, grad q_n(theta_0)> / (||theta - theta_0|| gamma_0)

with Theta(x, x') = sum_k <grad f_k(x), grad f_k(x')>. Alignment and share are 1 in the lazy limit.

Source: Chizat, Oyallon and Bach (2019), "On lazy training in differentiable programming"; Woodworth
et al. (2020), "Kernel and rich regimes in overparametrized models"; Cortes, Mohri and Rostamizadeh
(2012) for the centred alignment.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.checkpoints import State, at_state
from implicit_bias.diagnosis.findings import Code, Finding
from implicit_bias.modules.kinks import Pieces
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.multipliers import best_multipliers
from implicit_bias.modules.subject import Subject
from implicit_bias.modules.tangent_program import TangentProgram
from implicit_bias.norms.tensors import PARAMETER_NORMS


class RegimeThresholds:
    """What counts as lazy and as rich, and on how many samples that is measured.

    What is between the two is not named.

    Attributes
    ----------
    alignment : float
        From this alignment on the kernel is that of the start.
    lazy_distance : float
        With such a kernel, up to this distance: lazy.
    rich_distance : float
        With another kernel, from this distance on: rich.
    samples, outputs : int
        Kernels are of at most so many samples, and so many outputs of them all.
    """

    alignment: Final = 0.9
    lazy_distance: Final = 0.25
    rich_distance: Final = 1.0
    samples: Final = 256
    outputs: Final = 2560


@dataclass(frozen=True)
class Regime:
    """How far a training has left the place where it was linear.

    Attributes
    ----------
    distance : float
        ||theta - theta_0|| / ||theta_0|| of the trained parameters; inf from a start at 0.
    alignment : float
        Centred alignment of the tangent kernels at the start and now, in [0, 1]; nan where one of
        them is constant, or where ``max_seconds`` was over before both were there.
    share : float
        Margin of theta - theta_0 in the tangent features at the start, over the maximum there, in
        [0, 1]; a lower bound where the search for the maximum was stopped. 0 where a sample has no
        positive margin in these features, nan of parameters that have not moved.
    samples : int
        How many samples alignment and share are of.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose
    >>> start = torch.nn.Linear(2, 1, bias=False)
    >>> _ = start.weight.data.copy_(torch.tensor([[1.0, 0.0]]))
    >>> now = torch.nn.Linear(2, 1, bias=False)
    >>> _ = now.weight.data.copy_(torch.tensor([[4.0, 3.0]]))
    >>> found = diagnose(now, torch.eye(2), [1, 1], start=start).regime
    >>> round(found.distance, 3), round(found.alignment, 3), round(found.share, 3)
    (4.243, 1.0, 1.0)
    """

    distance: float
    alignment: float
    share: float
    samples: int

    @property
    def lazy(self) -> bool:
        """Whether the tangent kernel is that of the start, and the parameters are near it."""
        near = self.distance <= RegimeThresholds.lazy_distance
        return near and self.alignment >= RegimeThresholds.alignment

    @property
    def rich(self) -> bool:
        """Whether the tangent kernel is another one, and the parameters are far from the start."""
        far = self.distance >= RegimeThresholds.rich_distance
        return far and self.alignment < RegimeThresholds.alignment

    def finding(self, *, linear: bool) -> Finding | None:
        """Say which regime it is, where that is clear; of a linear module both are the same."""
        if linear or not (self.lazy or self.rich):
            return None
        about = {"distance": self.distance, "tangent": self.share}
        code = Code.LAZY_REGIME if self.lazy else Code.RICH_REGIME
        return Finding(code, self.alignment, details=about)


def regime_of(subject: Subject, start: State, deadline: Deadline) -> Regime:
    """Compare a module with its start.

    Parameters
    ----------
    subject : Subject
        The module now. Of a leading-order part, the module itself is compared.
    start : nn.Module or state dict
        The same architecture, before the training.
    deadline : Deadline
        When to end the search for the maximum margin in the tangent features.

    Raises
    ------
    ValueError
        A start of another architecture.
    """
    # Of the module itself: its leading-order part is what it becomes far from any start.
    now = subject.module_itself.function
    before = now.reread(at_state(now.module, start, "start"))
    moved = now.theta - before.theta
    size = float(before.theta.norm())
    distance = math.inf
    if size > 0.0:
        distance = float(moved.norm()) / size

    # Samples over the whole data, which may be in the order of their classes.
    width = now.pairs.width
    most = min(RegimeThresholds.samples, max(2, RegimeThresholds.outputs // width))
    n_samples = len(now.labels)
    chosen = np.unique(np.linspace(0, n_samples - 1, min(n_samples, most)).astype(np.int64))
    few = before.of_samples(chosen)
    alignment = math.nan
    with suppress(TimeoutError):
        of_start = tangent_kernel(few, deadline)
        alignment = centred_alignment(of_start, tangent_kernel(now.of_samples(chosen), deadline))
    return Regime(
        distance=distance,
        alignment=alignment,
        share=_tangent_share(few, moved, deadline),
        samples=len(chosen),
    )


def tangent_kernel(function: Margins, deadline: Deadline = NEVER) -> Array:
    """Theta (N, N), the sum over the outputs of <grad f_k(x), grad f_k(x')>.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    outputs = function.of_outputs()
    n_samples = len(function.labels)
    width = function.pairs.width
    kernel = np.zeros((n_samples, n_samples))
    for k in range(width):
        # Rows of the outputs are sample by sample: those of output k are each width-th one. Cross
        # terms of two outputs are not part of the trace that Theta is.
        places = np.arange(n_samples) * width + k
        kernel += outputs.gram(outputs.theta, places, deadline=deadline)
    return kernel


def centred_alignment(first: Array, second: Array) -> float:
    """Cosine of the angle between two centred kernels (N, N); nan where one is 0."""
    a = _centred(first)
    b = _centred(second)
    sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not sizes > 0.0:
        return math.nan
    return float((a * b).sum()) / sizes


def _centred(kernel: Array) -> Array:
    # Scaled, as a kernel of degree 2 L - 2 in the weights may leave float64 when it is squared.
    scaled = kernel / (np.abs(kernel).max() or 1.0)
    rows = scaled - scaled.mean(axis=0)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _tangent_share(function: Margins, moved: Tensor, deadline: Deadline) -> float:
    """Margin of a displacement in the tangent features, over the maximum."""
    if not moved.any():
        return math.nan
    # J_0 (theta - theta_0) is a product of the Jacobian: J_0 itself is not formed.
    slopes = function.jvp(function.theta, moved)
    least = float(slopes.min())
    if not least > 0.0:
        return 0.0
    # The maximum is 1 / min ||w|| s.t. J_0 w >= 1: a tangent problem of degree 1, in which the
    # displacement is feasible once it has unit margin. Any multipliers bound it from below.
    program = TangentProgram(
        function,
        theta=moved / least,
        degree=1.0,
        norm=PARAMETER_NORMS["l2"],
        margins=slopes / least,
        other_gradients=Pieces(function, [function.theta], np.ones((1, len(slopes)))),
    )
    best = best_multipliers(program, deadline=deadline)
    return min(1.0, best.lower / program.size)
