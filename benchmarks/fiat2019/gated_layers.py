r"""GaLU and ReLU networks of any depth and number of outputs, as torch modules.

A GaLU unit is a gate times a linear map, g_{w,u}(x) = s(<u, x>) <w, x>; the filter u is drawn once
and never trained, only w is. With s(t) = 1[t >= 0] and u = w it is the ReLU unit max(0, <w, x>).

    N(x) = A_L h_{L-1},    h_i = s(U_i x_gate) o (A_i h_{i-1}),    h_0 = x

=========  ==========================================================================
x_gate     h_{i-1} for a deep GaLU network, the network's input x for GaLU0
s          1[t >= 0] ([L]; [C] writes t > 0, which differs on a set of measure 0), the
           logistic function, the constant 1 (a linear network), or any scalar function
U_i        filters (k, inputs), a buffer: no gradient reaches it
A_i        weights, trained; or A_L alone, for a network with a trained readout only
=========  ==========================================================================

With one hidden layer both kinds are the same, and the outputs are linear in A_1 for a fixed readout
(`implicit_bias.kernels.least_squares`).

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity": [L] arXiv:1906.05032
(2019), [C] the submission of 2018. The initialisation is that of the authors' code.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

GateName: TypeAlias = Literal["hard", "sigmoid", "linear"]
Kind: TypeAlias = GateName | Literal["relu"] | Callable[[Tensor], Tensor]
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "hard": lambda projections: (projections >= 0).to(projections),
    "sigmoid": torch.sigmoid,
    "linear": torch.ones_like,
}


class GatedLayers(nn.Module):
    """A ReLU, GaLU or GaLU0 network.

    Parameters
    ----------
    sizes : sequence of int
        Inputs, hidden units of each layer (all the same), outputs.
    kind : {"relu", "hard", "sigmoid", "linear"} or callable
        ReLU, or the gate s: a name, or a function of tensors that acts entrywise.
    bias : bool
        Whether layers have bias units.
    gates_see : {"input", "previous"}
        What the filters are applied to: the network's input (GaLU0), or the outputs of the layer
        before (GaLU). ReLU networks have no filters.
    readout_only : bool
        Train the last layer alone.
    sharpness : float
        Standard deviation of the projections on the filters for inputs of variance 1.
    seed : int
        Of weights (Xavier's normal initialisation, with ReLU's gain in hidden layers) and filters.

    Examples
    --------
    >>> import torch
    >>> network = GatedLayers([3, 5, 1], "hard", bias=False, seed=0)
    >>> network(torch.ones(2, 3)).shape
    torch.Size([2, 1])
    """

    filters: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        kind: Kind,
        *,
        bias: bool,
        gates_see: Literal["input", "previous"] = "input",
        readout_only: bool = False,
        sharpness: float = 1.0,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.kind = kind
        self.gate = None if kind == "relu" else GATES[kind] if isinstance(kind, str) else kind
        self.gates_see = gates_see
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
            layer.requires_grad_(last or not readout_only)
        self.layers = nn.ModuleList(layers)
        # Filters on hidden outputs have as many entries as the layer before has units.
        inputs = sizes[0] if gates_see == "input" else max(sizes[:2])
        drawn = torch.randn(len(sizes) - 2, sizes[1], inputs, generator=generator)
        self.register_buffer("filters", drawn * sharpness / math.sqrt(sizes[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, p) of inputs (n, D)."""
        outputs = x
        *hidden, readout = self.layers
        for layer, filters in zip(hidden, self.filters, strict=True):
            gated_by = x if self.gates_see == "input" else outputs
            outputs = layer(outputs)
            if self.gate is None:
                outputs = outputs.relu()
            else:
                outputs = outputs * self.gate(gated_by @ filters[:, : gated_by.shape[1]].T)
        return readout(outputs)
