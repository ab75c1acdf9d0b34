"""The margin problem of Adam with one sample at a time, against its definition."""

import numpy as np
import pytest

from implicit_bias import SolveError, max_margin, solve
from implicit_bias.modules.single_samples import per_sample_adam_metric


def test_the_norm_of_single_samples_is_a_fixed_point() -> None:
    """Its multipliers give its metric; equal sizes of features give l2."""
    signed = np.random.default_rng(0).normal(size=(5, 9))
    y = np.array([1, -1, -1, 1, 1])
    found, shares = per_sample_adam_metric(signed * y[:, None], y)
    start = [0.6, 0.1, 0.1, 0.1, 0.1]
    again, _ = per_sample_adam_metric(signed * y[:, None], y, start)
    np.testing.assert_allclose(again, found, atol=1e-7)
    metric = np.array([sum((shares[n] * signed[n, j]) ** 2 for n in range(5)) for j in range(9)])
    metric **= 0.5
    np.testing.assert_allclose(found, metric, rtol=1e-9)
    root = np.sqrt(metric)
    posed = solve(max_margin(signed / root, np.ones(5)), tol=1e-8)
    np.testing.assert_allclose(posed.alpha / posed.alpha.sum(), shares, atol=1e-5)
    along = (shares @ signed) / metric
    expected = along / (signed @ along).min()  # of smallest margin 1
    np.testing.assert_allclose(posed.coef[0] / root, expected, rtol=1e-4, atol=1e-6)
    equal, _ = per_sample_adam_metric(np.sign(signed), np.ones(5))
    np.testing.assert_allclose(equal, equal[0])


def test_what_has_no_such_metric_is_refused() -> None:
    X = np.eye(3)
    with pytest.raises(ValueError, match="classes"):
        per_sample_adam_metric(X, [0, 1, 2])
    with pytest.raises(SolveError):
        per_sample_adam_metric(np.ones((2, 1)), [1, -1])
    metric, _ = per_sample_adam_metric([[2.0, 0.0]], [1])  # a feature that no sample has
    np.testing.assert_allclose(metric, [2.0, 1.0])
