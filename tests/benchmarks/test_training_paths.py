"""Along the training of a GLN: the fast network, and what is said of a table."""

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.harness import Verdict
from benchmarks.lippl2022 import training_paths as paths
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_matrices_are_the_network(bias: bool) -> None:
    X = np.random.default_rng(0).normal(size=(7, 4))
    contexts = HyperplaneContexts.random(X, 3, 1, random_state=0)
    network = GLN([contexts], readout_bias=True, seed=0)
    masked = paths.Masked(network, bias=bias)
    outputs = masked(torch.tensor(X), torch.tensor(contexts.gates(X).toarray())).detach()
    shift = 0.0 if bias else network.readout_bias_value
    np.testing.assert_allclose(outputs + shift, network.decision(X))
    np.testing.assert_allclose(paths.now(masked)[0], network.coef())


def frame(ends: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    """Return neighbours, disagreement with SVM-GLN and error at the ends of some trainings."""
    rows = []
    for seed in (1, 2, 3):
        cell = {"units": 10, "seed": seed, "unused": 0.0, "from_l2": 0.1, "l2_norm": 1.0}
        start = {"neighbours": 0.45, "from_gln": 0.5, "error": 0.5, "gln_norm": np.nan}
        rows.append({**cell, **start, "training": paths.RELEASED, "step": 0})
        for training, (neighbours, apart, error) in ends.items():
            end = {"neighbours": neighbours + 0.001 * seed, "from_gln": apart, "error": error}
            row = {**cell, **end, "training": training, "gln_norm": 2.0}
            rows.append(row | {"step": 0 if training.startswith("SVM") else 100})
    return pd.DataFrame(rows)


ENDS = {
    paths.GLN_NORM: (0.3, 0.0, 0.14),
    paths.L2_NORM: (0.6, 0.1, 0.15),
    paths.ZETA: (0.2, 0.05, 0.14),
    paths.RELEASED: (0.36, 0.07, 0.15),
    paths.MOMENTUM: (0.33, 0.03, 0.15),
    paths.ORDER: (0.36, 0.07, 0.15),
    paths.NO_BIAS: (0.36, 0.071, 0.152),
    paths.FULL: (0.36, 0.074, 0.149),
    paths.PLAIN: (0.3, 0.03, 0.14),
}


def test_what_is_said_of_a_training() -> None:
    found = paths.judge(frame(ENDS))
    assert {each.verdict for each in found.values()} == {Verdict.STANDS}
    assert "SVM-zeta changes 133\u00a0% in" in found["sharing"].result
    assert "80\u00a0% at H = 10" in found["becoming"].result
    assert "SVM-L2 is above the network, too, by +15.2\u00a0points" in found["becoming"].control
    assert found["sharing"].remark == ", by a rule later than these numbers"
    assert "H = 10: untrained 0.0 %" in paths.found(frame(ENDS))
    assert "90\u00a0% at H = 10" in found["becoming"].control
    assert "3\u00a0% after 100" in found["plain"].result
    assert "7\u00a0%" in found["plain"].result


@pytest.mark.parametrize(
    ("training", "end", "claim", "verdict"),
    [
        (paths.RELEASED, (0.5, 0.07, 0.15), "becoming", Verdict.IN_PART),
        (paths.RELEASED, (0.7, 0.07, 0.15), "becoming", Verdict.FALLS),
        (paths.FULL, (0.36, 0.08, 0.15), "departures", Verdict.IN_PART),
        (paths.ZETA, (0.2, 0.05, 0.149), "sharing", Verdict.IN_PART),
        (paths.PLAIN, (0.3, 0.05, 0.14), "plain", Verdict.FALLS),
    ],
)
def test_each_claim_can_fail(
    training: str, end: tuple[float, float, float], claim: str, verdict: Verdict
) -> None:
    assert paths.judge(frame(ENDS | {training: end}))[claim].verdict is verdict
