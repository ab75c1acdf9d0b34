"""Equilibrated problems are the problem as posed, in other coordinates; and nothing is rounded."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import cases
from implicit_bias import MarginProblem
from implicit_bias.base.validation import Array
from implicit_bias.norms import SumOverGroups
from implicit_bias.solvers.equilibration import EquilibratedProblem, offsets_of
from implicit_bias.solvers.scaling import MergedInputs
from oracles import loop_dual_vectors, loop_groups, loop_rows


def years(*, intercept: bool, constant: bool, C: float = np.inf) -> MarginProblem:
    """Draw inputs that vary little around offsets, far apart in scale."""
    X, y = cases.cloud(40, 4, shift=3.0)
    X = np.round(X * [1.0, 1e3, 1e-3, 1.0], 6) + [2000.0, -5e5, 0.0, 0.0]
    X[:, -1] = 3.0 if constant else np.arange(40)
    return cases.plain(X, y, C, intercept=intercept)


def years_of_three_classes(C: float) -> MarginProblem:
    """Draw three classes of such inputs."""
    inputs = years(intercept=True, constant=True)
    labels: Any = np.arange(40) % 3
    return MarginProblem(
        inputs.X, labels, inputs.gates, inputs.groups, C, intercept=True, classes=3
    )


PROBLEMS: dict[str, Callable[[], MarginProblem]] = {
    "intercept": lambda: years(intercept=True, constant=False),
    "constant": lambda: years(intercept=False, constant=True),
    "both": lambda: years(intercept=True, constant=True, C=0.3),
    "gates-intercept": lambda: replace(cases.separable("sparse-gates"), intercept=True),
    "constant-gate": lambda: replace(
        years(intercept=True, constant=False), gates=np.full((40, 1), -3.0)
    ),
    "dead-group": lambda: cases.separable("dead-group"),
    "classes": lambda: years_of_three_classes(np.inf),
    "soft-classes": lambda: years_of_three_classes(0.3),
    "classes-gates": lambda: cases.separable("groups-intercept"),
    "classes-features": lambda: cases.separable("features-soft"),
}


def loop_margins(problem: MarginProblem, coef: Array, intercept: float | Array) -> Array:
    """<b_p, f(x_n) + b> of each row."""
    by_class = coef.reshape(problem.norm_shape)
    offsets = np.broadcast_to(intercept, len(by_class))
    Z = cases.dense(problem.gates)
    margins = []
    for n, b, _ in loop_rows(problem):
        scores = np.einsum("m,kmd,d->k", Z[n], by_class, problem.X[n]) + offsets
        margins.append(float(b @ scores))
    return np.array(margins)


def group_norms(problem: MarginProblem, values: Array) -> list[float]:
    """Norm of each group of gates, or of inputs."""
    if isinstance(problem.norm, SumOverGroups):
        inputs = problem.norm.groups
        return [float(np.linalg.norm(values[..., inputs == g])) for g in np.unique(inputs)]
    return [float(np.linalg.norm(values[..., columns, :])) for columns in loop_groups(problem)]


def equilibrated(problem: MarginProblem) -> EquilibratedProblem:
    return EquilibratedProblem(problem, problem.constraints, torch.device("cpu"))


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return PROBLEMS[request.param]()


def test_coefficients_have_the_same_norm_and_margins(problem: MarginProblem) -> None:
    scaled = equilibrated(problem)
    v = torch.tensor(np.random.default_rng(0).normal(size=scaled.B.shape[1]))
    v[~scaled.B.any(dim=0)] = 0.0  # of the merged constant input, where no input is constant
    coef, intercept = scaled.coefficients(v)
    margins = loop_margins(problem, coef, intercept)
    size = np.abs(margins).max() + np.abs(intercept).max()
    np.testing.assert_allclose(scaled.B @ v / scaled.c, margins, atol=1e-9 * size)
    norm = sum(group_norms(problem, coef.reshape(problem.coef_shape)))
    found, _ = scaled.upper(v, scaled.c)
    assert found / scaled.sigma == pytest.approx(norm)
    assert problem.intercept or not np.any(intercept)
    w = scaled.T @ v
    np.testing.assert_allclose(scaled.T @ scaled.from_coef(w), w, rtol=1e-9, atol=1e-12)


def test_dual_vectors_and_bounds_are_the_same(problem: MarginProblem) -> None:
    scaled = equilibrated(problem)
    alpha = torch.tensor(np.random.default_rng(1).random(len(problem.constraints)))
    of_rows = scaled.dual_variables(alpha)
    of_samples = problem.constraints.alpha(of_rows)
    if problem.intercept:
        balance = sum(of_samples[place] * b for _, b, place in loop_rows(problem))
        assert np.abs(balance).max() < 1e-12 * of_rows.sum()
    V = loop_dual_vectors(problem, of_samples)
    growth = 1.0 / max(group_norms(problem, V))
    if not problem.hard_margin:
        totals = of_samples.reshape(problem.n_samples, -1).sum(axis=1)
        growth = min(growth, float((problem.box / totals).min()))
    expected = growth * of_rows.sum()
    assert scaled.lower(alpha) / scaled.sigma == pytest.approx(expected, rel=1e-9)


def test_the_hinge_loss_of_a_sample_is_that_of_its_worst_row(problem: MarginProblem) -> None:
    scaled = equilibrated(problem)
    v = torch.tensor(np.random.default_rng(2).normal(size=scaled.B.shape[1]))
    v[~scaled.B.any(dim=0)] = 0.0
    coef, intercept = scaled.coefficients(v)
    margins = loop_margins(problem, coef, intercept)
    found, _ = scaled.upper(v, scaled.B @ v)
    norm = sum(group_norms(problem, coef.reshape(problem.coef_shape)))
    expected = np.inf
    if not problem.hard_margin:
        hinge = np.zeros(problem.n_samples)
        for (n, _, _), margin in zip(loop_rows(problem), margins, strict=True):
            hinge[n] = max(hinge[n], 1.0 - margin)
        expected = norm + float(problem.box @ hinge)
    elif margins.min() > 0:
        expected = norm / margins.min()
    assert found / scaled.sigma == pytest.approx(expected)


def test_nothing_is_rounded() -> None:
    """Entries of B are x - offset times powers of two, as rationals."""
    problem = years(intercept=True, constant=False)
    scaled = equilibrated(problem)
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
