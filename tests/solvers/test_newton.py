"""A Newton direction solves the linearized KKT conditions, which are written out here by cone."""

from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

import cases
from implicit_bias.solvers.cones import Direction, EntryCone, Iterate, NuclearCone, SpectralCone
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.newton import ClassRowNewton, Drift, Newton
from implicit_bias.solvers.scaling import ScaledProblem

Residuals: TypeAlias = dict[str, Tensor]
MU = 0.3
# Of the differences that stand for derivatives.
STEP = 3e-5

GROUPS = ["gln+intercept", "soft-linear+intercept", "groups", "apart-soft", "l2-soft-intercept"]
SINGULAR = ["nuclear-intercept", "nuclear-soft-intercept", "pergate-soft-intercept"]
SINGULAR += ["spectral-intercept", "spectral-soft-intercept"]
ENTRIES = ["l3-soft-intercept", "l1.5gates-gated", "l3-binary", "l3features-intercept"]


class Problem:
    """A cone, and a point inside of it that solves no equation but the box's and the curve's."""

    def __init__(self, name: str, system: Any) -> None:
        run: Any = InteriorPoint(system=system).prepare(cases.separable(name), None)
        self.scaled = ScaledProblem(run.layout, torch.device("cpu"))
        self.cone: Any = run.cone_type(self.scaled)
        self.newton_type: Any = run.newton_type
        self.Phi = torch.stack(
            [self.cone.dual_vectors(unit) for unit in torch.eye(self.scaled.n_rows).double()]
        )
        self.point = self.moved_off(run.interior_start(self.cone))

    def moved_off(self, point: Iterate) -> Iterate:
        """Take a point off the central path; w stays what alpha leaves of C."""
        torch.manual_seed(0)

        def factor(x: Tensor) -> Tensor:
            return x * (1.0 + 0.2 * torch.rand_like(x))

        alpha = 0.5 * factor(point.alpha)
        w = (self.scaled.box_C - self.scaled.boxes.sums(alpha))[: self.scaled.n_boxes]
        rest = {name: factor(getattr(point, name)) for name in ("s", "xi")}
        if isinstance(self.cone, EntryCone):
            # On the curve, as a step aims at its tangent.
            w_of_entries = factor(0.5 * point.T.sum(0))
            u = (w_of_entries / self.cone.radius_of_columns(point.t)) ** (self.cone.exponent - 1.0)
            share = 0.3 + 0.4 * torch.rand_like(u)
            rest["W"] = 0.5 * point.W
            rest["R"] = u * torch.stack([share, 1.0 - share])
            rest["T"] = w_of_entries + torch.stack([-rest["W"], rest["W"]])
        else:
            for name in ("R", "T"):
                value = factor(getattr(point, name))
                rest[name] = 0.5 * (value + value.mT) if value.ndim == 2 else value
            rest["W"] = 0.9 * factor(point.W)
        beta = torch.rand_like(point.beta)
        return replace(point, alpha=alpha, w=w, beta=beta, **rest)

    def newton(self) -> Newton[Any]:
        """Factorize the system at the point."""
        point = self.point
        scaled = self.scaled
        cone = self.cone
        cone.update(point, cone.dual_vectors(point.alpha))
        cone.scale()
        excess = cone.margins + scaled.e @ point.beta - scaled.b
        newton: Newton[Any] = self.newton_type(
            cone=cone,
            point=point,
            rows=scaled.rows,
            free=None,
            boxes=scaled.boxes,
            e=scaled.e,
            residual=point.s - scaled.boxes.per_row(point.xi) - excess,
            imbalance=scaled.e.T @ point.alpha,
            drifts=None,
            coarse=False,
        )
        return newton

    def residuals(self, point: Iterate, mu: float) -> Residuals:
        """Evaluate the KKT conditions in the heads of `interior_point` and of the cones' files."""
        scaled = self.scaled
        cone = self.cone
        V = torch.tensordot(point.alpha, self.Phi, 1)
        found = {"balance": scaled.e.T @ point.alpha, "s": point.s * point.alpha - mu}
        if scaled.soft:
            found["xi"] = point.xi * point.w - mu
            found["box"] = point.w + scaled.boxes.sums(point.alpha) - scaled.box_C
        R = point.R
        T = point.T
        t = point.t
        W = point.W if point.W.numel() else V
        if isinstance(cone, EntryCone):
            p = cone.exponent
            power = (0.5 * T.sum(0) / cone.radius_of_columns(t)) ** (p - 1.0)
            zeta = W
            found["V"] = V - R[0] + R[1]
            found["curve"] = R.sum(0) - power
            whole = cone.sum_per_radius(power ** (p / (p - 1.0)))
            found["t"] = (1.0 - 1.0 / p) * (1.0 - whole)
            found["slack"] = T[1] - T[0] - 2.0 * W
            found["R"] = R * T - mu
        elif isinstance(cone, SpectralCone):
            zeta = W
            square = W @ W.T / t**2
            found["V"] = V - R @ W / t
            found["t"] = 1.0 - 0.5 * ((cone.eye + square) * R).sum()[None]
            found["slack"] = T - t * (cone.eye - square)
        elif isinstance(cone, NuclearCone):
            zeta = R @ W
            found["V"] = V - W
            found["slack"] = T - cone.eye + W @ W.T
        else:
            found["slack"] = T - 0.5 + 0.5 * cone.inner(W, W)
            found["R"] = R * T - mu
            found["V"] = V - W
        if isinstance(cone, EntryCone | SpectralCone | NuclearCone):
            margins = self.Phi.flatten(1) @ zeta.reshape(-1)
        else:
            margins = torch.stack([cone.inner(W, row) for row in self.Phi]) @ R
        losses = scaled.boxes.per_row(point.xi)
        found["margins"] = margins + scaled.e @ point.beta - scaled.b + losses - point.s
        return found


def derivatives(problem: Problem, step: Direction) -> tuple[Residuals, Residuals]:
    """First derivatives of the residuals along a step, and half of the second ones."""
    along = Iterate(**{name: x for name, x in vars(step).items() if name != "U"})
    here = problem.residuals(problem.point, MU)
    ahead = problem.residuals(problem.point.moved(along, STEP), MU)
    behind = problem.residuals(problem.point.moved(along, -STEP), MU)
    first = {name: (ahead[name] - behind[name]) / (2.0 * STEP) for name in here}
    second = {
        name: (ahead[name] - 2.0 * here[name] + behind[name]) / (2.0 * STEP**2) for name in here
    }
    return first, second


def assert_sums_to_0(*parts: Tensor) -> None:
    """Up to what differences leave of derivatives."""
    size = max(float(part.norm()) for part in parts)
    assert float(sum(parts, torch.zeros(())).norm()) <= 1e-5 * max(1.0, size)


@pytest.mark.parametrize("system", ["rows", "features"])
@pytest.mark.parametrize("name", [*GROUPS, *SINGULAR, *ENTRIES])
def test_directions_solve_the_conditions_to_first_and_second_order(name: str, system: str) -> None:
    """F + F' step = 0; of a corrector F + F' step + F''(predictor, predictor) / 2 = 0.

    The corrector leaves out the second derivatives of the curve of l_p.
    """
    problem = Problem(name, system)
    newton = problem.newton()
    step = newton.direction(MU)
    predictor = newton.direction(0.0)
    first, _ = derivatives(problem, step)
    corrected, _ = derivatives(problem, newton.direction(MU, predictor))
    _, second = derivatives(problem, predictor)
    for condition, value in problem.residuals(problem.point, MU).items():
        assert_sums_to_0(value, first[condition])
        if not (isinstance(problem.cone, EntryCone) and condition in ("curve", "t")):
            assert_sums_to_0(value, corrected[condition], second[condition])
    if isinstance(problem.cone, SpectralCone | NuclearCone):
        # Scaled products: dR + S dT S = mu T^-1 - R, of the S with S T S = R.
        S = problem.cone.S
        R = problem.point.R
        T = problem.point.T
        assert_sums_to_0(S @ T @ S, -R)
        assert_sums_to_0(S, -S.T)
        assert_sums_to_0(step.R, S @ step.T @ S, R - MU * torch.linalg.inv(T))


@pytest.mark.parametrize("name", ["nuclear-intercept", "spectral-intercept"])
def test_a_refined_direction_solves_the_same_conditions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refinement adds to the variables of the one before it, the offsets as well."""
    monkeypatch.setattr(ClassRowNewton, "negligible", 0.0)
    monkeypatch.setattr(ClassRowNewton, "refinements", 2)
    problem = Problem(name, "rows")
    first, _ = derivatives(problem, problem.newton().direction(MU))
    for condition, value in problem.residuals(problem.point, MU).items():
        assert_sums_to_0(value, first[condition])


def test_rows_outside_of_the_system_change_what_the_others_see() -> None:
    """The idle ones change by -alpha, and by 1 / s for each unit of mu."""
    problem = Problem("gln+intercept", "rows")
    scaled = problem.scaled
    point = problem.point
    idle = torch.arange(scaled.n_rows) % 3 == 0
    free = torch.nonzero(~idle)[:, 0]
    away = torch.where(idle, -point.alpha, 0.0)
    by_mu = torch.where(idle, 1.0 / point.s, 0.0)
    problem.cone.update(point, problem.cone.dual_vectors(point.alpha))
    excess = problem.cone.margins + scaled.e @ point.beta - scaled.b
    newton = problem.newton_type(
        cone=problem.cone,
        point=replace(point, alpha=point.alpha[free], s=point.s[free]),
        rows=scaled.rows.subset(free),
        free=free,
        boxes=scaled.boxes,
        e=scaled.e[free],
        residual=(point.s - excess)[free],
        imbalance=scaled.e.T @ point.alpha,
        drifts=(
            Drift(scaled.rows.dual_vectors(away), scaled.e.T @ away),
            Drift(scaled.rows.dual_vectors(by_mu), scaled.e.T @ by_mu),
        ),
        coarse=False,
    )
    step = newton.direction(MU)
    whole = replace(
        step,
        alpha=(away + MU * by_mu).index_copy(0, free, step.alpha),
        s=torch.zeros_like(point.s).index_copy(0, free, step.s),
    )
    first, _ = derivatives(problem, whole)
    for condition, value in problem.residuals(point, MU).items():
        rows = free if condition in ("margins", "s") else slice(None)
        assert_sums_to_0(value[rows], first[condition][rows])
