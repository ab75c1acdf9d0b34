"""Readouts with contexts: gates by loops; the relaxation against CVXPY."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from benchmarks.lippl2022.gated_readout import GatedReadout, NuclearNormOfUnits
from implicit_bias import MarginProblem, solve
from implicit_bias.problem.gating import HyperplaneContexts

N_FEATURES = 5
X = np.random.default_rng(0).normal(size=(23, N_FEATURES))
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1.0, -1.0)


def contexts(n_units: int, n_hyperplanes: int = 1, seed: int = 0) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=seed)


def test_the_norm_is_that_of_the_matrix_of_each_unit() -> None:
    """Written as loops over contexts of the readout, units and their contexts."""
    gating = GatedReadout(contexts(1, seed=1), contexts(2))
    rng = np.random.default_rng(2)
    w, W = rng.normal(size=(2, 2)), rng.normal(size=(2, 2, N_FEATURES))
    coef, V = np.zeros((2, 2, 2, N_FEATURES)), rng.normal(size=(2, 2, 2, N_FEATURES))
    for o in range(2):
        for h in range(2):
            coef[o, h] = w[o, h] * W[h]
    of_rank_one = sum(np.linalg.norm(w[:, h]) * np.linalg.norm(W[h]) for h in range(2))
    spectral = max(np.linalg.norm(V[:, h].reshape(2, -1), 2) for h in range(2))
    norm = NuclearNormOfUnits(gating)
    assert norm.value(coef.reshape(1, -1, N_FEATURES)) == pytest.approx(of_rank_one)
    assert norm.dual(V.reshape(1, -1, N_FEATURES)) == pytest.approx(spectral)


def test_the_relaxation_agrees_with_clarabel() -> None:
    """The margins of CVXPY's program are loops over the samples."""
    hidden, readout = contexts(2), contexts(1, seed=1)
    zeta = [cp.Variable((2, 2 * N_FEATURES)) for _ in range(2)]
    chosen, output = hidden.contexts(X), readout.contexts(X)[:, 0]
    margins = []
    for n in range(len(X)):
        f = 0
        for h in range(2):
            first = N_FEATURES * chosen[n, h]
            f += zeta[h][output[n], first : first + N_FEATURES] @ X[n]
        margins.append(Y[n] * f)
    program = cp.Problem(cp.Minimize(sum(cp.normNuc(Z) for Z in zeta)), [cp.hstack(margins) >= 1])
    optimum = float(program.solve(solver="CLARABEL"))
    gating = GatedReadout(readout, hidden)
    norm: Any = NuclearNormOfUnits(gating)
    problem = MarginProblem(X, Y, gating.gates(X), norm=norm)
    assert solve(problem).certificate.upper == pytest.approx(optimum, rel=1e-5)
