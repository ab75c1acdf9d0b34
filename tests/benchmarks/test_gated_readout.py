"""Readouts with contexts: their relaxation against CVXPY, whose margins are loops."""

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


def test_contexts_of_the_readout_that_no_sample_has_are_unseen() -> None:
    hidden, readout = contexts(3, 2), contexts(1, seed=1)
    one_side = X[readout.contexts(X)[:, 0] == 0]
    of_one = GatedReadout(
        HyperplaneContexts.from_hyperplanes(one_side, readout.weights, readout.thresholds), hidden
    )
    np.testing.assert_array_equal(of_one.unseen(X), 3 * readout.contexts(X)[:, 0])


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
    bounds = solve(MarginProblem(X, Y, gating.gates(X), norm=norm)).certificate
    assert [bounds.lower, bounds.upper] == pytest.approx([optimum, optimum], rel=1e-5)
