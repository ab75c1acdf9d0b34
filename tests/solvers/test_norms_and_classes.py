"""Every solver on many classes and all norms: its answer, certified, against CVXPY's optimum."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import separable
from implicit_bias import MarginProblem, Status, max_margin, solve
from implicit_bias.norms import L1, LInf, Lp, Norm
from oracles import check_attained

DATA = Path(os.environ.get("IMPLICIT_BIAS_DATA", "data")) / "multiclass-separable"


@pytest.mark.parametrize(
    ("norm", "factor", "solver"),
    [
        ("nuclear", 2**-0.5, "interior-point"),
        ("spectral", 2**-0.5, "feature-space"),
        ("l2", 2**-0.5, "auto"),
        ("l1", 1.0, "auto"),
        ("linf", 0.5, "auto"),
    ],
)
def test_two_classes_are_labels_of_two_signs_up_to_a_factor(
    norm: str, factor: float, solver: str
) -> None:
    binary = solve(separable(f"{norm}-binary"), tol=1e-9).certificate
    found = solve(separable(f"{norm}-two"), solver, 1e-8)
    check_attained(separable(f"{norm}-two"), found)
    assert found.certificate.upper == pytest.approx(factor * binary.upper, rel=1e-7)
    assert found.certificate.min_margin == pytest.approx(binary.min_margin)


@pytest.mark.parametrize(
    ("norm", "solver"),
    [
        ("l2", "feature-space"),
        ("nuclear", "working-set"),
    ],
)
def test_inputs_that_are_all_0_leave_offsets_alone(
    norm: str, solver: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Equal scores cost each sample C; those of uneven classes are balanced by the solver."""
    problem = max_margin(np.zeros((6, 1)), [0, 1, 1, 2, 2, 2], norm, C=2.0, intercept=True)
    found = solve(problem, solver)
    assert found.certificate.lower <= 12.0 * (1 + 1e-12)
    assert found.certificate.upper >= 12.0 * (1 - 1e-12)
    assert found.certificate.gap <= 1e-6
    # BLAS writes to the terminal what it is asked in vain.
    assert "".join(capfd.readouterr()) == ""


# --- published sets --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the published sets are not here")
@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("k10-sigma1", "l2"),
        ("k10-sigma1", "nuclear"),
        ("k10-sigma1", "spectral"),
        ("k10-sigma01", "linf"),
        ("k15-sigma01", "nuclear"),
    ],
)
def test_stored_margins(name: str, norm: str) -> None:
    """All stored margins are right to 1e-5 but one, which is not the maximum."""
    stored = np.load(DATA / f"{name}.npz")
    found = solve(max_margin(stored["X"], stored["y"], norm), tol=1e-7)
    assert found.status is Status.OPTIMAL
    margin = float(stored[f"margin_{norm}"])
    if (name, norm) == ("k10-sigma01", "linf"):
        assert 1 / found.certificate.upper == pytest.approx(14.708888, rel=1e-6)
        assert margin < 0.1 / found.certificate.upper
    else:
        assert 1 / found.certificate.upper == pytest.approx(margin, rel=1e-5)


# --- sizes far apart -------------------------------------------------------------------------


def mixed_gates(norm: Norm, by: str, classes: int) -> MarginProblem:
    """Gates of 1e-8, 1 and 1e8, one size an entry or one a sample."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 3))
    sizes = 10.0 ** rng.choice([-8, 0, 8], size=(8, 3) if by == "entry" else (8, 1))
    y: Any = rng.choice([-1, 1], 8) if classes == 2 else np.arange(8) % classes
    return MarginProblem(X, y, rng.normal(size=(8, 3)) * sizes, np.array([0, 1, 0]), norm=norm)


@pytest.mark.parametrize(
    ("norm", "by", "classes"), [(L1(), "entry", 2), (LInf(), "sample", 2), (L1(), "sample", 3)]
)
def test_linear_programs_of_gates_of_many_sizes(norm: Norm, by: str, classes: int) -> None:
    assert solve(mixed_gates(norm, by, classes), "highs").status is Status.OPTIMAL


@pytest.mark.parametrize(("p", "classes"), [(1 + 2.0**-52, 2), (1.001, 3), (1e16, 3), (1e300, 2)])
def test_powers_of_any_exponent(p: float, classes: int) -> None:
    X = np.random.default_rng(1).normal(size=(8, 12))
    y = np.arange(8) % classes
    problem = max_margin(X, 2 * y - 1 if classes == 2 else y, Lp(p))
    assert solve(problem).status is Status.OPTIMAL
