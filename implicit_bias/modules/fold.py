r"""Batch normalization: with fixed statistics, folded into the layer before it; or as trained.

In evaluation a layer W x + b and the batch normalization behind it are one affine map,

    gamma (W x + b - mean) / sqrt(var + eps) + beta  =  W' x + b',
    W' = diag(gamma / sqrt(var + eps)) W,    b' = gamma (b - mean) / sqrt(var + eps) + beta.

Batch normalization makes the weights before it invariant to their scale, so a module that has it is
not homogeneous in them. The folded one is a network of layers alone: what gradient descent would
find from there on is a margin problem (of the leading-order part, as b' is not 0).

Trained on all samples in one batch, mean and variance are those of the data, and functions of the
parameters: f(x; theta, mean(theta), var(theta)). But for eps this is invariant to the scale of W,
and homogeneous in gamma, beta and the layers behind the last normalization. `full_batch` makes a
module of it. W has degree 0 in it, so that theorems on KKT points of homogeneous networks do not
cover its limit; for a linear predictor behind batch normalization Cao et al. (2023) show that
gradient descent converges to equal margins.

Sources: Ioffe and Szegedy (2015), section 3.1, for the map of a trained network. For the
invariance, Arora, Li and Lyu (2019), "Theoretical analysis of auto rate-tuning by batch
normalization". For the implicit bias, Cao, Zou, Li and Gu (2023), "The implicit bias of batch
normalization in linear models and two-layer linear convolutional neural networks".
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Iterable
from enum import Enum, auto
from itertools import chain
from typing import Any, TypeAlias

import torch
from numpy.typing import ArrayLike
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.data import DataLoader

from implicit_bias.modules.evaluate import as_arguments, as_inputs, as_module
from implicit_bias.modules.loading import collected

BatchNorm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
Layer: TypeAlias = nn.Linear | Convolution


class FoldError(ValueError):
    """A module whose batch normalization cannot be folded."""


def fold(module: nn.Module) -> nn.Module:
    r"""Return a copy of a module whose batch normalization is part of the layers before it.

    .. math:: W' = \operatorname{diag}\bigl(\gamma / \sqrt{v + \varepsilon}\bigr) W, \qquad
        b' = \gamma (b - \mu) / \sqrt{v + \varepsilon} + \beta

    Parameters
    ----------
    module : nn.Module
        Which ``torch.fx`` can trace, in evaluation mode (``.eval()``); it is not changed.

    Returns
    -------
    nn.Module
        Of the same class, with the same names of layers; each batch normalization is an
        ``nn.Identity``. Its parameters are new ones: pass a norm to `diagnose`, not the optimizer
        of the module. Those of a folded layer, its bias too, require a gradient if any parameter
        of the layer or of its normalization does.

    Raises
    ------
    FoldError
        No batch normalization; training mode, or one without running statistics; one that does not
        follow a linear layer or convolution of its own; a layer with a parametrization.

    Notes
    -----
    A folded layer has a bias. In the first layer a trained bias leaves the module homogeneous; in a
    later one it does not, and `diagnose` needs ``leading=True``.

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
    norms = {name: part for name, part in module.named_modules() if isinstance(part, BatchNorm)}
    if not norms:
        raise FoldError("the module has no batch normalization: there is nothing to fold")
    layers = _layers_before(module)
    folded = copy.deepcopy(module)
    for name, norm in norms.items():
        if norm.training or norm.running_mean is None:
            raise FoldError(
                f"{name!r} normalizes by the statistics of each batch: call module.eval(), on a "
                "module with running statistics (track_running_stats=True)"
            )
        if name not in layers:
            raise FoldError(
                f"{name!r} does not follow a linear layer or convolution whose output it alone "
                "takes, so there is no layer to fold it into"
            )
        name_of_layer, layer = layers[name]
        _check_plain(name_of_layer, layer)
        # torch freezes a bias that the layer lacked before, whatever is trained. But W' and b' are
        # functions of all of these parameters, b' through the mean of W x + b, too.
        is_trained = any(p.requires_grad for p in (*layer.parameters(), *norm.parameters()))
        if isinstance(layer, nn.Linear):
            fused: nn.Module = fuse_linear_bn_eval(layer, _with_scale(norm))
        else:
            fused = fuse_conv_bn_eval(layer, norm)
        fused.requires_grad_(is_trained)
        _replace(folded, name_of_layer, fused)
        _replace(folded, name, nn.Identity())
    return folded


def _layers_before(module: nn.Module) -> dict[str, tuple[str, Layer]]:
    """Return name and layer before each batch normalization that can be folded into it."""
    graph = fx.Tracer().trace(module)
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    found = {}
    for node in graph.nodes:
        name = str(node.target)
        if node.op != "call_module" or not isinstance(module.get_submodule(name), BatchNorm):
            continue
        # In the traced graph the layer in front is the call whose result is the argument.
        before = node.args[0]
        if not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        name_before = str(before.target)
        layer = module.get_submodule(name_before)
        # Folding changes the layer's output everywhere. So nothing but this normalization may see
        # it: the layer is called once, and its output has one user.
        called_once = calls[name] == 1 and calls[name_before] == 1
        if isinstance(layer, Layer) and called_once and len(before.users) == 1:
            found[name] = (name_before, layer)
    return found


def _with_scale(norm: BatchNorm) -> BatchNorm:
    """Return a normalization with gamma = 1 and beta = 0 if it has none, as torch needs it."""
    if norm.affine:
        return norm
    variance = norm.running_var
    assert variance is not None
    scaled = copy.deepcopy(norm)
    scaled.weight = nn.Parameter(torch.ones_like(variance))
    scaled.bias = nn.Parameter(torch.zeros_like(variance))
    return scaled


def _check_plain(name: str, part: nn.Module) -> None:
    """Refuse a part whose weights are computed from others."""
    if is_parametrized(part):
        raise FoldError(
            f"the weights of {name!r} are computed by a parametrization: take it off with "
            "torch.nn.utils.parametrize.remove_parametrizations first"
        )


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, part)


# --- the statistics of the whole data ------------------------------------------------------------


def full_batch(
    module: nn.Module,
    inputs: tuple[Tensor | ArrayLike, ...] | Tensor | ArrayLike | Iterable[Any],
) -> nn.Module:
    r"""Return a module whose batch normalization has the statistics of all samples.

    .. math:: n(h) = \gamma\, \frac{h - \mu(\theta)}{\sqrt{v(\theta)}} + \beta, \qquad
        \mu(\theta),\, v(\theta) \text{ over the activations of all given inputs}

    It is the function that is trained where each batch is the whole data, of one sample at a time,
    and its gradients are those through the statistics, too. There is no eps, which is negligible
    where weights are large: what is in front of a normalization is exactly scale-invariant.

    Parameters
    ----------
    module : nn.Module
        With batch normalization; it is not changed.
    inputs : Tensor, array_like, tuple of them, or a DataLoader
        All training samples (N, ...); the labels of a loader are left out.

    Returns
    -------
    nn.Module
        Of the same class, with the same names and the *same* parameters: it follows the training of
        the module, whose optimizer is its own, too. Its mode makes no difference.

    Raises
    ------
    FoldError
        No batch normalization, or one whose weights are computed by a parametrization.
    ValueError
        Inputs that do not fit, or of fewer than 2 samples.

    Notes
    -----
    Each pass is a pass through all samples as well, and so is the gradient of each margin, so this
    is meant for modules and data of which a pass takes milliseconds. A channel that is constant on
    the data is normalized to beta. A bias in front of a normalization changes nothing, but counts
    in the norm of the parameters: leave it out (bias=False).

    Arora, Li and Lyu (2019), section 2, for the scale-invariance.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose, full_batch
    >>> _ = torch.manual_seed(0)
    >>> X = torch.tensor([[1.0, 2.0], [2.0, -1.0], [-1.0, 1.0], [0.0, -3.0]])
    >>> layers = [torch.nn.Linear(2, 16, bias=False), torch.nn.BatchNorm1d(16), torch.nn.ReLU()]
    >>> module = torch.nn.Sequential(*layers, torch.nn.Linear(16, 1, bias=False))
    >>> labels = torch.sign(full_batch(module, X)(X))
    >>> found = diagnose(full_batch(module, X), X, labels)
    >>> found.degree, [one.names for one in found.findings if one.code == "degree-0"]
    (2.0, [('0.weight',)])
    """
    module = as_module(module)
    norms = {name: part for name, part in module.named_modules() if isinstance(part, _BatchNorm)}
    if not norms:
        raise FoldError("the module has no batch normalization: diagnose takes it as it is")
    if isinstance(inputs, DataLoader):
        inputs = collected(inputs, None).inputs
    arguments = as_arguments(inputs, module)
    n_samples = len(arguments[0]) if arguments[0].ndim else 0
    if n_samples < 2:
        raise ValueError("statistics need at least 2 samples: pass all inputs of the training")
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    data = as_inputs(arguments, n_samples, device)

    # Parameters and buffers are shared, so that the copy is what is trained.
    shared = {id(one): one for one in chain(module.parameters(), module.buffers())}
    copied = copy.deepcopy(module, dict(shared))
    statistics = _Statistics(data)
    for name, norm in norms.items():
        _check_plain(name, norm)
        _replace(copied, name, _FullBatchNorm(norm, statistics))
    copied.register_forward_pre_hook(statistics.measure)
    return copied


class _Pass(Enum):
    """What the normalizations do in a pass."""

    OF_DATA = auto()  # measure statistics, and normalize by them
    BEFORE_SAMPLES = auto()  # the same, and keep them for the pass of other samples
    OF_SAMPLES = auto()  # normalize by those that were kept


class _Statistics:
    """Means and inverse deviations of the calls of all normalizations in a pass of the data.

    Attributes
    ----------
    data : tuple of Tensor
        The module's arguments, of all samples.
    current : _Pass
        The pass that the module is in.
    measured : deque of (Tensor, Tensor)
        What was measured and not used yet, in the order of the calls.
    """

    def __init__(self, data: tuple[Tensor, ...]) -> None:
        self.data = data
        self.current = _Pass.OF_DATA
        self.measured = deque[tuple[Tensor, Tensor]]()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Statistics:
        # A copied module measures for itself, from the same data, which nothing writes to. What
        # was measured has no copy, as it is part of a graph.
        return _Statistics(self.data)

    def measure(self, part: nn.Module, given: tuple[Any, ...]) -> None:
        """Measure, before the pass of some samples, in a pass of the data."""
        # Copies, in the precision of the pass: the module may write into what it is given.
        data = tuple(_as_given(one, given[0]) for one in self.data)
        # Without gradients one pass will do. With them each output must be seen to depend on its
        # own sample and on the statistics alone, as gradients of single samples are asked for.
        if not torch.is_grad_enabled() and _are_same(data, given):
            self.current = _Pass.OF_DATA
            return
        self.measured.clear()
        self.current = _Pass.BEFORE_SAMPLES
        part.forward(*data)
        self.current = _Pass.OF_SAMPLES


class _FullBatchNorm(nn.Module):
    """A batch normalization of given statistics, with the parameters and buffers of another one."""

    # A channel whose deviation is below this fraction of its size is constant, but for rounding.
    CONSTANT = 1e-12

    def __init__(self, norm: _BatchNorm, statistics: _Statistics) -> None:
        super().__init__()
        self.statistics = statistics
        for name, parameter in norm._parameters.items():
            self.register_parameter(name, parameter)
        for name, buffer in norm._buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize activations (n, C, ...)."""
        shared = self.statistics
        shape = (1, -1, *(1,) * (x.ndim - 2))
        if shared.current is _Pass.OF_SAMPLES:
            # The passes of the data and of the samples call the normalizations in the same order,
            # so the first statistics that are left are this call's: a normalization that is called
            # twice has two.
            mean, inverse = shared.measured.popleft()
        else:
            mean, inverse = self._measured(x)
            if shared.current is _Pass.BEFORE_SAMPLES:
                shared.measured.append((mean, inverse))
        normalised = (x - mean.reshape(shape)) * inverse.reshape(shape)
        weight: Tensor | None = self._parameters.get("weight")
        bias: Tensor | None = self._parameters.get("bias")
        if weight is not None:
            normalised = normalised * weight.reshape(shape)
        if bias is not None:
            normalised = normalised + bias.reshape(shape)
        return normalised

    def _measured(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and inverse deviation (C,) of each channel; 0 of a constant one."""
        axes = (0, *range(2, x.ndim))
        mean = x.mean(axes)
        variance = x.var(axes, correction=0)
        # Of a channel that is constant, rounding leaves a variance of about eps^2 times its square,
        # and its inverse root would blow that noise up to size 1.
        least = (self.CONSTANT**2) * x.detach().square().mean(axes)
        is_constant = variance <= least
        # 1 where it is constant, so that its gradient is 0 and not NaN.
        inverse = torch.where(is_constant, 1.0, variance).rsqrt()
        return mean, torch.where(is_constant, 0.0, inverse)


def _as_given(one: Tensor, given: Any) -> Tensor:
    """Copy a tensor of the data, floating point in the precision of a pass."""
    if one.is_floating_point() and isinstance(given, Tensor) and given.is_floating_point():
        return one.to(given.dtype, copy=True)
    return one.clone()


def _are_same(data: tuple[Tensor, ...], given: tuple[Any, ...]) -> bool:
    if len(data) != len(given):
        return False
    for one, other in zip(data, given, strict=True):
        # Of other shapes they are others, and under vmap entries have no value.
        if one.shape != other.shape or not torch.equal(one, other):
            return False
    return True
