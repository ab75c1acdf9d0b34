"""A module with samples: its margins, the samples that it misclassifies, and what is trained."""

from typing import Any

import numpy as np
import pytest
import torch

from example_modules import Computed, drawn, layers, linear, of, own_labels, seeded
from implicit_bias.modules.subject import Subject, margins_of, without_gradient
from modules.programs import NORMS

X = drawn(6, 3)


def test_the_normalised_margin_is_signed() -> None:
    """It is min_margin / ||theta||^L of a network that misclassifies a sample, too."""
    module = of(np.array([[3.0, 4.0]]))
    labels = np.array([1, -1])
    subject = Subject.of(margins_of(module, torch.eye(2), labels))
    assert subject.min_margin == -4.0
    assert subject.normalised_margin(NORMS["l2"]) == pytest.approx(-4.0 / 5.0)


def test_a_leading_part_is_read_again_from_the_module_itself() -> None:
    """Its remainder, too, is that of the parameters that the module has by then."""
    module = seeded(
        Computed(
            lambda m, x: m.outer(m.inner(x).relu()) + m.shortcut(x),
            inner=linear(3, 5),
            outer=linear(5),
            shortcut=linear(3),
        )
    )
    margins = margins_of(module, X, own_labels(module, X))
    before = Subject.of(margins, leading=True)
    for p in module.parameters():
        p.data.mul_(3.0)
    again = before.reread(module)
    anew = Subject.of(margins_of(module, X, margins.labels), leading=True)
    assert again.rest == pytest.approx(anew.rest)
    assert again.rest == pytest.approx(before.rest / 3.0)
    np.testing.assert_allclose(again.margins, anew.margins)
    np.testing.assert_allclose(again.module_itself.margins, anew.module_itself.margins)


def test_an_unused_parameter_gets_no_gradient_and_one_at_0_does_no_harm() -> None:
    module = seeded(
        Computed(lambda m, x: m.used(x), used=linear(3), unused=linear(3), at_0=linear(3))
    )
    module.get_parameter("at_0.weight").data.zero_()
    margins = margins_of(module, X, own_labels(module, X))
    assert without_gradient(margins) == ("unused.weight",)


def test_the_error_counts_samples_whatever_the_number_of_classes() -> None:
    module = of(np.eye(3))
    inputs = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    subject = Subject.of(margins_of(module, inputs, [0, 1, 0, 1]))
    assert len(subject.margins) == 8
    assert subject.wrong.tolist() == [2, 3]  # the last one has a margin of 0
    assert subject.error == 0.5
    assert not subject.separates


@pytest.mark.parametrize(
    ("build", "linear_in_all"),
    [
        (lambda: linear(3), True),
        (lambda: Computed(lambda m, x: m.f(x).relu(), f=linear(3)), False),  # degree 1
        (lambda: layers(3, 4, 1, between=None), False),  # in each layer, but not in both
    ],
    ids=["linear", "relu", "deep linear"],
)
def test_margins_are_linear_where_those_of_a_sum_are_a_sum(build: Any, linear_in_all: bool) -> None:
    module = seeded(build())
    subject = Subject.of(margins_of(module, X, own_labels(module, X)))
    assert subject.linear == linear_in_all
