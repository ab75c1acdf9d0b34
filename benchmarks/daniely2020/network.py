"""The two-layer network of the study, and its training by the schedule of theorem 3.

Source: Daniely and Malach (2020).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import relu6

from implicit_bias.theory.sparse_parities import sample_shares
from implicit_bias.validation import Array, as_features, as_finite, as_labels


@dataclass(frozen=True, kw_only=True)
class ParityConfig:
    """Gradient descent of theorem 3; the numbers are ours.

    Parameters
    ----------
    pairs : int
        Pairs of hidden units: H / 2.
    first_step : float
        eta_1. After it the weights on A are about eta_1 / 4, their sums over A at most
        k eta_1 / 4; the biases must be spread over as much.
    bias_range : float
        The biases are uniform in [-bias_range, bias_range], and are not trained.
    step : float
        eta_t of the later steps.
    decay : float
        lambda_t of the later steps.
    steps : int
        Steps in all, the first included.
    record : int
        Every so many steps the history has a point.
    seed : int
        Seed of the initial weights: w uniform in {-1, +1}^n / sqrt(n), u in {-1, +1}.

    Raises
    ------
    ValueError
        A value out of its range.
    """

    pairs: int = 64
    first_step: float = 4.0
    bias_range: float = 3.0
    step: float = 0.01
    decay: float = 0.0
    steps: int = 1000
    record: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("pairs", "steps", "record"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("first_step", "bias_range", "step"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not 0 <= self.decay < math.inf:
            raise ValueError(f"decay must be finite, 0 or more, got {self.decay}")


class ParityNetwork(nn.Module):
    """f(x) = <u, ReLU6(W x + b)>, and f = 0 at the start: units in pairs of opposite readouts.

    Parameters
    ----------
    n_bits : int
        n.
    config : ParityConfig
        Number of pairs, range of the biases, seed.

    Attributes
    ----------
    weights : Parameter of shape (H, n)
        W, at the start (-1 or +1) / sqrt(n).
    readout : Parameter of shape (H,)
        u, at the start -1 or +1.
    biases : Tensor of shape (H,)
        b; not trained.
    """

    biases: Tensor

    def __init__(self, n_bits: int, config: ParityConfig) -> None:
        super().__init__()
        rng = np.random.default_rng(config.seed)
        signs = rng.choice((-1.0, 1.0), size=(config.pairs, n_bits))
        biases = rng.uniform(-config.bias_range, config.bias_range, config.pairs)
        readout = rng.choice((-1.0, 1.0), size=config.pairs)
        self.weights = nn.Parameter(torch.tensor(np.tile(signs, (2, 1)) / math.sqrt(n_bits)))
        self.readout = nn.Parameter(torch.tensor(np.concatenate([readout, -readout])))
        self.register_buffer("biases", torch.tensor(np.tile(biases, 2)))

    def forward(self, inputs: Tensor) -> Tensor:
        """f(x), shape (m,), of bits (m, n)."""
        outputs: Tensor = relu6(inputs @ self.weights.T + self.biases) @ self.readout
        return outputs

    @torch.inference_mode()
    def decision(self, bits: ArrayLike) -> Array:
        """f(x) of bits (m, n): float64 of shape (m,), without gradient."""
        outputs = self(torch.tensor(as_features(bits, self.weights.shape[1])))
        return np.array(outputs.numpy(), dtype=np.float64)


@dataclass(frozen=True)
class ParityPoint:
    """The network after some steps: mean hinge loss and error on the training samples."""

    step: int
    loss: float
    error: float


@dataclass(frozen=True, eq=False)
class ParityTraining:
    """A finished training.

    Attributes
    ----------
    network : ParityNetwork
        After the last step.
    initial, first : ParityNetwork
        Before and after the first step.
    history : tuple of ParityPoint
        Step 0 and the last included.
    """

    network: ParityNetwork
    initial: ParityNetwork
    first: ParityNetwork
    history: tuple[ParityPoint, ...]


def train_parity(
    X: ArrayLike,
    y: ArrayLike,
    config: ParityConfig,
    *,
    probabilities: ArrayLike | None = None,
) -> ParityTraining:
    """Learn a parity by gradient descent from the start of theorem 3.

    Step t descends mean_m max(0, 1 - y_m f(x_m)) + lambda_t (||W||^2 + ||u||^2) with step size
    eta_t; 2 eta_1 lambda_1 = 1.

    Parameters
    ----------
    X : array_like of shape (m, n)
        Bits, without a constant.
    y : array_like of shape (m,)
        Labels, -1 or +1.
    config : ParityConfig
        Network and steps.
    probabilities : array_like of shape (m,), optional
        Of the samples, for a distribution that is given in full; equal by default.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, no samples, probabilities that
        are negative or do not sum to 1.
    """
    bits = as_finite(X, "X", 2)
    labels = torch.tensor(as_labels(y, len(bits)))
    inputs, shares = torch.tensor(bits), torch.tensor(sample_shares(probabilities, len(bits)))
    network = ParityNetwork(bits.shape[1], config)
    initial = first = copy.deepcopy(network)
    history: list[ParityPoint] = []
    for step in range(config.steps + 1):
        margins = labels * network(inputs)
        loss = shares @ (1.0 - margins).clamp(min=0.0)
        if step % config.record == 0 or step == config.steps:
            error = shares @ (margins <= 0).double()
            history.append(ParityPoint(step, loss.item(), error.item()))
        if step == config.steps:
            break
        eta = config.first_step if step == 0 else config.step
        keep = 0.0 if step == 0 else 1.0 - 2.0 * eta * config.decay  # 1 - 2 eta_t lambda_t
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.mul_(keep).sub_(eta * gradient)
        if step == 0:
            first = copy.deepcopy(network)
    return ParityTraining(network, initial, first, tuple(history))
