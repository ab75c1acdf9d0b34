"""The group norm and its dual."""

import numpy as np
import pytest

from cases import random_metric
from implicit_bias.norms import GroupNorm

GROUPS = np.array([0, 1, 0, 1, 1, 2])


@pytest.fixture(params=[None, 3, 2], ids=["plain", "metric", "singular-metric"])
def norm(request: pytest.FixtureRequest) -> GroupNorm:
    rank = request.param
    return GroupNorm(GROUPS, None if rank is None else {1: random_metric(3, rank)})


def test_value_and_dual_are_sums_and_maxima(norm: GroupNorm) -> None:
    coef = norm.projected(np.random.default_rng(0).normal(size=(6, 4)))
    assert norm.n_groups == 3
    assert norm.value(coef) == pytest.approx(norm.group_norms(coef).sum())
    assert norm.dual(coef) == pytest.approx(norm.dual_norms(coef).max())


def test_dual_norm_is_attained(norm: GroupNorm) -> None:
    """<zeta, V> <= Omega(zeta) Omega_*(V), with equality for zeta along one group's P_g V_g."""
    rng = np.random.default_rng(1)
    V = rng.normal(size=(6, 4))
    for _ in range(20):
        coef = norm.projected(rng.normal(size=(6, 4)))
        assert np.sum(coef * V) <= norm.value(coef) * norm.dual(V) * (1 + 1e-12)
    largest = np.eye(3)[norm.dual_norms(V).argmax()]
    best = norm.aligned(V, largest)
    assert np.sum(best * V) == pytest.approx(norm.value(best) * norm.dual(V))


def test_root_turns_a_metric_into_gates(norm: GroupNorm) -> None:
    u = np.random.default_rng(2).normal(size=(len(norm.plain_groups), 4))
    np.testing.assert_allclose(norm.plain_coef(norm.root @ u), u, atol=1e-9)
    np.testing.assert_allclose(norm.group_norms(norm.root @ u), norm.plain_norms(u))


def test_outside_a_singular_metric_the_norm_is_infinite() -> None:
    norm = GroupNorm(np.zeros(2, dtype=int), {0: np.ones((2, 2))})
    assert norm.value(np.array([[1.0], [0.0]])) == np.inf
    assert norm.dual(np.array([[1.0], [-1.0]])) == pytest.approx(0, abs=1e-15)


def test_groups_are_checked() -> None:
    with pytest.raises(ValueError, match="numbered"):
        GroupNorm(np.array([0, 2]))
