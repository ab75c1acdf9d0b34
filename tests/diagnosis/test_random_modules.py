"""Random modules in every norm, hybrid ones included: gaps beside CVXPY's."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Adam

from example_modules import Square, layers, margins_by_hand, own_labels, seeded
from implicit_bias import diagnose
from implicit_bias.base.validation import Array

MODULES = 15
NORMS = ("l2", "l1", "linf", "spectral", "nuclear")
# How near a gap is to CVXPY's.
SAME = 1e-5
# Smallest margin of a module that separates its samples.
SEPARATED = 1e-3


class Case:
    """One to three matrices, the activation between them, classes, and separated samples."""

    def __init__(self, rng: np.random.Generator) -> None:
        smallest = 0.0
        # Of units that are all off, say, nothing separates: then another module is drawn.
        while smallest < SEPARATED:
            depth, classes = int(rng.integers(1, 4)), int(rng.choice([1, 3]))
            between = (nn.ReLU, Square, nn.LeakyReLU, None)[rng.integers(4)]
            sizes = [*rng.integers(2, 5, size=depth).tolist(), classes]
            self.module = seeded(layers(*sizes, between=between), int(rng.integers(1000)))
            self.X = torch.tensor(rng.normal(size=(int(rng.integers(5, 9)), sizes[0])))
            self.labels = own_labels(self.module, self.X)
            power = 2 if between is Square else 1
            self.degree = sum(power**place for place in range(depth))
            margins, _ = margins_by_hand(self.module, self.X, self.labels)
            smallest = margins.min()


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
    with warnings.catch_warnings(action="ignore"), suppress(cp.error.SolverError):
        program.solve(solver=cp.CLARABEL)
    return 1 - float(program.value) ** 2 if program.status == cp.OPTIMAL else None


def hybrid(case: Case, rng: np.random.Generator) -> tuple[Any, Rules]:
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
    return optimizers, rules


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::implicit_bias.DiagnosisWarning")
def test_gaps_of_random_modules_are_those_of_cvxpy() -> None:
    rng = np.random.default_rng(0)
    without_reference = 0
    for drawn in range(MODULES):
        case = Case(rng)
        asked = list[tuple[dict[str, Any], Rules, float]]()
        for norm in NORMS:
            rules = [(norm, 1.0) for _ in case.module.parameters()]
            asked.append(({"norm": norm}, rules, OVER[norm]))
        optimizer, rules = hybrid(case, rng)
        asked.append(({"optimizer": optimizer}, rules, OVER["hybrid"]))
        for options, rules, over in asked:
            found = diagnose(case.module, case.X, case.labels, **options)
            assert found.method == "exact"
            assert found.degree == case.degree
            expected = by_cvxpy(case, rules, over)
            if expected is None:
                without_reference += 1
                continue
            assert found.gap == pytest.approx(expected, abs=SAME), (drawn, rules)
            assert found.gap_lower <= expected + SAME
    assert without_reference <= 2  # of 90
