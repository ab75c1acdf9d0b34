"""Equilibrated problems are the problem as posed, in other coordinates; and nothing is rounded."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import cases
from implicit_bias import MarginProblem
from implicit_bias.solvers.equilibration import EquilibratedProblem, offsets_of
from implicit_bias.solvers.scaling import MergedInputs
from oracles import loop_decision, loop_dual_vectors, loop_groups


def years(*, intercept: bool, constant: bool, C: float = np.inf) -> MarginProblem:
    """Draw inputs that vary little around offsets, far apart in scale."""
    X, y = cases.cloud(40, 4, shift=3.0)
    X = np.round(X * [1.0, 1e3, 1e-3, 1.0], 6) + [2000.0, -5e5, 0.0, 0.0]
    X[:, -1] = 3.0 if constant else np.arange(40)
    return cases.plain(X, y, C, intercept=intercept)


PROBLEMS: dict[str, Callable[[], MarginProblem]] = {
    "intercept": lambda: years(intercept=True, constant=False),
    "constant": lambda: years(intercept=False, constant=True),
    "both": lambda: years(intercept=True, constant=True, C=0.3),
    "gates-intercept": lambda: replace(cases.separable("sparse-gates"), intercept=True),
    "constant-gate": lambda: replace(
        years(intercept=True, constant=False), gates=np.full((40, 1), -3.0)
    ),
    "dead-group": lambda: cases.separable("dead-group"),
}


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return PROBLEMS[request.param]()


def test_coefficients_have_the_same_norm_and_margins(problem: MarginProblem) -> None:
    scaled = EquilibratedProblem(problem, torch.device("cpu"))
    v = torch.tensor(np.random.default_rng(0).normal(size=scaled.B.shape[1]))
    coef, intercept = scaled.coefficients(v)
    margins = problem.y * (loop_decision(problem, coef) + intercept)
    size = np.abs(margins).max() + np.abs(intercept)
    np.testing.assert_allclose(scaled.B @ v / scaled.c, margins, atol=1e-9 * size)
    norm = sum(float(np.linalg.norm(coef[columns])) for columns in loop_groups(problem))
    found, _ = scaled.upper(v, scaled.c)
    assert found / scaled.sigma == pytest.approx(norm)
    assert problem.intercept or intercept == 0.0
    w = scaled.T @ v
    np.testing.assert_allclose(scaled.T @ scaled.from_coef(w), w, rtol=1e-9, atol=1e-12)


def test_dual_vectors_and_bounds_are_the_same(problem: MarginProblem) -> None:
    scaled = EquilibratedProblem(problem, torch.device("cpu"))
    alpha = torch.tensor(np.random.default_rng(1).random(problem.n_samples))
    of_samples = scaled.dual_variables(alpha)
    if problem.intercept:
        assert abs(of_samples @ problem.y) < 1e-12 * of_samples.sum()
    V = loop_dual_vectors(problem, of_samples)
    largest = max(float(np.linalg.norm(V[columns])) for columns in loop_groups(problem))
    growth = 1.0 / largest
    if not problem.hard_margin:
        growth = min(growth, float((problem.box / of_samples).min()))
    expected = growth * of_samples.sum()
    assert scaled.lower(alpha) / scaled.sigma == pytest.approx(expected, rel=1e-9)


def test_nothing_is_rounded() -> None:
    """Entries of B are x - offset times powers of two, as rationals."""
    problem = years(intercept=True, constant=False)
    scaled = EquilibratedProblem(problem, torch.device("cpu"))
    for j in range(problem.X.shape[1]):
        column = scaled.B[:, j].numpy() * scaled.nu.numpy() * problem.y
        # Differences of samples have no offset: what scales them is one power of two.
        ratios = set()
        for n in range(1, problem.n_samples):
            exact = Fraction(problem.X[n, j]) - Fraction(problem.X[0, j])
            found = Fraction(float(column[n])) - Fraction(float(column[0]))
            if exact:
                ratios.add(found / exact)
        (ratio,) = ratios
        assert float(np.log2(float(ratio))).is_integer()
    centred = (scaled.B * scaled.nu[:, None]).numpy()[:, :2] * problem.y[:, None]
    sizes = np.abs(centred).max(axis=0) / np.ptp(centred, axis=0)
    np.testing.assert_allclose(sizes, 0.5)  # centred in the middle


def test_inputs_that_vary_too_much_are_not_centred() -> None:
    """Beyond a ratio of 3 the middle is more than twice the smallest: a difference is rounded."""
    X = np.array([[2000.0, 1.0, -1.0, 0.0], [2010.0, 9.0, 1.0, 5.0]])
    inputs = MergedInputs(X)
    assert offsets_of(X, inputs, absorbed=True).tolist() == [2005.0, 0.0, 0.0, 0.0, 0.0]
    assert not offsets_of(X, inputs, absorbed=False).any()
