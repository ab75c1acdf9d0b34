"""Random modules in every norm, hybrid and weighted ones included: gaps beside CVXPY's."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from example_modules import Square, layers, margins_by_hand, own_labels, seeded
from implicit_bias import diagnose
from implicit_bias.base.validation import Array

MODULES, BLOCKS = 40, 2
NORMS = ("l2", "l1", "linf", "spectral", "nuclear")
# How near a gap is to CVXPY's.
SAME = 1e-5
# Smallest margin of a module that separates its samples.
SEPARATED = 1e-3


@dataclass(frozen=True)
class Case:
    """A module, samples that it separates, and its degree; at most two outputs are one."""

    module: nn.Sequential
    X: torch.Tensor
    labels: Array
    degree: int

    @classmethod
    def drawn(cls, seed: int) -> "Case":
        """Draw one to three matrices, the activation between them, classes and samples."""
        rng = np.random.default_rng(seed)
        depth, classes = int(rng.integers(1, 4)), int(rng.choice([1, 3]))
        between = (nn.ReLU, Square, nn.LeakyReLU, None)[rng.integers(4)]
        sizes = [*rng.integers(2, 5, size=depth).tolist(), classes]
        module = seeded(layers(*sizes, between=between), seed)
        X = torch.tensor(rng.normal(size=(int(rng.integers(5, 9)), sizes[0])))
        power = 2 if between is Square else 1
        degree = sum(power**place for place in range(depth))
        case = cls(module, X, own_labels(module, X), degree)
        # of units that are all off, say, nothing separates: then another module is drawn
        margins, _ = margins_by_hand(module, X, case.labels)
        return case if margins.min() > SEPARATED else cls.drawn(seed + MODULES)


# Of each matrix, by its place: a kind of norm and what it is divided by.
Rules = list[tuple[str, float]]
# Within a matrix W (of numpy, or an expression of CVXPY), as entries are or as a matrix.
WITHIN: Mapping[str, tuple[Callable[[Array], float], Callable[[Any], Any]]] = {
    "l2": (lambda W: float(np.linalg.norm(W)), lambda W: cp.norm(W, "fro")),
    "l1": (lambda W: float(np.abs(W).sum()), lambda W: cp.sum(cp.abs(W))),
    "linf": (lambda W: float(np.abs(W).max()), lambda W: cp.max(cp.abs(W))),
    "spectral": (lambda W: float(np.linalg.norm(W, 2)), cp.sigma_max),
    "nuclear": (lambda W: float(np.linalg.norm(W, "nuc")), cp.normNuc),
}
OVER = {"l2": 2, "l1": 1, "linf": np.inf, "spectral": np.inf, "nuclear": 1, "hybrid": np.inf}


def by_cvxpy(case: Case, rules: Rules, over: float) -> float | None:
    """Gap of the best multipliers, from the definition of the tangent program; None if unsolved."""
    q, J = margins_by_hand(case.module, case.X, case.labels)
    L, parts, start = case.degree, list[Any](), 0
    w = cp.Variable(J.shape[1])
    sizes = list[float]()
    for (kind, scale), p in zip(rules, case.module.parameters(), strict=True):
        value, atom = WITHIN[kind]
        W = cp.reshape(w[start : start + p.numel()], tuple(p.shape), order="C")
        start += p.numel()
        sizes.append(float(value(p.detach().numpy())) / scale)
        parts.append(atom(W) / scale)
    # theta over q^(1 / L), at smallest margin 1, has gradients J over q^((L - 1) / L)
    least = float(q.min())
    scaled = J * least ** (1 / L - 1)
    size = float(np.linalg.norm(sizes, over)) * least ** (-1 / L)
    # in units of theta, so that the optimum is at most 1
    program = cp.Problem(cp.Minimize(cp.norm(cp.hstack(parts), over)), [size / L * scaled @ w >= 1])
    # The first solver that ends accurately, if one does.
    for solver, options in ((cp.CLARABEL, {}), (cp.SCS, {"eps": 1e-9})):
        with warnings.catch_warnings(action="ignore"), suppress(cp.error.SolverError):
            program.solve(solver=solver, **options)
            if program.status == cp.OPTIMAL:
                return 1 - float(program.value) ** 2
    return None


def hybrid(case: Case, rng: np.random.Generator) -> tuple[Any, Rules, float]:
    """Muon on some matrices beside Adam on the others, each at a rate of its own."""
    optimizers, rules = list[Any](), Rules()
    for p in case.module.parameters():
        rate = float(rng.choice([0.01, 0.02, 0.05]))
        if rng.random() < 0.5 and hasattr(torch.optim, "Muon"):  # of torch 2.9 and later
            optimizers.append(torch.optim.Muon([p], lr=rate, weight_decay=0.0))
            rules.append(("spectral", rate * max(1.0, p.shape[0] / p.shape[1]) ** 0.5))
        else:
            optimizers.append(Adam([p], lr=rate))
            rules.append(("linf", rate))
    return optimizers, rules, OVER["hybrid"]


def weighted(case: Case, rng: np.random.Generator) -> tuple[Any, Rules, float]:
    """Gradient descent whose rates differ, so that the norm is of theta over their roots."""
    rates = rng.choice([0.1, 0.2, 0.5], size=len(list(case.module.parameters())))
    groups = [
        {"params": [p], "lr": float(rate)}
        for p, rate in zip(case.module.parameters(), rates, strict=True)
    ]
    return SGD(groups, lr=0.1), [("l2", float(rate) ** 0.5) for rate in rates], OVER["l2"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::implicit_bias.DiagnosisWarning")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_gaps_of_random_modules_are_those_of_cvxpy(block: int) -> None:
    without_reference = 0
    for seed in range(block, MODULES, BLOCKS):
        case, rng = Case.drawn(seed), np.random.default_rng(seed)
        count = len(list(case.module.parameters()))
        asked = list[tuple[dict[str, Any], Rules, float]]()
        asked += [({"norm": norm}, [(norm, 1.0)] * count, OVER[norm]) for norm in NORMS]
        for build in (hybrid, weighted):
            optimizer, rules, over = build(case, rng)
            asked.append(({"optimizer": optimizer}, rules, over))
        for options, rules, over in asked:
            found = diagnose(case.module, case.X, case.labels, **options)
            assert found.method == "exact"
            assert found.degree == case.degree
            expected = by_cvxpy(case, rules, over)
            if expected is None:
                without_reference += 1
                continue
            assert found.gap == pytest.approx(expected, abs=SAME), (seed, rules)
            assert found.gap_lower <= expected + SAME
    assert without_reference <= 2  # of 140
