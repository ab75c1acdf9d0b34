"""What is solved where the hard margin has no solution, by hand on a line."""

import numpy as np
import pytest

from implicit_bias import MarginProblem, Status, max_margin
from implicit_bias.solvers import solve_relaxed

# The last sample is on the wrong side.
X = np.array([[-2.0], [-1.0], [1.0], [2.0], [1.5]])
Y = np.array([-1.0, -1.0, 1.0, 1.0, -1.0])


def problem() -> MarginProblem:
    return max_margin(X, Y)


def test_a_separable_problem_is_not_relaxed() -> None:
    separable = problem().subset(np.arange(4))
    found = solve_relaxed(separable, "soft")
    assert found.solution.certificate.upper == pytest.approx(1.0)
    assert found.failure is None
    assert len(found.dropped) == 0
    assert found.message == ""


def test_a_soft_margin_has_the_scale_of_the_data() -> None:
    """C is 100 over the root mean square of the inputs, times a sample's weight."""
    weights = np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    size = float(np.sqrt(np.mean(X**2)))
    found = solve_relaxed(problem(), "soft", weights=weights)
    np.testing.assert_allclose(found.C, 100.0 / size * weights)
    np.testing.assert_array_equal(found.solution.problem.C, found.C)
    assert found.solution.status is Status.OPTIMAL
    assert found.failure is not None
    assert found.failure.status is Status.NOT_SEPARABLE
    assert solve_relaxed(problem(), "soft", soft_C=0.5).C == 0.5


def test_samples_that_the_soft_margin_misclassifies_are_left_out() -> None:
    found = solve_relaxed(problem(), "drop")
    assert found.dropped.tolist() == [4]
    assert found.solution.status is Status.OPTIMAL
    assert found.solution.certificate.upper == pytest.approx(1.0)  # of samples at -1 and 1
    assert found.solution.alpha[4] == 0.0
    assert set(found.solution.support) == {1, 2}
    assert found.C == np.inf
    # Among more samples, of which these five are the second to the sixth.
    wider = found.among(8, np.arange(1, 6))
    assert wider.dropped.tolist() == [0, 5, 6, 7]
    assert set(wider.solution.support) == {2, 3}
    assert wider.failure is not None
    assert len(wider.failure.alpha) == 8
    assert found.failure is not None
    assert found.failure.proof is not None
    assert wider.failure.proof is not None
    assert wider.failure.proof.samples.tolist() == (found.failure.proof.samples + 1).tolist()


def test_a_class_is_not_left_out_as_a_whole() -> None:
    """The two samples of class 1 are between those of class -1."""
    inputs = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [1.5]])
    one = max_margin(inputs, np.array([-1.0, -1.0, -1.0, -1.0, -1.0, 1.0]))
    found = solve_relaxed(one, "drop")
    assert found.solution.status is Status.NOT_SEPARABLE
    assert found.solution is found.failure
    assert len(found.dropped) == 0
    assert "class 1" in found.done
    wider = found.among(7, np.arange(6))
    assert wider.solution is wider.failure
