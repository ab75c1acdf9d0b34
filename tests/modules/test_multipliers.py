"""The best multipliers in each norm, against the optimum by CVXPY."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import drawn, linear, of, seeded
from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.modules import multipliers, tangent_program
from implicit_bias.modules.level_method import LevelMethod
from implicit_bias.modules.subject import Subject
from implicit_bias.modules.tangent_program import Gradients, Multipliers
from implicit_bias.norms.tensors import ParameterNorm, as_parameter_norm
from implicit_bias.problem import Constraints, max_margin
from implicit_bias.solvers import solve
from modules.programs import CASES, NORMS, D, by_cvxpy, check, labelled, relu, scaled


@pytest.mark.parametrize(
    ("norm", "name"),
    [
        ("l2", "relu-binary"),
        ("l1", "relu-classes"),
        ("linf", "mixed-binary"),
        ("spectral", "relu-binary"),
        ("nuclear", "pooled-binary"),
        ("mixed", "mixed-classes"),
    ],
)
def test_the_best_multipliers_are_those_of_brute_force(norm: str, name: str) -> None:
    degree, build = CASES[name]
    program, J = scaled(build(), degree, NORMS[norm])
    found = multipliers.best_multipliers(program)
    optimum = by_cvxpy(program.function, J, degree, NORMS[norm])
    assert found.method == "exact"
    assert found.lower == pytest.approx(optimum, rel=1e-6)
    assert found.upper == pytest.approx(optimum, rel=1e-6)
    v = program.function.parameters(found.combination)
    assert found.lower == pytest.approx(NORMS[norm].dual(v))
    check(found, J, degree)


@dataclass(frozen=True)
class Wrapped:
    """A norm that cannot say itself in CVXPY, so that no solver takes its program."""

    norm: ParameterNorm

    def __getattr__(self, name: str) -> Any:
        if name not in ("value", "dual", "maximiser"):
            raise AttributeError(name)
        return getattr(self.norm, name)


@pytest.mark.parametrize("norm", ["l1", "linf", "spectral"])
def test_the_level_method_brackets_the_optimum(norm: str) -> None:
    """Its bounds close in on it, and no step makes one worse.

    How many steps it takes to 2 % depends on how the processor rounds.
    """
    program, J = scaled(seeded(linear(D, 3), 2), 1.0, NORMS[norm])
    optimum = by_cvxpy(program.function, J, 1.0, NORMS[norm])
    lower, upper = [0.0], [np.inf]

    def near(found: Multipliers) -> bool:
        return found.upper <= 1.02 * found.lower

    for method in (LevelMethod(most_steps=0), LevelMethod(most_steps=5), LevelMethod()):
        start = program.bound_by(tangent_program.loss_weights(program.margins, 2))
        found = method.improve([start], near, NEVER)
        lower.append(found.lower)
        upper.append(found.upper)
        gap = 1.0 - (optimum / program.size) ** 2
        assert found.gap_lower - 1e-7 <= gap <= found.gap + 1e-7
        assert found.gap_lower == pytest.approx(1.0 - (found.upper / program.size) ** 2)
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)
    assert lower[-1] <= optimum * (1 + 1e-7)
    assert optimum * (1 - 1e-7) <= upper[-1] <= 1.02 * lower[-1]
    check(found, J, 1.0)


@pytest.mark.parametrize("norm", ["l2", "mixed"])
def test_any_weights_prove_a_lower_bound_and_any_direction_an_upper_one(norm: str) -> None:
    program, J = scaled(relu(3), 2.0, NORMS[norm])
    optimum = by_cvxpy(program.function, J, 2.0, NORMS[norm])
    weights = np.random.default_rng(0).random(len(J))
    found = program.bound_by(weights)
    size = NORMS[norm].dual(program.function.parameters(torch.tensor(J.T @ weights)))
    assert found.lower == pytest.approx(2.0 * weights.sum() / size)
    assert found.lower <= optimum * (1 + 1e-6)
    check(found, J, 2.0)
    # theta is feasible, and half way from it to the best direction is better
    best = multipliers.best_multipliers(program)
    w = (best.direction + program.theta) / 2.0
    better = program.with_better_upper(found, w, J @ w.numpy())
    assert optimum * (1 - 1e-6) <= better.upper <= found.upper == program.size
    check(better, J, 2.0)


def test_in_l2_the_bounds_meet_to_rounding() -> None:
    """Though an interior point has the multipliers to half of the digits of its gap."""
    sizes = torch.logspace(0, -2, 20, dtype=torch.float64)
    function = labelled(seeded(linear(20), 2), drawn(1000, 20) * sizes)
    found = Subject(function, 1.0).measure(NORMS["l2"])
    assert found.method == "exact"
    assert found.lower == pytest.approx(found.upper, rel=1e-9)


def test_a_gap_that_is_asked_for_roughly_takes_fewer_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Subject.of(labelled(relu(3), drawn(60, D))).at_margin_1(NORMS["linf"])
    solved = list[object]()

    def counted(problem: Any, **options: Any) -> Any:
        solved.append(problem)
        return solve(problem, **options)

    monkeypatch.setattr(multipliers, "solve", counted)
    search = multipliers.MultiplierSearch(first_pairs=4)
    exact = search.best(program)
    assert exact.method == "exact"
    assert len(solved) > 2
    # No bounds on a gap are further apart than the gap: the first round ends the search.
    solved.clear()
    first = replace(search, exact=False, known=1.0, known_share=1.0).best(program)
    assert first.method == "interior point"
    assert len(solved) == 1
    rough = replace(search, exact=False, known=0.05).best(program)
    assert rough.gap - rough.gap_lower <= min(0.05, 0.1 * rough.gap)
    for found in (first, rough):
        assert found.gap_lower - 1e-9 <= exact.gap <= found.gap + 1e-9


def test_out_of_time_the_bounds_so_far_are_returned() -> None:
    program, J = scaled(relu(3), 2.0)
    found = multipliers.best_multipliers(program, deadline=Deadline.after(0.0))
    best = multipliers.best_multipliers(program)
    assert (found.method, best.method) == ("stopped", "exact")
    assert 0 < found.lower <= best.lower * (1 + 1e-9)
    assert best.upper * (1 - 1e-9) <= found.upper <= program.size
    check(found, J, 2.0)


class LateGram:
    """Gradients of which only one Gram matrix is there in time."""

    def __init__(self, gradients: Gradients) -> None:
        self.gradients = gradients
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gradients, name)

    def gram(self, *given: Any) -> Any:
        """Raise TimeoutError but the first time."""
        self.asked += 1
        if self.asked > 1:
            raise TimeoutError
        return self.gradients.gram(*given)


def test_out_of_time_for_more_pairs_the_bounds_so_far_are_those_of_a_stopped_search() -> None:
    program, J = scaled(relu(3), 2.0)
    best = multipliers.best_multipliers(program)
    late: Any = LateGram(program.function)
    search = multipliers.MultiplierSearch(first_pairs=2)
    found = search.best(replace(program, other_gradients=late))
    assert late.asked == 2
    assert found.method == "stopped"
    assert found.lower <= best.lower * (1 + 1e-9)
    assert best.upper * (1 - 1e-9) <= found.upper
    check(found, J, 2.0)


def test_the_deadline_of_the_caller_stops_a_search_and_its_own_limit_does_not() -> None:
    """Of a norm whose bounds never agree to all digits."""
    program, _ = scaled(relu(3), 2.0, as_parameter_norm(Wrapped(NORMS["spectral"])))
    search = multipliers.MultiplierSearch(passes=0.0, known=0.0, least_known=0.0, seconds=0.3)
    assert search.best(program).method == "level method"
    assert search.best(program, deadline=Deadline.after(100.0)).method == "level method"
    assert search.best(program, deadline=Deadline.after(0.2)).method == "stopped"


def test_without_a_time_limit_no_search_was_stopped() -> None:
    """Features of sizes from 1 to 1e-7, of which rounding keeps the bounds apart."""
    sizes = torch.logspace(0, -7, 8, dtype=torch.float64)
    function = labelled(of((drawn(1, 8, seed=1) / sizes).numpy()), drawn(40, 8) * sizes)
    found = Subject(function, 1.0).measure(NORMS["l2"])
    assert found.lower < (1 - 1e-6) * found.upper
    assert found.gap_lower <= found.gap
    assert found.method == "interior point"


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_many_pairs_are_solved_on_some(norm: str) -> None:
    """More than the first working set has."""
    inputs = drawn(100, 2)
    function = labelled(seeded(linear(2), 2), inputs)
    program = Subject(function, 1.0).at_margin_1(NORMS[norm])
    found = multipliers.MultiplierSearch(first_pairs=4).best(program)
    optimum = solve(max_margin(inputs.numpy(), function.labels, norm), tol=1e-10)
    assert found.lower == pytest.approx(optimum.certificate.lower, rel=1e-6)
    assert found.upper == pytest.approx(optimum.certificate.upper, rel=1e-6)


def test_the_level_method_leaves_a_start_that_has_one_pair_alone() -> None:
    """Of a module whose smallest margin is far below all others the loss weighs that pair alone."""
    program, J = scaled(relu(3), 2.0, NORMS["l2"])
    weights = np.zeros(len(program.margins))
    weights[program.margins.argmin()] = 1.0
    search = LevelMethod(most_steps=40)
    found = search.improve([program.bound_by(weights)], lambda _: False, NEVER)
    optimum = by_cvxpy(program.function, J, 2.0, NORMS["l2"])
    assert found.lower <= optimum * (1 + 1e-6)
    assert found.lower > 0.9 * optimum
    assert optimum * (1 - 1e-6) <= found.upper < 1.1 * optimum


def test_the_weights_of_the_loss_are_its_derivatives() -> None:
    outputs, labels = drawn(5, 3).requires_grad_(), torch.tensor([0, 1, 2, 0, 1])
    (slopes,) = torch.autograd.grad(
        nn.functional.cross_entropy(outputs, labels, reduction="sum"), outputs
    )
    pairs = Constraints.of_labels(labels.numpy(), 3, intercept=False)
    margins = pairs.margins(outputs.detach().numpy())
    expected = slopes.numpy()
    expected[np.arange(5), labels] = 0.0
    table = pairs.alpha(tangent_program.loss_weights(margins, 2))
    np.testing.assert_allclose(table, expected / expected.max())
    huge = tangent_program.loss_weights(np.array([800.0, 801.0]), 1)
    np.testing.assert_allclose(huge, [1.0, np.exp(-1.0)])
