"""What a diagnosis says of its numbers: findings, three lines, a page and pictures."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cases import clusters
from diagnosis.asking import codes, finding
from example_modules import of, own_labels
from implicit_bias import Diagnosis, diagnose
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.diagnosis import Code, Finding
from implicit_bias.diagnosis.function_space import FunctionSpace


@cache
def measured() -> Diagnosis:
    """Diagnose a random ReLU network, which is near no KKT point."""
    X, _ = clusters(12, 4, 3, spread=0.2, seed=0)
    rng = np.random.default_rng(2)
    module = of(rng.normal(size=(9, 4)), rng.normal(size=(3, 9)), between=nn.ReLU)
    return diagnose(module, X, own_labels(module, torch.tensor(X)), norm="linf")


def test_arrays_are_a_table_of_samples_and_classes() -> None:
    found = measured()
    labels = np.isinf(found.margins).argmax(axis=1)
    assert found.margins.shape == found.multipliers.shape == (12, 3)
    assert (np.isinf(found.margins).sum(axis=1) == 1).all()
    assert not found.multipliers[np.arange(12), labels].any()
    assert found.margins.min() == pytest.approx(1.0)
    shares = found.multipliers.sum(axis=1) / found.multipliers.sum()
    assert found.sample_shares == pytest.approx(shares)
    assert [n for n, _, _ in found.largest_shares(2)] == np.argsort(-shares)[:2].tolist()


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ({"gap": 0.0009, "gap_lower": 0.0009}, Code.KKT_POINT),
        ({"gap": 0.0011, "gap_lower": 0.0011}, Code.NEAR),
        ({"gap": 0.1, "gap_lower": 0.1}, Code.NEAR),
        ({"gap": 0.11, "gap_lower": 0.05}, Code.PERHAPS_NEAR),
        ({"gap": 0.11, "gap_lower": 0.11}, Code.FAR),
        ({"gap": 0.9, "gap_lower": 0.9, "gap_across_kinks": 0.05}, Code.NEAR),
        ({"gap": 0.9, "gap_lower": 0.9, "gaps": {"l2": 0.1, "l1": 0.2}}, Code.OTHER_NORM_IS_NEARER),
        ({"gap": 0.9, "gap_lower": 0.9, "gaps": {"l2": 0.11}}, Code.FAR),  # which is not near
        ({"gap": 0.15, "gap_lower": 0.15, "gaps": {"l2": 0.09}}, Code.FAR),  # nor clearly nearer
    ],
)
def test_where_a_module_stands(numbers: dict[str, Any], code: Code) -> None:
    found = replace(measured(), **{"gap_across_kinks": 1.0, "gaps": {}, **numbers})
    first = found.findings[0]
    assert first.code is code
    own = min(found.gap, found.gap_across_kinks)
    other = code is Code.OTHER_NORM_IS_NEARER
    assert first.value == (min(found.gaps.values()) if other else own)
    assert found.verdict.startswith(first.found)
    assert (Code.ACROSS_KINKS in codes(found)) == found.on_kinks == ("gap_across_kinks" in numbers)


def test_a_verdict_is_three_lines_where_the_module_is_what_matters_and_what_to_do() -> None:
    found = measured()
    assert codes(found) == [Code.FAR, Code.LAYER, Code.CONSTANT_RATE]
    layer = max(found.layers, key=lambda layer: layer.gap)
    assert finding(found, Code.LAYER) == Finding(Code.LAYER, layer.gap, (layer.name,))
    first, second, third = found.findings
    assert str(found).splitlines() == [first.found, second.found, third.cure]
    # What is in the way comes first, and each cure once.
    aims = {"aim": "the loss over entries up to 2"}
    decay = Finding(Code.WEIGHT_DECAY, 0.5, details=aims)
    memory = Finding(Code.ADAMS_MEMORY, 0.05)
    dropout = Finding(Code.DROPOUT, names=("1",))
    held = replace(found, checks=(decay, memory, decay, dropout))
    assert codes(held)[:4] == [Code.FAR, *(each.code for each in (decay, decay, memory))]
    assert held.advice.splitlines() == [decay.cure, memory.cure]
    assert held.verdict.splitlines()[1:] == [decay.found, decay.cure]
    assert held.warnings == (str(decay), str(decay), str(dropout))
    # At a KKT point only another limit is in the way.
    arrived = replace(held, gap=0.0, gap_lower=0.0)
    assert arrived.advice == decay.cure
    assert replace(found, gap=0.0, gap_lower=0.0).advice == ""
    assert replace(found, method="stopped").findings[1].code is Code.STOPPED


def test_the_first_line_is_about_the_predictor_where_its_norm_has_an_optimum() -> None:
    """Unless the training has another limit, whose optimum it is not."""
    bounds = Certificate(lower=1.0, upper=1.0, gap=0.0, min_margin=1.0, dual_norms=np.ones(1))
    space = FunctionSpace("deep linear", "nuclear", 1.25, bounds, "")
    found = replace(measured(), function_space=space)
    optimum = finding(found, Code.ABOVE_OPTIMUM)
    assert optimum.value == 0.25
    first, second, _ = found.verdict.splitlines()
    assert (first, second) == (optimum.found, found.findings[0].found)
    decay = Finding(Code.WEIGHT_DECAY, 0.5, details={"aim": "the loss over entries up to 2"})
    held = replace(found, checks=(decay,))
    assert codes(held)[:3] == [Code.FAR, Code.WEIGHT_DECAY, Code.ABOVE_OPTIMUM]
    none = replace(found, function_space=replace(space, certificate=None, obstacle="too large"))
    assert codes(none) == codes(measured())
