"""KKT points of small modules without kinks, in any norm, by convex programs.

theta is at smallest margin 1, q are its margins and J their gradients. Each step solves

    minimise over w   ||w|| + mu / 2 ||w - theta||_2^2   subject to   q + J (w - theta) >= 1

and scales w to smallest margin 1: the prox-linear method (Drusvyatskiy and Lewis 2018). 1 / mu
grows where the norm falls by about what the program foresees, and shrinks where by far less.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.norms.tensors import ParameterNorm
from implicit_bias.training.trainee import as_trainee

# A decrease below this share of the norm is rounding.
ROUNDING = 1e-15
SHORTEST_STEP = 1e-6


def set_to_kkt_point(
    module: nn.Module, inputs: Any, labels: Any, norm: ParameterNorm, steps: int = 500
) -> None:
    """Bring a homogeneous module to a KKT point of a norm, from its own weights."""
    _separate(module, inputs, labels)
    trainee = as_trainee(module, inputs, labels, norm)
    margins_of = trainee.function
    every_pair = np.arange(len(margins_of.pairs))

    def size(theta: Tensor) -> float:
        return norm.value(margins_of.parameters(theta))

    def at_margin_1(theta: Tensor) -> Tensor | None:
        smallest = float(margins_of.margins(theta).min())
        return theta * smallest ** (-1.0 / trainee.degree) if smallest > 0 else None

    theta, step = at_margin_1(margins_of.theta), 1.0
    assert theta is not None
    least = ROUNDING * size(theta)
    for _ in range(steps):
        margins = margins_of.margins(theta)
        rows = margins_of.rows(theta, every_pair)
        before, following = size(theta), None
        while following is None and step > SHORTEST_STEP:
            mu = before / (step * float(theta @ theta))
            w = _nearest(norm, margins_of.shapes, theta, rows, margins, mu)
            reached = None if w is None else at_margin_1(w)
            if w is None or reached is None:
                step /= 4.0
                continue
            foreseen = before - size(w) - 0.5 * mu * float((w - theta).square().sum())
            gained = before - size(reached)
            taken = gained >= max(0.1 * foreseen, least)
            if taken:
                following = reached
            if taken and gained >= 0.75 * foreseen:
                step *= 2.0
            elif not taken or gained < 0.25 * foreseen:
                step /= 4.0
        if following is None:
            break
        theta = following
    with torch.no_grad():
        for name, values in margins_of.parameters(theta).items():
            module.get_parameter(name).copy_(values)


def _separate(module: nn.Module, inputs: Any, labels: Any) -> None:
    """Train a module in l2 until all samples are on their side."""

    def stop(point: Any) -> None:
        if point.min_margin > 0:
            raise KeyboardInterrupt

    result = train_to_limit(module, inputs, labels, LimitConfig(record=10_000), on_point=stop)
    assert result.interrupted


def _nearest(
    norm: ParameterNorm, shapes: Any, theta: Tensor, rows: Any, margins: Any, mu: float
) -> Tensor | None:
    """Solve the program of a step, in units of the largest weight; None where Clarabel fails."""
    unit = float(theta.abs().max())
    centre = theta.numpy() / unit
    w = cp.Variable(len(centre))
    parts = {}
    start = 0
    for name, shape in shapes.items():
        parts[name] = w[start : start + shape.numel()]
        start += shape.numel()
    cost = norm.atom(parts, shapes, cp) + 0.5 * mu * unit * cp.sum_squares(w - centre)
    program = cp.Problem(cp.Minimize(cost), [unit * rows @ (w - centre) >= 1.0 - margins])
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    with warnings.catch_warnings():  # Clarabel goes as far as rounding lets it, and says so
        warnings.simplefilter("ignore", UserWarning)
        try:
            program.solve(cp.CLARABEL, **tolerances)
        except cp.SolverError:
            return None
    return torch.tensor(unit * w.value)
