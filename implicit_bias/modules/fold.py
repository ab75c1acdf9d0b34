r"""Batch normalisation with fixed statistics, folded into the layer before it.

In evaluation a layer W x + b and the batch normalisation behind it are one affine map,

    gamma (W x + b - mean) / sqrt(var + eps) + beta  =  W' x + b',
    W' = diag(gamma / sqrt(var + eps)) W,    b' = gamma (b - mean) / sqrt(var + eps) + beta.

Batch normalisation makes the weights before it invariant to their scale, so a module that has it is
not homogeneous in them. The folded one is a network of layers alone: what gradient descent would
find from there on is a margin problem (of the leading part, as b' is not 0).

Source: Ioffe and Szegedy (2015), section 3.1, for the map of a trained network.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TypeAlias

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.nn.utils.parametrize import is_parametrized

Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
Layer: TypeAlias = nn.Linear | Convolution


class FoldError(ValueError):
    """A module whose batch normalisation cannot be folded."""


def fold(module: nn.Module) -> nn.Module:
    r"""Return a copy of a module whose batch normalisation is part of the layers before it.

    .. math:: W' = \operatorname{diag}\bigl(\gamma / \sqrt{v + \varepsilon}\bigr) W, \qquad
        b' = \gamma (b - \mu) / \sqrt{v + \varepsilon} + \beta

    Parameters
    ----------
    module : nn.Module
        Which ``torch.fx`` can trace, in evaluation mode (``.eval()``); it is not changed.

    Returns
    -------
    nn.Module
        Of the same class, with the same names of layers; each batch normalisation is an
        ``nn.Identity``.

    Raises
    ------
    FoldError
        No batch normalisation; training mode, or one without running statistics; one that does not
        follow a linear layer or convolution of its own; a layer with a parametrisation.

    Notes
    -----
    Ioffe and Szegedy (2015), section 3.1.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias.modules.fold import fold
    >>> layers = [torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()]
    >>> module = torch.nn.Sequential(*layers, torch.nn.Linear(4, 1)).eval()
    >>> folded = fold(module)
    >>> x = torch.randn(5, 3)
    >>> torch.allclose(folded(x), module(x), atol=1e-6), type(folded[1]).__name__
    (True, 'Identity')
    """
    norms = {name: part for name, part in module.named_modules() if isinstance(part, Norm)}
    if not norms:
        raise FoldError("the module has no batch normalisation: there is nothing to fold")
    layers = _layers_before(module)
    folded = copy.deepcopy(module)
    for name, norm in norms.items():
        if norm.training or norm.running_mean is None:
            raise FoldError(
                f"{name!r} normalises by the statistics of each batch: call module.eval(), on a "
                "module with running statistics (track_running_stats=True)"
            )
        if name not in layers:
            raise FoldError(
                f"{name!r} does not follow a linear layer or convolution whose output it alone "
                "takes, so there is no layer to fold it into"
            )
        name_of_layer, layer = layers[name]
        if is_parametrized(layer):
            raise FoldError(
                f"the weights of {name_of_layer!r} are computed by a parametrisation: take it off "
                "with torch.nn.utils.parametrize.remove_parametrizations first"
            )
        if isinstance(layer, nn.Linear):
            fused: nn.Module = fuse_linear_bn_eval(layer, norm)
        else:
            fused = fuse_conv_bn_eval(layer, norm)
        _replace(folded, name_of_layer, fused)
        _replace(folded, name, nn.Identity())
    return folded


def _layers_before(module: nn.Module) -> dict[str, tuple[str, Layer]]:
    """Return name and layer before each batch normalisation that can be folded into it."""
    graph = fx.Tracer().trace(module)
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    found = {}
    for node in graph.nodes:
        name = str(node.target)
        if node.op != "call_module" or not isinstance(module.get_submodule(name), Norm):
            continue
        before = node.args[0]
        if not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        name_before = str(before.target)
        layer = module.get_submodule(name_before)
        called_once = calls[name] == 1 and calls[name_before] == 1
        if isinstance(layer, Layer) and called_once and len(before.users) == 1:
            found[name] = (name_before, layer)
    return found


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, part)
