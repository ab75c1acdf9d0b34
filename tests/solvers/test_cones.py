"""What cones give the Newton systems, and their first points, by definition."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cases
from implicit_bias.base.validation import Array
from implicit_bias.solvers.cones import EntryCone, NuclearCone, SpectralCone
from implicit_bias.solvers.cones.cone import ConePoint
from implicit_bias.solvers.cones.matrices import (
    cholesky,
    factor,
    nesterov_todd,
    relative_eigenvalues,
)
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.iteration import Breakdown
from implicit_bias.solvers.scaling import ScaledProblem

SINGULAR = ["nuclear", "pergate-soft", "spectral-soft"]
ENTRIES = ["l3-soft", "l1.5gates-gated", "linf", "l1-binary"]
GROUPS = ["gln", "groups", "apart-soft", "l2"]


def cone_of(name: str, system: Any) -> Any:
    run: Any = InteriorPoint(system=system).prepare(cases.separable(name), None)
    return run.cone_type(ScaledProblem(run.layout, torch.device("cpu")))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def positive(n: int, seed: int) -> Tensor:
    """Draw a positive definite matrix."""
    A = drawn(n, n, seed=seed)
    return A @ A.T + 0.1 * torch.eye(n)


def agree(found: Tensor | Array, expected: Tensor | Array) -> None:
    size = float(np.abs(np.asarray(expected)).max())
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=1e-11 * size)


# --- points --------------------------------------------------------------------------------------


def assert_inside(cone: Any, point: ConePoint, mu: float) -> None:
    """R and T are positive, and T is no larger than the slack of W."""
    for value in (point.R, point.T):
        if value.ndim == 2:
            assert torch.linalg.eigvalsh(value)[0] > 0.0
        else:
            assert (value > 0.0).all()
    products = point.R @ point.T if point.R.ndim == 2 else point.R * point.T
    mean = products.trace() / len(products) if point.R.ndim == 2 else products.mean()
    assert mean >= mu * (1.0 - 1e-9)
    W = point.W
    if isinstance(cone, EntryCone):
        agree(point.T[1] - point.T[0], 2.0 * W)
    elif isinstance(cone, SpectralCone):
        agree(point.T, point.t * torch.eye(len(W)) - W @ W.T / point.t)
    elif isinstance(cone, NuclearCone):
        agree(point.T, torch.eye(len(W)) - W @ W.T)
    elif W.numel():
        agree(point.T, 0.5 - 0.5 * cone.inner(W, W))


@pytest.mark.parametrize("system", ["rows", "features"])
@pytest.mark.parametrize("name", [*SINGULAR, *ENTRIES, *GROUPS])
def test_first_points_are_inside_of_the_cone(name: str, system: str) -> None:
    cone = cone_of(name, system)
    V = cone.dual_vectors(torch.rand(cone.scaled.n_rows).double())
    V = V * (0.7 / cone.dual_norm(V))
    assert cone.dual_norm(V) == pytest.approx(0.7)
    inner = cone.inner_point(V, 3.0)
    assert_inside(cone, inner, 0.0)
    if isinstance(cone, EntryCone):  # <u, rho> = t
        rho = 0.5 * inner.T.sum(0)
        agree(cone.sum_per_radius(inner.R.sum(0) * rho), inner.t)
    centred = cone.centred_point(V, 0.2)
    if centred is not None:
        assert_inside(cone, centred, 0.1 if isinstance(cone, SpectralCone) else 0.2)
        products = centred.R * centred.T
        if centred.R.ndim == 2 and isinstance(cone, NuclearCone):
            agree(centred.R @ centred.T, 0.2 * torch.eye(len(centred.R)).double())
        elif centred.R.ndim == 1:
            agree(products, torch.full_like(products, 0.2))
    primal = torch.rand(cone.scaled.n_groups).double()
    if name not in GROUPS:
        primal = drawn(*V.shape) * (V != 0.0)  # the groups' own columns
        assert cone.norm(2.0 * primal) == pytest.approx(2.0 * cone.norm(primal))
    assert_inside(cone, cone.warm_point(V, primal, 1e-3), 1e-3)


@pytest.mark.parametrize("name", ["spectral-soft", "l3-soft", "pergate-soft", "gln"])
def test_a_step_ends_where_the_first_variable_is_0(name: str) -> None:
    """Each one alone falls to 0, or its smallest eigenvalue, after a quarter of the step."""
    run: Any = InteriorPoint(system="rows").prepare(cases.separable(name), None)
    point = run.interior_start(run.cone_type(ScaledProblem(run.layout, torch.device("cpu"))))
    nothing = point.moved(point, -1.0)
    assert point.step_to_boundary(nothing) == 1.0
    for variable in ("alpha", "s", "w", "xi", "t", "R", "T"):
        value = getattr(point, variable)
        if value.numel():
            step = replace(nothing, **{variable: -4.0 * value})
            assert point.step_to_boundary(step) == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["pergate-soft", "l1.5gates-gated", "l3-soft"])
def test_norms_of_a_cone_are_those_of_the_problem(name: str) -> None:
    """A sum over groups, whose dual norm is the largest one of a group."""
    cone = cone_of(name, "rows")
    problem = cone.scaled.layout.problem
    W = cone.dual_vectors(torch.rand(cone.scaled.n_rows).double())
    of_classes = (cone.basis @ cone.unstacked(W)).numpy().reshape(problem.norm_shape)
    assert cone.norm(W) == pytest.approx(problem.norm.value(of_classes))
    assert cone.dual_norm(W) == pytest.approx(problem.norm.dual(of_classes))


def test_a_damped_step_keeps_the_equations_of_the_spectral_cone() -> None:
    cone = cone_of("spectral", "rows")
    run: Any = InteriorPoint(system="rows").prepare(cases.separable("spectral"), None)
    point = run.interior_start(cone)
    step = point.moved(point, -1.0)  # 0 everywhere
    step.W.copy_(drawn(*point.W.shape))
    step.t.fill_(-0.1 * float(point.t))
    found = cone.moved(point, step, 1.0)
    square = found.W @ found.W.T / found.t**2
    agree(found.T, found.t * (torch.eye(len(square)) - square))
    assert float((found.R * (torch.eye(len(square)) + square)).sum()) == pytest.approx(2.0)
    assert torch.linalg.eigvalsh(found.T)[0] > 0.0


# --- matrices ------------------------------------------------------------------------------------


def test_symmetric_matrices_by_definition() -> None:
    R = positive(4, 0)
    T = positive(4, 1)
    S = nesterov_todd(R, T)
    agree(S @ T @ S, R)
    B = drawn(4, 4, seed=2)
    B = B + B.T
    expected = torch.linalg.eigvals(torch.linalg.inv(R) @ B).real.sort().values
    agree(relative_eigenvalues(R, B), expected)
    L = cholesky(R)
    agree(L.tril() @ L.tril().T, R)


def test_a_matrix_that_rounding_made_indefinite_is_factored_with_a_ridge() -> None:
    indefinite = torch.ones(3, 3).double() - 1e-13 * torch.eye(3).double()
    with pytest.raises(Breakdown):
        factor(indefinite.clone, ridges=(0.0,))
    L = factor(indefinite.clone).tril()
    np.testing.assert_allclose(L @ L.T, indefinite, atol=1e-11)
    with pytest.raises(Breakdown):
        factor(lambda: -torch.eye(3).double())
