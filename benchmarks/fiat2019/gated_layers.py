"""ReLU and GaLU networks with any number of layers and outputs, trained by Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from implicit_bias.validation import Array

Kind: TypeAlias = Literal["relu", "hard", "sigmoid", "linear"]
GATES: dict[Kind, Callable[[Tensor], Tensor]] = {
    "hard": lambda projections: (projections > 0).to(projections),
    "sigmoid": torch.sigmoid,
    "linear": torch.ones_like,
}


class GatedLayers(nn.Module):
    """ReLU and GaLU0 networks, initialised as in the published code.

    A hidden layer is max(0, L previous), or L previous times gates of the *network's input*, whose
    filters are not trained. (The package's own networks have one output and no bias units.)

    Parameters
    ----------
    sizes : sequence of int
        Inputs, hidden units of each layer (all the same), outputs.
    kind : {"relu", "hard", "sigmoid", "linear"}
        ReLU, or the gates; linear has gates 1.
    bias : bool
        Whether layers have bias units.
    sharpness : float
        Standard deviation of the projections on the filters for inputs of variance 1.
    seed : int
        Of weights (Xavier's normal initialisation) and filters.
    """

    filters: Tensor

    def __init__(
        self, sizes: Sequence[int], kind: Kind, *, bias: bool, sharpness: float = 1.0, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.kind = kind
        layers = [
            nn.Linear(fan_in, fan_out, bias=bias)
            for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True)
        ]
        gain = nn.init.calculate_gain("relu")
        for layer in layers:
            last = layer is layers[-1]
            nn.init.xavier_normal_(layer.weight, 1.0 if last else gain, generator=generator)
            if bias:
                nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)
        drawn = torch.randn(len(sizes) - 2, sizes[1], sizes[0], generator=generator)
        self.register_buffer("filters", drawn * sharpness / math.sqrt(sizes[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, p) of inputs (n, D)."""
        outputs = x
        *hidden, readout = self.layers
        for layer, filters in zip(hidden, self.filters, strict=True):
            outputs = layer(outputs)
            if self.kind == "relu":
                outputs = outputs.relu()
            else:
                outputs = outputs * GATES[self.kind](x @ filters.T)
        return readout(outputs)


def as_tensors(*arrays: Array) -> list[Tensor]:
    """Float32 copies of arrays."""
    return [torch.tensor(array, dtype=torch.float32) for array in arrays]


def train(
    network: nn.Module,
    X: Tensor,
    Y: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    steps: int,
    rate: float,
    batch_size: int | None = None,
    seed: int = 0,
    stop_below: float = 0.0,
) -> float:
    """Train in place by Adam, its rate falling to 0 as a cosine; return the last step's loss.

    Without a batch size each step takes all samples, and training ends once their loss is below
    ``stop_below``.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator = torch.Generator().manual_seed(seed)
    value = math.inf
    for _ in range(steps):
        rows: Tensor | slice = slice(None)
        if batch_size is not None:
            rows = torch.randint(len(X), (batch_size,), generator=generator)
        current = loss(network(X[rows]), Y[rows])
        optimiser.zero_grad()
        torch.autograd.backward(current)
        optimiser.step()
        schedule.step()
        value = current.item()
        if batch_size is None and value < stop_below:
            break
    return value
