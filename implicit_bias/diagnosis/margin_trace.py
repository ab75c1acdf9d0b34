r"""Along a training without weight decay: what its own gradients say of the maximum margin.

The loss of a batch is a sum of functions of margins q_n, one of each pair of a sample and a rival
of its label, that fall. With c_n >= 0 minus their derivatives, and J_n the gradient of q_n in the
parameters,

    -grad L = sum_n c_n J_n,      C = sum_n c_n,

and C is known from the outputs alone. So the gradient that a step has anyway shows two things.

**A bound, where the margins are linear in all parameters.** J does not depend on them, so for every
w with ||w|| <= 1 the smallest margin is at most any average of the margins:

    min_n <J_n, w>  <=  sum_n c_n <J_n, w> / C  <=  ||grad L||_* / C.

The maximum margin gamma = max_{||w|| <= 1} min_n <J_n, w> is at most ||grad L||_* / C, whichever
samples are in the batch. Sums of gradients are of this form, too, with the sum of their C: so
gradients of other steps may be averaged, which brings all samples in. The least of these bounds so
far is a bound. min ||w|| s.t. J w >= 1, which is 1 / gamma, is at least its inverse.

**An alignment, where they are not.** No gradient bounds the maximum margin of a homogeneous network
of degree L > 1. What Lyu and Li (2020) follow is

    alignment = <theta, -grad L> / (||theta|| ||grad L||_*)  <= 1,

which is 1 where theta is parallel to the steepest descent direction: towards a KKT point of the
max-margin problem it tends to 1 where the gradients converge in direction.

Gradients are taken as they are, so the bounds hold up to the rounding of the training's precision;
`solve` has bounds that count all rounding. Where it exceeds a ten-thousandth of the derivatives in
the outputs there are none.

==========  ============================================
symbol      meaning
==========  ============================================
q           margins, y f(x) or f_y(x) - f_k(x)
c           minus the loss's derivatives in the margins
D           the loss's derivatives in the outputs f
||.||_*     dual norm of the steepest descent
==========  ============================================

Source: Soudry et al. (2018) and Ji and Telgarsky (2021) for the dual weights of linear models; Lyu
and Li (2020), section 5, for the alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.optim import Optimizer

from implicit_bias.base.threads import one_thread_if_small
from implicit_bias.base.validation import check_count, check_number
from implicit_bias.diagnosis.loss_tail import Loss
from implicit_bias.modules.evaluate import as_module, evaluating
from implicit_bias.modules.optimizers import norm_of
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.norms.tensors import GivenNorm
from implicit_bias.problem.margins import class_margins

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class MarginTrace:
    """Record bounds on the maximum margin, or an alignment, from a training's own gradients.

    Parameters
    ----------
    module : nn.Module
        Which is trained: homogeneous in its trained parameters, as of `diagnose`.
    inputs, labels : Tensor, array_like, or tuple of inputs
        Samples on which the module is checked; the first batch will do. Labels are -1 and +1 for
        outputs (N,) or (N, 1), and 0 .. K - 1 for outputs (N, K).
    norm : norm, optimizer, or sequence of optimizers
        Of the steepest descent, as in `diagnose`; of optimizers it is read from them.
    loss : callable
        ``loss(outputs, labels)`` that is minimized, a function of the margins of each sample that
        falls in each of them; by default cross-entropy, and of one output the logistic loss.
    average : float
        beta of the sum of gradients, m <- beta m + grad L, in [0, 1). An epoch of B batches is
        averaged by 1 - 1 / B.
    every : int
        Measure each ``every``-th step.

    Attributes
    ----------
    rows : list of dict
        What was measured, a point a row; `frame` has a table of them.
    linear : bool
        Whether the margins are linear in all parameters, so that there are bounds.
    degree : float
        L.
    upper : float
        The least upper bound on the maximum margin so far; inf before the first point, nan of
        modules that are not linear.

    Raises
    ------
    HomogeneityError, ValueError, TypeError
        As `diagnose`.

    Notes
    -----
    Call `record` after each ``loss.backward()`` and before ``optimizer.step()``, with gradients of
    one batch, not scaled.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import MarginTrace
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.zero_()
    >>> X, y = torch.eye(2), torch.tensor([0, 1])
    >>> sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    >>> trace = MarginTrace(model, X, y, sgd)
    >>> for _ in range(20):
    ...     sgd.zero_grad()
    ...     outputs = model(X)
    ...     torch.nn.functional.cross_entropy(outputs, y).backward()
    ...     trace.record(outputs, y)
    ...     sgd.step()
    >>> round(trace.rows[-1]["margin"], 3), round(trace.upper, 3)  # the maximum is 1
    (1.0, 1.0)
    """

    # Derivatives in the outputs of a sample sum to 0, but for this fraction of them.
    rounded = 1e-4

    def __init__(
        self,
        module: nn.Module,
        inputs: tuple[Tensor | ArrayLike, ...] | Tensor | ArrayLike,
        labels: ArrayLike | Tensor,
        norm: GivenNorm | Optimizer | Sequence[Optimizer] = "l2",
        *,
        loss: Loss | None = None,
        average: float = 0.9,
        every: int = 1,
    ) -> None:
        check_number(average, "average", "[0, 1)")
        check_count(every, "every", 1)
        self.module = as_module(module)
        self.norm = norm_of(norm, self.module)
        self.average = average
        self.every = every
        with one_thread_if_small(self.module, inputs), evaluating(self.module) as (copied, _):
            subject = Subject.of(margins_of(copied, inputs, labels, norms=[self.norm]))
            self.linear = subject.linear
        self.degree = subject.degree
        self.classes = subject.function.classes
        self.names = list(subject.function.shapes)
        self.loss: Loss = loss or self._default_loss
        self.rows: list[dict[str, float]] = []
        self.steps_taken = 0
        self.upper = math.inf if self.linear else math.nan
        # The sums m of gradients, and of their C.
        self._sums: dict[str, Tensor] = {}
        self._weight = 0.0

    def _default_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy, or the logistic loss."""
        if self.classes is None:
            return nn.functional.softplus(-labels.to(outputs) * outputs.reshape(-1)).mean()
        return nn.functional.cross_entropy(outputs, labels)

    def __repr__(self) -> str:
        return f"MarginTrace({len(self.rows)} points of {self.steps_taken} steps)"

    def record(self, outputs: Tensor, labels: Tensor) -> None:
        """Take the gradients as they are, and measure each ``every``-th step.

        Parameters
        ----------
        outputs : Tensor of shape (n,), (n, 1) or (n, K)
            Of the batch whose loss was differentiated.
        labels : Tensor of shape (n,)
            Its labels, as the loss takes them: -1 and +1, or 0 .. K - 1.

        Raises
        ------
        ValueError
            There are no gradients. The loss rises in a margin, or is no function of the margins.
            The gradients are not those of this loss at these outputs: they are accumulated, scaled,
            of another batch, or with a penalty.
        """
        theta, gradients = self._parameters()
        outputs = outputs.detach()
        if self.steps_taken == 0:
            self._check_loss(outputs, labels)
        slopes = self._slopes(outputs, labels)
        self._check_gradients(theta, gradients, outputs, slopes)
        weight = self._weight_of(slopes, labels)
        if weight < self._least(outputs):
            weight = math.nan

        # -m = sum of c J over the steps so far, with m's own weights of the steps.
        for name, g in gradients.items():
            if name not in self._sums:
                self._sums[name] = torch.zeros_like(g)
            self._sums[name].mul_(self.average).add_(g)
        self._weight = self.average * self._weight + weight
        upper = math.nan
        # Where rounding has spoilt C, it is nan until the sums are made anew.
        if self.linear and math.isnan(self._weight):
            self._sums = {}
            self._weight = 0.0
        elif self.linear:
            # All of these are bounds, also between measured steps.
            upper = self.norm.dual(self._sums) / self._weight
            self.upper = min(self.upper, upper, self.norm.dual(gradients) / weight)
        if self.steps_taken % self.every == 0:
            margin = math.nan
            size = self.norm.value(theta)
            if size > 0.0:
                margin = self._margin(outputs, labels) / size**self.degree
            self.rows.append(
                {
                    "step": self.steps_taken,
                    "margin": margin,
                    "upper": upper,
                    "best_upper": self.upper,
                    "alignment": self._alignment(theta, gradients),
                }
            )
        self.steps_taken += 1

    def _parameters(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return theta and grad L by name, in float64; a parameter without a gradient has 0."""
        theta: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        for name, parameter in self.module.named_parameters():
            if name not in self.names:
                continue
            theta[name] = parameter.detach().double()
            if parameter.grad is None:
                gradients[name] = torch.zeros_like(theta[name])
            else:
                gradients[name] = parameter.grad.detach().double()
        if not any(bool(g.any()) for g in gradients.values()):
            raise ValueError(
                "there is no gradient: call record after loss.backward() and before zero_grad(), "
                "and stop where it is 0"
            )
        return theta, gradients

    @staticmethod
    def _least(outputs: Tensor) -> float:
        """Return the size below which numbers of this precision lose digits, as they underflow."""
        precision = torch.finfo(outputs.dtype)
        return precision.tiny / precision.eps

    def _slopes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """D, the derivatives of the loss in the outputs, in float64."""
        with torch.enable_grad():
            leaf = outputs.clone().requires_grad_()
            value = self.loss(leaf, labels)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError("loss(outputs, labels) must be one number, that of the batch")
            (slopes,) = torch.autograd.grad(value.reshape(()), leaf)
        return slopes.double()

    def _check_gradients(
        self,
        theta: dict[str, Tensor],
        gradients: dict[str, Tensor],
        outputs: Tensor,
        slopes: Tensor,
    ) -> None:
        """Check Euler's identity <theta, grad L> = L sum_n <D_n, f_n>, which costs no pass."""
        terms = [theta[name] * g for name, g in gradients.items()]
        by_outputs = slopes * outputs.double()
        found = sum(float(term.sum()) for term in terms)
        expected = self.degree * float(by_outputs.sum())
        size = sum(float(term.abs().sum()) for term in terms)
        size += self.degree * float(by_outputs.abs().sum())
        rounding = math.sqrt(torch.finfo(outputs.dtype).eps)
        if not abs(found - expected) <= rounding * size + self._least(outputs):
            raise ValueError(
                "the gradients are not those of this loss at these outputs: record each batch by "
                "itself, with gradients that are neither scaled nor accumulated, without a penalty"
            )

    def _check_loss(self, outputs: Tensor, labels: Tensor) -> None:
        """Check that the loss is a function of differences of outputs, where these are 0."""
        if self.classes is None:
            return
        slopes = self._slopes(torch.zeros_like(outputs), labels)
        if float(slopes.sum(dim=1).abs().sum()) > self.rounded * float(slopes.abs().sum()):
            raise ValueError(
                "the loss is no function of the margins f_y - f_k: its derivatives in the outputs "
                "of a sample do not sum to 0"
            )

    def _weight_of(self, slopes: Tensor, labels: Tensor) -> float:
        """C, the sum of c over the pairs of the batch; nan where rounding has spoilt gradients.

        In single precision cross-entropy computes the derivative in the own output as p - 1, of
        which nothing but rounding is left at large margins.
        """
        if self.classes is None:
            c = -labels.to(slopes) * slopes.reshape(-1)
        else:
            # q_nk = f_y - f_k, so that c_nk = D_nk for k != y, and D_ny = -sum_k c_nk.
            c = slopes.scatter(1, labels.reshape(-1, 1).to(slopes.device), 0.0)
            if float(slopes.sum(dim=1).abs().sum()) > self.rounded * float(slopes.abs().sum()):
                return math.nan
        # Rounding may make derivatives of next to nothing negative.
        if float(c.clamp(max=0.0).abs().sum()) > self.rounded * float(c.abs().sum()):
            raise ValueError(
                "the loss rises in a margin, so that its gradient is no combination of margins "
                "with positive weights: is it cross-entropy without label smoothing?"
            )
        return float(c.sum())

    def _margin(self, outputs: Tensor, labels: Tensor) -> float:
        """Return the smallest margin of the batch."""
        if self.classes is None:
            return float((labels.to(outputs) * outputs.reshape(-1)).min())
        return float(class_margins(outputs, labels.reshape(-1).to(outputs.device)).min())

    def _alignment(self, theta: dict[str, Tensor], gradients: dict[str, Tensor]) -> float:
        """<theta, -g> / (||theta|| ||g||_*); nan where one of them is 0."""
        sizes = self.norm.value(theta) * self.norm.dual(gradients)
        if not sizes > 0.0:
            return math.nan
        product = sum(float((theta[name] * g).sum()) for name, g in gradients.items())
        return -product / sizes

    def frame(self) -> pd.DataFrame:
        """Return what was recorded as a table: a row a point.

        Columns are ``step``, and of each step:

        - ``margin``: the smallest margin of the batch over ||theta||^L; nan where theta is 0. That
          is the smallest margin of all samples where batches are full.
        - ``upper``: the bound on the maximum margin by the averaged gradient.
        - ``best_upper``: the least bound so far. Both are nan of modules that are not linear.
        - ``alignment``: that of the batch.
        """
        import pandas as pd

        columns = ["step", "margin", "upper", "best_upper", "alignment"]
        return pd.DataFrame(self.rows, columns=columns)

    def plot(self) -> Figure:
        """Draw margins with their bounds, if there are any, and alignments against the steps.

        Raises
        ------
        ValueError
            Nothing is recorded.
        """
        from implicit_bias.diagnosis.figures import draw_margin_trace

        if not self.rows:
            raise ValueError("nothing is recorded yet: call record(outputs, labels) in the loop")
        return draw_margin_trace(self.frame())
