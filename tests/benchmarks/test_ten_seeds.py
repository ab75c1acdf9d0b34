"""Both norms at ten seeds: what is known of an image by brute force, and what a table says."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.harness import Verdict
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


def frame(gain: float = 0.02, other: float = 0.01, early: float = 0.0) -> pd.DataFrame:
    """Return a table: SVM-GLN gains on the least known quarter, and more at the first seeds."""
    rows = list[dict[str, Any]]()
    sizes = ten_seeds.Sizes(units=(10, 100))
    for setting in ten_seeds.settings(sizes):
        seed, units = setting["seed"], setting["units"]
        wide = setting["hyperplanes"] == 2
        norms = {"svm-gln": 0.15, "svm-l2": 0.15 + (-1 if wide else 1) * (0.01 + 0.001 * seed)}
        norms["svm-l2"] += (early if seed > 3 else 0.0) + (0.01 if units == 10 else 0.0)
        errors = norms if wide else norms | {"svm-rc": 0.14 - 1e-4 * seed, "svm-rc-gaussian": 0.14}
        for model, error in errors.items():
            row = {**setting, "model": model, "error": error, "known": 0.9, "gap": 1e-7}
            for by, size in (("known", gain), ("other", other)):
                least = (size + 1e-4 * seed) if model == "svm-l2" else 0.0
                row |= {f"{by}_{place}": 0.1 for place in (2, 3, 4)} | {f"{by}_1": 0.1 + least}
            rows.append(row | {"neighbours": 0.3})
    return pd.DataFrame(rows)


def test_what_ten_seeds_say() -> None:
    table = frame()
    found = ten_seeds.judge(table)
    assert {each.verdict for each in found.values()} == {Verdict.STANDS}
    assert found["seeds"].remark.startswith(": 5 of 5 are the same; 4 stand by ten seeds")
    assert "cells" in ten_seeds.found(table)
    assert len(ten_seeds.tabulate(table)) == 4


@pytest.mark.parametrize(
    ("change", "claim", "verdict"),
    [
        ({"gain": 0.01, "other": 0.02}, "where", Verdict.IN_PART),
        ({"gain": -0.02, "other": 0.02}, "where", Verdict.FALLS),
        ({"early": -0.03}, "seeds", Verdict.IN_PART),
    ],
)
def test_each_claim_can_fail(change: dict[str, float], claim: str, verdict: Verdict) -> None:
    assert ten_seeds.judge(frame(**change))[claim].verdict is verdict
