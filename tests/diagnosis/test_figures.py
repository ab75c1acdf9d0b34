"""Figures of a diagnosis, a recorder and a trace, drawn as a user saves them."""

from __future__ import annotations

import io

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import nn
from torch.nn.functional import cross_entropy

import implicit_bias as ib
from example_modules import drawn, layers, own_labels

X = drawn(12, 4)


def labels_of_ticks(figure: Figure) -> list[list[str]]:
    """Return the text at each axis, after a save outside of the package's style."""
    figure.savefig(io.BytesIO())
    found = []
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            found.append([label.get_text() for label in axis.get_ticklabels()])
    return found


def recorded(*steps: int, separates: bool = True) -> ib.Recorder:
    """Record a linear module of growing margins."""
    module = nn.Linear(3, 1, bias=False).double()
    recorder = ib.Recorder(module, torch.eye(3).double(), torch.ones(3), norms=["l2"])
    for step in steps:
        module.weight.data.copy_(torch.tensor([[1.0, 2.0 + 0.1 * step, 3.0 + 0.1 * step]]))
        if not separates:
            module.weight.data.neg_()
        recorder.record(step)
    return recorder


def test_steps_from_zero_are_plain_numbers() -> None:
    """On an axis that is linear up to the first step and logarithmic from there on."""
    texts = labels_of_ticks(recorded(0, 20, 40, 100, 5000).plot())
    assert not any("$" in text for axis in texts for text in axis)
    for axis in (texts[0], texts[2]):
        assert {"0", "100", "1000"} <= set(axis)


def test_scores_in_the_box_are_plain_numbers() -> None:
    module = nn.Linear(4, 3).double()
    adamw = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=2.0)
    trace = ib.BoxTrace(module, adamw)
    for _ in range(50):
        loss = cross_entropy(module(X), torch.arange(12) % 3)
        module.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        trace.record(loss)
        adamw.step()
    assert not any("$" in text for axis in labels_of_ticks(trace.plot()) for text in axis)


def test_a_single_point_without_separation_is_shaded() -> None:
    for ax in recorded(7, separates=False).plot().axes:
        assert ax.get_xlim() == (6.0, 8.0)
        (shade,) = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        assert (shade.get_x(), shade.get_width()) == (7.0, 1.0)


def test_upper_bounds_on_gaps_are_hollow() -> None:
    torch.manual_seed(0)
    module = layers(4, 16, 3).double()
    found = ib.diagnose(module, X, own_labels(module, X), norm="linf")
    assert found.gap == found.gap_lower
    bars = found.plot().axes[1]
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert set(names) == set(found.gaps)
    assert names[-1] == "linf"
    numbers = [text.get_text() for text in bars.texts]
    for name, bar, number in zip(names, bars.patches, numbers, strict=True):
        assert isinstance(bar, Rectangle)
        assert bar.get_width() == pytest.approx(found.gaps[name])
        is_bound = name != "linf"
        assert number.startswith("≤") == is_bound
        assert (to_rgba(bar.get_facecolor())[3] == 0.0) == is_bound
