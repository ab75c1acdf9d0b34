"""The function that training towards the limit descends, and the state of a descent.

minimise  F(theta) = log(1/N sum_n l(s_n)),     s_n the (soft smallest) margin of sample n.

Samples enter in chunks, so that memory is bounded. With the chunks' own sums S_c of losses,
F + log N = log sum_c S_c, and the gradient of F is the mean of the gradients of the log S_c with
the weights S_c / sum S; both are accumulated without underflow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from implicit_bias.modules.margin_gradients import differentiated
from implicit_bias.modules.subject import Subject
from implicit_bias.problem.margins import soft_margins
from implicit_bias.training.configuration import LimitConfig
from implicit_bias.training.losses import as_loss
from implicit_bias.training.trainee import Trainee

# Step size before the first step.
FIRST_STEP_SIZE = 1.0


@dataclass(frozen=True, eq=False)
class State:
    """All that the next step depends on; weights and velocity (P,)."""

    step: int
    weights: Tensor
    velocity: Tensor
    age: int  # k
    log_loss: float
    min_margin: float
    step_size: float = FIRST_STEP_SIZE
    evaluations: int = 0
    restarts: int = 0
    spread: float = 0.0  # sum of the slopes' variances, of steepest descent

    def after(
        self, weights: Tensor, log_loss: float, min_margin: float, step_size: float, **others: Any
    ) -> State:
        """Return the state one step on, at other weights; ``others`` are further fields."""
        found = replace(self, weights=weights, log_loss=log_loss, min_margin=min_margin, **others)
        return replace(found, step=self.step + 1, age=self.age + 1, step_size=step_size)


class Objective(ABC):
    """The function F of a trainee, and one step of a method.

    Parameters
    ----------
    trainee : Trainee
        Module and samples.
    config : LimitConfig
        How to train.
    """

    def __init__(self, trainee: Trainee, config: LimitConfig) -> None:
        self.trainee, self.config = trainee, config
        self.parameters = list(trainee.parameters.values())
        self.loss = as_loss(config.loss)
        # A linear predictor has none whose share could be left behind, or that could die.
        self.has_units = not Subject(trainee.gradients, trainee.degree).linear

    @abstractmethod
    def advance(self, state: State) -> State | None:
        """Do one step; None where no step size lowers F."""

    def start(self) -> State:
        """Return the state at the module's present weights, at rest."""
        weights = torch.cat([w.detach().reshape(-1) for w in self.parameters])
        log_loss, min_margin = self.value(weights)
        if not math.isfinite(log_loss):
            raise ValueError(
                f"the log loss is {log_loss} at the network's present weights: they, or the "
                "outputs, are not finite; start from smaller weights"
            )
        return State(0, weights, torch.zeros_like(weights), 0, log_loss, min_margin)

    def set_weights(self, weights: Tensor) -> None:
        """Give the module the weights (P,), in the order of its parameters."""
        with torch.no_grad():
            for name, values in self.by_name(weights).items():
                self.trainee.parameters[name].copy_(values)

    def by_name(self, weights: Tensor) -> dict[str, Tensor]:
        """View a vector (P,) as the parameters, by name."""
        shaped = self.trainee.parameters
        parts = torch.split(weights, [w.numel() for w in self.parameters])
        return {k: part.view_as(w) for (k, w), part in zip(shaped.items(), parts, strict=True)}

    def value(self, weights: Tensor) -> tuple[float, float]:
        """F and the smallest margin (without the readout's bias) at weights (P,)."""
        return self.evaluate(weights)[:2]

    @torch.no_grad()
    def evaluate(self, weights: Tensor) -> tuple[float, float, Tensor]:
        """F, the smallest margin, and the logarithms of the losses (N,) at weights (P,)."""
        self.set_weights(weights)
        outputs = self.trainee.outputs()
        log_losses = self.loss.log_loss(soft_margins(outputs, self.trainee.labels))
        log_loss = torch.logsumexp(log_losses, dim=0) - math.log(len(log_losses))
        return log_loss.item(), self.trainee.smallest_margin(outputs), log_losses

    def descend(self, weights: Tensor) -> tuple[float, Tensor, Tensor]:
        """F, its gradient (P,), and the logarithms of the losses (N,) at weights (P,)."""
        self.set_weights(weights)
        n_samples = len(self.trainee.labels)
        total, gradient, all_log_losses = None, torch.empty(0), []
        for rows in self.trainee.chunks():
            margins = soft_margins(self.trainee.chunk_outputs(rows), self.trainee.labels[rows])
            log_losses = self.loss.log_loss(margins)
            log_sum = torch.logsumexp(log_losses, dim=0)
            with differentiated(self.trainee.module):
                parts = torch.autograd.grad(log_sum - math.log(n_samples), self.parameters)
            own = torch.cat([g.reshape(-1) for g in parts])
            log_sum = log_sum.detach()
            all_log_losses.append(log_losses.detach())
            if total is None:
                total, gradient = log_sum, own
                continue
            both = torch.logaddexp(total, log_sum)
            gradient = gradient * (total - both).exp() + own * (log_sum - both).exp()
            total = both
        assert total is not None
        log_loss = (total - math.log(n_samples)).item()
        return log_loss, gradient, torch.cat(all_log_losses)
