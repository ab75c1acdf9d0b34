"""Torch modules of a few lines, labels that they get right, and what is asked of results."""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.base.validation import Array
from implicit_bias.networks import Network

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


def known(value: T | None) -> T:
    """Return what may be missing in general, and must be there."""
    assert value is not None
    return value


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def seeded(module: M, seed: int = 0) -> M:
    """Draw all parameters; in double precision, for evaluation."""
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        nn.init.normal_(p, generator=generator)
    return module.double().eval()


def frozen(module: M, *names: str) -> M:
    """Let some parameters be as they are; without names, all."""
    for name, p in module.named_parameters():
        p.requires_grad_(p.requires_grad and bool(names) and name not in names)
    return module


def own_labels(module: nn.Module, *inputs: Tensor) -> Any:
    """Labels that a module gets right: signs of one output, else classes."""
    with torch.no_grad():
        outputs = module(*inputs)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs.argmax(dim=1).numpy()
    return np.where(outputs.reshape(-1) > 0, 1, -1)


def margins_by_hand(module: nn.Module, X: Tensor, labels: Any) -> tuple[Array, Array]:
    """Margins and their gradients (pairs, P), by autograd, one pair after the other."""
    outputs = module(X)
    if (classes := outputs.shape[1]) == 1:
        margins = list(torch.tensor(labels) * outputs[:, 0])
    else:
        pairs = [(n, y, k) for n, y in enumerate(labels) for k in range(classes) if k != y]
        margins = [outputs[n, y] - outputs[n, k] for n, y, k in pairs]
    rows = [torch.autograd.grad(q, list(module.parameters()), retain_graph=True) for q in margins]
    J = [nn.utils.parameters_to_vector(row).numpy() for row in rows]
    return np.array([q.item() for q in margins]), np.array(J)


def weights_of(module: nn.Module) -> Array:
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


class Computed(nn.Module):
    """A function of named parts, which are modules or parameters, and of the inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, *inputs: Tensor) -> Any:
        """Compute the outputs."""
        return self.function(self, *inputs)


class Square(nn.Module):
    """An activation without a kink."""

    def forward(self, x: Tensor) -> Tensor:
        """Square each number."""
        return x**2


def linear(columns: int, rows: int = 1) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


def layers(*sizes: int, between: Callable[[], nn.Module] | None = nn.ReLU) -> nn.Sequential:
    """Matrices of these sizes one after the other, with an activation between any two."""
    parts = list[nn.Module]()
    for size in itertools.pairwise(sizes):
        parts += [between()] if parts and between else []
        parts.append(linear(*size))
    return nn.Sequential(*parts)


def of(*matrices: Any, between: Callable[[], nn.Module] | None = None) -> nn.Sequential:
    """Layers of these matrices, the first one first."""
    sizes = matrices[0].shape[1], *(len(matrix) for matrix in matrices)
    module = layers(*sizes, between=between).double().eval()
    for p, matrix in zip(module.parameters(), matrices, strict=True):
        p.data.copy_(torch.tensor(matrix))
    return module


def set_weights(network: Network, coef: Array) -> None:
    """Set zeta (M, D) with balanced weights: w_h = sqrt ||zeta_h||, W_h = zeta_h / w_h."""
    zeta = torch.tensor(coef).reshape(network.readout.shape[1], -1)
    readout = zeta.norm(dim=1).sqrt()
    with torch.no_grad():
        network.readout.copy_(readout[None])
        layer = torch.where(readout[:, None] > 0, zeta / readout[:, None], 0.0)
        network.hidden_weights[0].copy_(layer.reshape_as(network.hidden_weights[0]))


def scale_weights(module: M, factor: float) -> M:
    """Multiply all weights, in place."""
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(factor)
    return module
