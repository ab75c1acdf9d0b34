"""The network of theorem 3, and its gradient descent on samples or on the whole distribution.

Source: Daniely and Malach (2020), section 2.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import relu6

from benchmarks.daniely2020 import parity_first_step as parity
from implicit_bias.base.validation import Array


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps of gradient descent: the first is the theorem's, eta_1 = 1 and lambda_1 = 1/2.

    Attributes
    ----------
    step : float
        eta_t of the steps after the first: the theorem's is
        `parity_descent.published_step`.
    decay : float
        lambda_t of the steps after the first.
    steps : int
        T, the first included.
    record : int
        Every so many steps the history has a point; steps 0, 1 and T always.
    """

    step: float
    decay: float = 0.0
    steps: int = 400
    record: int = 50


@dataclass(frozen=True, eq=False)
class Point:
    """The network after some steps: hinge loss and error on the samples, and its weights."""

    step: int
    loss: float
    error: float
    network: parity.TwoLayers


def descend(
    X: Array,
    y: Array,
    initial: parity.TwoLayers,
    schedule: Schedule,
    *,
    probabilities: Array | None = None,
) -> tuple[Point, ...]:
    """Descend E max(0, 1 - y g(x)) + lambda_t (||u||^2 + ||W||^2) in W, b and u.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        Bits, without a constant.
    y : ndarray of shape (m,)
        Labels, -1 or +1.
    initial : TwoLayers
        Weights of step 0.
    schedule : Schedule
        Steps.
    probabilities : ndarray of shape (m,), optional
        Of the samples, for a distribution that is given in full; equal by default.

    Returns
    -------
    tuple of Point
        Steps 0, 1 and T included.
    """
    labels = torch.tensor(y)
    shares = torch.tensor(np.full(len(X), 1 / len(X)) if probabilities is None else probabilities)
    inputs = torch.tensor(X) / math.sqrt(X.shape[1])
    weights, biases, readout = parameters = [
        torch.tensor(values).requires_grad_()
        for values in (initial.weights, initial.biases, initial.readout)
    ]
    history: list[Point] = []
    for step in range(schedule.steps + 1):
        margins = labels * (relu6(torch.addmm(biases, inputs, weights.T)) @ readout)
        loss = shares @ (1.0 - margins).clamp(min=0.0)
        if step <= 1 or step == schedule.steps or step % schedule.record == 0:
            error = float(shares @ (margins <= 0).double())
            copied = (parameter.detach().numpy().copy() for parameter in parameters)
            history.append(Point(step, loss.item(), error, parity.TwoLayers(*copied)))
        if step == schedule.steps:
            break
        eta, decay = (1.0, 0.5) if step == 0 else (schedule.step, schedule.decay)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            weights.mul_(1.0 - 2.0 * eta * decay)
            readout.mul_(1.0 - 2.0 * eta * decay)  # the biases are not regularised
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(eta * gradient)
    return tuple(history)
