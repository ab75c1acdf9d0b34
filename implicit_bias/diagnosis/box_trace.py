r"""Along a training with weight decay: the Frank-Wolfe gap of each step, from its own gradient.

A training step has computed a gradient g of the loss of its batch. Before the optimizer uses it,

    gap   = sum_p  r_p ||g_p||_{p,*} + <g_p, theta_p>,        score = gap / sum_p r_p ||g_p||_{p,*},

of `implicit_bias.diagnosis.box`, need no further pass over the samples. The gradient of a batch is
noisy, and dual norms are convex, so noise makes them larger on average: the gap of a batch is on
average above that of all samples. An average of the gradients of the last steps,

    m_t = beta m_{t-1} + (1 - beta) g_t,      g ~ m_t / (1 - beta^t),

is less noisy, but its gradients are those of earlier weights. That error is the larger of the two
where rates are large, and the smaller one where they are small. Both scores are recorded; `box_gap`
has the exact one.

Source: Xie and Li (2024), section 3, for AdamW; Pethick et al. (2025) for other norms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.base.validation import check_count, check_number
from implicit_bias.diagnosis.box import Terms, frank_wolfe
from implicit_bias.modules.evaluate import as_module
from implicit_bias.modules.steps import OptimizerError, Step, steps_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = ["step", "loss", "score", "score_of_batch", "gap", "reached", "at_wall", "decayed"]


class BoxTrace:
    r"""Record how near a training with weight decay comes to a KKT point of its box.

    .. math:: \text{score} = \frac{\sum_p r_p \|g_p\|_{p,*} + \langle g_p, \theta_p \rangle}
        {\sum_p r_p \|g_p\|_{p,*}}

    with the averaged gradients g_p and the radii r_p; see `BoxLimit`.

    Parameters
    ----------
    module : nn.Module
        Which is trained.
    optimizer : torch.optim.Optimizer, or a sequence of them
        What trains it, with decoupled weight decay of some tensors at least (AdamW, Lion, Muon).
    average : float
        beta of the average of gradients, in [0, 1).
    every : int
        Measure each ``every``-th step, as each norm of a matrix in Muon takes a decomposition.

    Attributes
    ----------
    rows : list of dict
        What was measured, one row per point; `frame` has a table of them.
    steps_taken : int
        Number of steps that were recorded.
    decay_so_far : dict from str to float
        Sum of rate times decay over these steps, of each tensor with decay, by name. With them
        ``rates=trace`` tells `box_gap` and `diagnose` how far decay has acted.

    Raises
    ------
    OptimizerError
        No decoupled weight decay, or an optimizer whose steps are not known.

    Notes
    -----
    Call `record` after each ``loss.backward()`` and before ``optimizer.step()``.

    Xie and Li (2024), section 3, for AdamW; Pethick et al. (2025) for other norms.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import BoxTrace
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> X, y = torch.eye(2), torch.tensor([0, 1])
    >>> settings = {"lr": 0.01, "weight_decay": 2.0, "betas": (0.9, 0.95)}
    >>> adamw = torch.optim.AdamW(model.parameters(), **settings)
    >>> trace = BoxTrace(model, adamw)
    >>> for _ in range(500):
    ...     adamw.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(X), y)
    ...     loss.backward()
    ...     trace.record(loss)
    ...     adamw.step()
    >>> bool(trace.rows[-1]["score"] < 0.05), round(trace.rows[-1]["decayed"], 2)
    (True, 1.0)
    """

    def __init__(
        self, module: nn.Module, optimizer: object, *, average: float = 0.9, every: int = 1
    ) -> None:
        check_number(average, "average", "[0, 1)")
        check_count(every, "every", 1)
        self.module = as_module(module)
        self.optimizer = optimizer
        self.average = average
        self.every = every
        self.rows: list[dict[str, float]] = []
        self.steps_taken = 0
        steps = steps_of(optimizer, self.module)
        if not any(step.decoupled and step.decay > 0.0 for step in steps):
            raise OptimizerError(
                "the optimizer has no decoupled weight decay, so that nothing bounds the weights: "
                "a Recorder measures the margin problem instead"
            )
        self._averages: dict[str, Tensor] = {}  # m_p, by name
        self.decay_so_far = {step.name: 0.0 for step in steps if step.decay > 0.0}

    def __repr__(self) -> str:
        return f"BoxTrace({len(self.rows)} points of {self.steps_taken} steps)"

    @torch.no_grad()
    def record(self, loss: float | Tensor = math.nan) -> None:
        """Take the gradients as they are, and measure each ``every``-th step.

        Parameters
        ----------
        loss : float or Tensor
            Of the batch, for the table alone.

        Raises
        ------
        ValueError
            No gradients: ``loss.backward()`` comes before, ``zero_grad()`` after.
        """
        steps = steps_of(self.optimizer, self.module)
        gradients: dict[str, Tensor] = {}
        for step in steps:
            if step.parameter.grad is None:
                # A tensor that this batch did not use: the optimizer leaves it, and its average
                # decays.
                gradients[step.name] = torch.zeros_like(step.parameter)
            else:
                gradients[step.name] = step.parameter.grad
        if not any(bool(g.any()) for g in gradients.values()):
            raise ValueError(
                "there is no gradient: call record after loss.backward() and before zero_grad()"
            )
        for name, g in gradients.items():
            if name not in self._averages:
                self._averages[name] = torch.zeros_like(g)
            self._averages[name].mul_(self.average).add_(g, alpha=1.0 - self.average)
        measured = self.steps_taken % self.every == 0
        self.steps_taken += 1
        if measured:
            self._measure(float(loss), steps, gradients)
        # The step that follows decays the weights by this much.
        for step in steps:
            # The optimizer leaves a tensor without a gradient as it is.
            if step.name in self.decay_so_far and step.parameter.grad is not None:
                self.decay_so_far[step.name] += step.rate * step.shrinking

    def _measure(self, loss: float, steps: list[Step], gradients: dict[str, Tensor]) -> None:
        # What never had a gradient is not trained: 0 of it is not the least.
        sums = [total for total in self.decay_so_far.values() if total != 0.0] or [0.0]
        # m_t begins at 0, so that its weights sum to 1 - beta^t.
        corrected = 1.0 - self.average**self.steps_taken
        averages = {name: m / corrected for name, m in self._averages.items()}
        smooth = Terms.of(steps, averages)
        self.rows.append(
            {
                "step": self.steps_taken - 1,
                "loss": loss,
                "score": smooth.score,
                "score_of_batch": frank_wolfe(steps, gradients).score,
                "gap": smooth.gap,
                "reached": smooth.reached,
                "at_wall": smooth.at_wall,
                # A weight has kept exp(-sum of eta lambda) of its start. The slowest tensor counts.
                "decayed": -math.expm1(-float(np.min(sums))),
            }
        )

    def frame(self) -> pd.DataFrame:
        """Return what was recorded as a table: a row a point.

        Columns are ``step``, ``loss`` of the batch, ``score`` of the averaged gradient, and
        ``score_of_batch``. ``gap`` is the Frank-Wolfe gap in units of the loss, ``reached`` the
        largest norm over its radius. ``at_wall`` is the fraction of weights or singular values at
        their radius, and ``decayed`` says how far decay has acted.
        """
        import pandas as pd

        return pd.DataFrame(self.rows, columns=COLUMNS)

    def plot(self) -> Figure:
        """Draw scores, and how far the weights have come to their walls, against the steps.

        Raises
        ------
        ValueError
            Nothing is recorded.
        """
        from implicit_bias.diagnosis.figures import draw_box_trace

        if not self.rows:
            raise ValueError("nothing is recorded yet: call record(loss) in the loop")
        return draw_box_trace(self.frame())
