"""Both norms at ten seeds: what is known of an image by brute force, and what a table says."""

import numpy as np

from benchmarks.lippl2022 import ten_seeds
from implicit_bias.problem.gating import HyperplaneContexts


def test_known_is_the_share_of_units_in_common_with_the_nearest_samples() -> None:
    rng = np.random.default_rng(0)
    X, images = rng.normal(size=(15, 4)), rng.normal(size=(6, 4))
    contexts = HyperplaneContexts.random(X, 5, 2, random_state=0)
    theirs = contexts.contexts(X)
    expected = []
    for own in contexts.contexts(images):
        shares = sorted(sum(a == b for a, b in zip(own, row, strict=True)) / 5 for row in theirs)
        expected.append(np.mean(shares[-ten_seeds.NEAREST :]))
    np.testing.assert_allclose(ten_seeds.known(contexts, X, images), expected)


def test_equal_values_are_in_one_quarter() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.9])
    assert ten_seeds.quarters(values).tolist() == [0, 0, 1, 1, 1, 1, 1, 3]
