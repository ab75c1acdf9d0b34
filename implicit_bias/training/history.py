"""What is measured of a network along its training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from implicit_bias.networks import Network
from implicit_bias.problem.margins import smallest_margins, soft_margins
from implicit_bias.training.losses import MarginLoss

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class HistoryPoint:
    """The network after some steps, on all training samples.

    Attributes
    ----------
    step : int
        Updates done.
    loss : float
        Mean loss.
    error : float
        Share of the samples that are misclassified; a margin of 0 is an error.
    min_margin : float
        Smallest y_n f(x_n), or with classes f_{y_n}(x_n) - f_k(x_n). The readout's bias is left
        out, as it is in ``norm``, so that their ratio has the SVM's as its bound.
    norm : float
        `Network.norm`.
    gates_changed : float
        Share of the (sample, hidden unit) pairs whose gate is not what it was at step 0.
    """

    step: int
    loss: float
    error: float
    min_margin: float
    norm: float
    gates_changed: float = 0.0

    @property
    def normalised_margin(self) -> float:
        """min_margin / norm: free of the scale of the weights; nan where they are zero."""
        return self.min_margin / self.norm if self.norm > 0 else math.nan


def history_frame(history: Iterable[HistoryPoint]) -> pd.DataFrame:
    """Return points of a history, or of several, as a table: a row a point.

    What a point keeps under names of its own (`LimitPoint.measures`) makes the last columns.
    """
    import pandas as pd

    rows = []
    for point in history:
        row = vars(point) | {"normalised_margin": point.normalised_margin}
        measures = row.pop("measures", {})
        rows.append(row | measures)
    return pd.DataFrame(rows)


class Observer:
    """Measures a network on its training samples as it is trained.

    Parameters
    ----------
    network : Network
        The network, with its gates as they are at step 0.
    inputs : tuple of Tensor
        Prepared inputs of all samples.
    labels : Tensor of shape (n,)
        Their labels.
    loss : MarginLoss
        Loss of a margin.
    """

    @torch.no_grad()
    def __init__(
        self, network: Network, inputs: tuple[Tensor, ...], labels: Tensor, loss: MarginLoss
    ) -> None:
        self.network, self.inputs, self.labels, self.loss = network, inputs, labels, loss
        self.first_gates = network.gate_pattern(*inputs)

    @torch.no_grad()
    def __call__(self, step: int) -> HistoryPoint:
        """Measure the network as it is now, after this many steps."""
        outputs = self.network(*self.inputs)
        soft = soft_margins(outputs, self.labels)
        margins = smallest_margins(outputs, self.labels)
        changed = torch.count_nonzero(self.network.gate_pattern(*self.inputs) != self.first_gates)
        return HistoryPoint(
            step=step,
            loss=self.loss(soft).mean().item(),
            error=(margins <= 0).double().mean().item(),
            min_margin=self.network.smallest_margin(outputs, self.labels),
            norm=self.network.norm(),
            gates_changed=changed.item() / self.first_gates.numel(),
        )
