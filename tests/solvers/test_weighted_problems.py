"""One C a sample: what such a problem equals."""

from dataclasses import replace

import numpy as np
import pytest

import cases
from implicit_bias import solve

TWO = cases.separable("l2-binary-weights-intercept")
N = TWO.n_samples


# --- what it equals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "features-binary-weights-intercept",
        "l1-binary-weights-intercept",
        "nuclear-binary-weights-intercept",
    ],
)
def test_a_sample_twice_has_twice_the_weight(name: str) -> None:
    problem = cases.separable(name)
    again = np.append(np.arange(N), [3, 7])
    twice = problem.subset(again)
    doubled = np.where(np.isin(np.arange(N), [3, 7]), 2.0, 1.0) * problem.C
    one = solve(twice, tol=cases.GAP_LIMIT)
    other = solve(replace(problem, C=doubled), tol=cases.GAP_LIMIT)
    assert one.certificate.upper == pytest.approx(other.certificate.upper, rel=cases.OBJECTIVE_RTOL)


def test_equal_weights_are_a_number() -> None:
    same = replace(TWO, C=np.full(N, np.float32(2)))
    assert isinstance(same.C, float)
    assert same.C == 2.0
    assert replace(TWO, C=np.full(N, np.inf)).hard_margin


def test_weights_are_owned_and_kept() -> None:
    C = TWO.box.copy()
    problem = replace(TWO, C=C)
    C[0] = 77.0
    assert problem.box[0] != 77.0
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(problem.C)[0] = 1.0
    np.testing.assert_array_equal(problem.subset(np.array([3, 2])).C, problem.box[[3, 2]])
