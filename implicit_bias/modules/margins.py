r"""Margins of any module, and their gradients J, as an operator that never holds J.

A margin belongs to a pair of a sample and a rival of its label (`problem.constraints`):

    two labels, outputs (N,) or (N, 1):    q_n  = y_n f(x_n)
    K classes, outputs (N, K):             q_nk = f_{y_n}(x_n) - f_k(x_n),  k != y_n

===========  ==========  =========================================================================
symbol       shape       meaning
===========  ==========  =========================================================================
theta        (P,)        the trained parameters, one after the other
q            (n,)        margins of all pairs: n = N, or N (K - 1), sample by sample
J            (n, P)      their gradients
lambda       (n,)        a weight a pair
===========  ==========  =========================================================================

MNIST with N = 1,000 and ten classes has 9,000 pairs, so with 200,000 parameters J takes 14 GB. What
is needed of it costs a few passes through the module:

- J' lambda is one backward pass: lambda enters through the K numbers a sample that the outputs are
  multiplied with;
- J w is the transpose of that, a backward pass through the backward pass, which works wherever the
  module can be differentiated twice;
- J J' of some pairs is a sum over the parameters. The gradient in weights of a linear layer or a
  convolution is a sum of outer products delta a' over positions, whose inner products need no
  gradient (`layer_products`); delta of all pairs is a backward pass a rival. The rows of all other
  parameters are computed in blocks (`vmap`).

All is in float64, whatever the module's own precision, and leaves the module as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import grad, vmap

from implicit_bias.base.validation import Array, as_class_labels, as_labels
from implicit_bias.modules.evaluate import as_inputs, evaluate, explained, values_of
from implicit_bias.modules.layer_products import GRADIENT_ENTRIES, LayerProducts, WatchedProducts
from implicit_bias.problem import BLOCK
from implicit_bias.problem.constraints import Constraints

# Largest share by which outer products may miss the gradients they stand for, by rounding.
FACTOR_TOLERANCE = 1e-9
NO_PARAMETER = (
    "the module has no parameter that requires a gradient: call requires_grad_(True) on what is "
    "trained, or on the whole module"
)


class Margins:
    """Margins q(theta) of a module as a function of its trained parameters, in float64.

    Parameters
    ----------
    module : nn.Module
        Any module that treats its samples one by one.
    inputs : tuple of Tensor or ndarray
        Its arguments, each with the samples as first axis.
    labels : array_like of shape (N,)
        -1 and +1, or 0 .. K - 1.
    classes : int, optional
        K; None with labels -1 and +1.
    names : collection of str, optional
        The parameters that theta consists of, by default all that require a gradient. All others
        are constants.
    at : mapping from name to Tensor, optional
        Values of parameters and buffers; where not given, the module's own.
    scaled : (float, float)
        c and L: the margins are those of f(c theta) / c^L, by default of f itself; see `leading`.

    Raises
    ------
    ValueError
        Inputs of different lengths, other labels, no parameter, or outputs of another number.

    Attributes
    ----------
    labels : ndarray of shape (N,)
        As given, checked.
    pairs : Constraints
        The pairs that have margins, sample by sample.
    combinations : Tensor of shape (N, K - 1, K) or (N, 1, 1)
        C with q_nk = <c_nk, f(x_n)>.
    rivals : int
        K - 1, the number of pairs a sample; 1 with two labels.
    theta : Tensor of shape (P,)
        The parameters as they are.
    shapes : dict from name to torch.Size
        Their shapes, in the order of theta.
    entries : int
        Entries of a block of per-sample gradients; at most a few blocks exist at a time.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: tuple[Tensor | Array, ...],
        labels: ArrayLike,
        classes: int | None = None,
        *,
        names: Collection[str] | None = None,
        at: Mapping[str, Tensor] | None = None,
        scaled: tuple[float, float] = (1.0, 0.0),
    ) -> None:
        values = values_of(module) | dict(at or {})
        trained = {
            k: values[k]
            for k, p in module.named_parameters()
            if p.numel() and (p.requires_grad if names is None else k in names)
        }
        if not trained:
            raise ValueError(NO_PARAMETER)
        n_samples = len(inputs[0])
        if classes is None:
            y = as_labels(labels, n_samples)
        else:
            y = as_class_labels(labels, n_samples, classes)[0]
        self.module, self.labels, self.classes = module, y, classes
        self.pairs = Constraints.of_labels(y, classes, intercept=False)
        self.constants = {k: value for k, value in values.items() if k not in trained}
        self.frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
        self.buffers = [name for name, _ in module.named_buffers()]
        self.shapes = {k: p.shape for k, p in trained.items()}
        self.theta = torch.cat([p.reshape(-1) for p in trained.values()])
        self.inputs = as_inputs(inputs, n_samples, self.theta.device)
        combinations = self.pairs.labels.toarray().reshape(n_samples, -1, self.pairs.width)
        self.combinations = torch.tensor(combinations, device=self.theta.device)
        self.rivals, self.entries, self.scaled = combinations.shape[1], GRADIENT_ENTRIES, scaled

    def restricted(self, names: Collection[str], theta: Tensor) -> Margins:
        """Return the same margins as a function of some parameters, all others as in theta (P,)."""
        # What becomes a constant is no longer scaled in the evaluation.
        parts, scale = self.parameters(theta), self.scaled[0]
        at = {k: part if k in names else scale * part for k, part in parts.items()}
        return self._again(names, {**self.constants, **at}, self.scaled)

    def reread(self) -> Margins:
        """Return the margins at the parameters that the module has by now.

        Raises
        ------
        ValueError
            Parameters or buffers have come, have gone, have other shapes or were frozen or thawed.
        """
        now = self._again(self.shapes, {}, self.scaled)
        before = self.shapes, self.constants.keys(), self.frozen
        if (now.shapes, now.constants.keys(), now.frozen) != before:
            raise ValueError(
                "the module has, or trains, other parameters than those that were measured before: "
                "measure it anew, with another Recorder"
            )
        return now

    def at_scale(self, scale: float, degree: float) -> Margins:
        """Return the margins of f(c theta) / c^L, as a function of the same parameters theta."""
        at = {**self.constants, **self.parameters(self.theta)}
        return self._again(self.shapes, at, (scale, degree))

    def of_samples(self, samples: NDArray[np.int64]) -> Margins:
        """Return the margins of some samples alone, as a function of the same parameters."""
        found = copy(self)
        found.labels = self.labels[samples]
        found.pairs = Constraints.of_labels(found.labels, self.classes, intercept=False)
        rows = torch.tensor(samples, device=self.theta.device)
        found.inputs, found.combinations = self._inputs(rows), self.combinations[rows]
        return found

    def _again(
        self, names: Collection[str], at: Mapping[str, Tensor], scaled: tuple[float, float]
    ) -> Margins:
        labels, classes = self.labels, self.classes
        return Margins(self.module, self.inputs, labels, classes, names=names, at=at, scaled=scaled)

    def parameters(self, theta: Tensor) -> dict[str, Tensor]:
        """View a vector (P,) as the parameters, by name."""
        parts = torch.split(theta, [shape.numel() for shape in self.shapes.values()])
        return {k: part.reshape(self.shapes[k]) for k, part in zip(self.shapes, parts, strict=True)}

    def flat(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Undo `parameters`."""
        return torch.cat([parameters[k].reshape(-1) for k in self.shapes])

    # --- margins, J' lambda and J w, in blocks of samples

    def outputs(self, theta: Tensor) -> Array:
        """Compute the outputs (N, K), or (N, 1)."""
        with torch.no_grad(), defined():
            parts = [self.outputs_at(theta, *self._inputs(rows)) for rows in self._blocks()]
        return torch.cat(parts).cpu().numpy()

    def outputs_at(self, theta: Tensor, *inputs: Tensor) -> Tensor:
        """Compute the outputs (m, K), or (m, 1), of other inputs, in one batch."""
        return self._evaluate(self.parameters(theta), inputs)

    def margins(self, theta: Tensor) -> Array:
        """Margins q (n,) of all pairs."""
        return self.pairs.margins(self.outputs(theta))

    def combine(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,), without J."""
        table = torch.tensor(weights, device=theta.device).reshape(len(self.combinations), -1)
        theta = theta.detach().requires_grad_()
        total = torch.zeros_like(theta)
        # Not by `vjp` or `grad_outputs`, for which torch imports its compiler, or sympy.
        with differentiated(self.module), torch.enable_grad():
            for rows in self._blocks():
                combined = (table[rows] * self._margins(rows, theta)).sum()
                if combined.requires_grad:
                    total += torch.autograd.grad(
                        combined, theta, allow_unused=True, materialize_grads=True
                    )[0]
        return total

    def slopes(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (n,), of a direction w (P,), without J: the transpose of the transpose."""
        if _hooked(self.module):
            raise ValueError(f"the module cannot be differentiated: {_hindrance(self.module)}")
        parts, leaf = list[Tensor](), theta.detach().requires_grad_()
        # Not by `vjp`, for which torch imports its compiler: a second or two at the first call.
        with differentiated(self.module), torch.enable_grad():
            for rows in self._blocks():
                margins = self._margins(rows, leaf)
                weights = torch.zeros_like(margins).requires_grad_()
                transpose = _derivative((weights * margins).sum(), leaf, create_graph=True)
                parts.append(_derivative((transpose * direction).sum(), weights))
        found = torch.cat(parts).reshape(-1)
        if not found.isfinite().all():  # at 0 second derivatives of a root are not
            places = torch.arange(len(found), device=theta.device)
            found = torch.cat([rows @ direction for rows in self._rows(theta, places)])
        return found.cpu().numpy()

    def _margins(self, rows: slice, theta: Tensor) -> Tensor:
        """Margins (m, K - 1) of some samples."""
        outputs = self.outputs_at(theta, *self._inputs(rows))
        return torch.einsum("nrk,nk->nr", self.combinations[rows], outputs)

    def _inputs(self, rows: slice | Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor[rows] for tensor in self.inputs)

    def _evaluate(self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        scale, degree = self.scaled
        if scale == 1.0:
            return self._outputs(parameters, inputs)
        scaled = {k: scale * part for k, part in parameters.items()}
        return self._outputs(scaled, inputs) * scale**-degree

    def _outputs(self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        # Into a copy a forward pass may write, a counter say; torch forbids it into anything else.
        written = {name: self.constants[name].clone() for name in self.buffers}
        outputs = evaluate(self.module, {**self.constants, **written, **parameters}, inputs)
        width = self.pairs.width
        expected = "one output a sample" if width == 1 else f"{width} outputs a sample"
        if outputs.numel() != width * len(inputs[0]):
            raise ValueError(
                f"the module must have {expected}, got shape {tuple(outputs.shape)} for "
                f"{len(inputs[0])} samples"
            )
        outputs = outputs.reshape(-1, width)
        return outputs if outputs.dtype == torch.float64 else outputs.double()

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, len(self.combinations), BLOCK):
            yield slice(start, start + BLOCK)

    # --- J J' of some pairs

    def gram(
        self,
        theta: Tensor,
        chosen: NDArray[np.int64],
        scale: Mapping[str, float] | None = None,
        others: NDArray[np.int64] | None = None,
    ) -> Array:
        """J S^2 J' (m, k) of some pairs and others, by default the same ones.

        S are scales of the parameters by name, 1 if not given.
        """
        other = chosen if others is None else others
        places = torch.tensor(np.append(chosen, other), device=theta.device)
        scale, m = scale or {}, len(chosen)
        factors = self._factors(theta, places)
        rest = {k: scale.get(k, 1.0) for k in self.shapes if k not in factors}
        gram = self._gram_by_blocks(theta, places[:m], places[m:], rest)
        for name, products in factors.items():
            products = products.times(scale.get(name, 1.0))
            gram += products.of(slice(m)).gram(products.of(slice(m, None)))
        return gram.cpu().numpy()

    def rows(self, theta: Tensor, chosen: NDArray[np.int64]) -> Array:
        """J (m, P) of some pairs, for few of them."""
        places = torch.tensor(chosen, device=theta.device)
        return torch.cat([*self._rows(theta, places)]).cpu().numpy()

    def _rows(self, theta: Tensor, places: Tensor) -> Iterator[Tensor]:
        """J of some pairs, block by block."""
        for block in torch.split(places, max(1, self.entries // len(theta))):
            yield self._gradients(theta, block, dict.fromkeys(self.shapes, 1.0))

    def _gram_by_blocks(
        self, theta: Tensor, places: Tensor, others: Tensor, names: Mapping[str, float]
    ) -> Tensor:
        """J S^2 J' (m, k) of the gradients in some parameters, from blocks of rows."""
        gram = torch.zeros(len(places), len(others), dtype=theta.dtype, device=theta.device)
        if not names:
            return gram
        size = max(1, self.entries // sum(self.shapes[name].numel() for name in names))
        for here, rows in zip(torch.split(gram, size), torch.split(places, size), strict=True):
            first, parts = self._gradients(theta, rows, names), torch.split(here, size, dim=1)
            for part, columns in zip(parts, torch.split(others, size), strict=True):
                same = columns.equal(rows)
                second = first if same else self._gradients(theta, columns, names)
                torch.mm(first, second.T, out=part)
        return gram

    def _gradients(self, theta: Tensor, places: Tensor, names: Mapping[str, float]) -> Tensor:
        """Gradients (m, P') of some margins in some parameters, times their scales."""
        parameters = self.parameters(theta)
        others = {k: part for k, part in parameters.items() if k not in names}

        def margin(point: dict[str, Tensor], combination: Tensor, *sample: Tensor) -> Tensor:
            single = tuple(tensor[None] for tensor in sample)
            return combination @ self._evaluate({**others, **point}, single)[0]

        combinations = self.combinations.reshape(-1, self.pairs.width)[places]
        arguments = (combinations, *self._inputs(places // self.rivals))
        over_pairs = (None, *(0 for _ in arguments))
        point = {k: parameters[k] for k in names}
        with differentiated(self.module):
            found = vmap(grad(margin), in_dims=over_pairs)(point, *arguments)
        parts = [s * found[k].detach().reshape(len(places), -1) for k, s in names.items()]
        return torch.cat(parts, dim=1)

    def _factors(self, theta: Tensor, places: Tensor) -> dict[str, LayerProducts]:
        """Gradients of some margins that are sums of outer products, by parameter.

        They are those for which the module was seen to multiply with the parameter, and for which
        the outer products are the gradient of a random combination of margins: they are not where
        the parameter is used elsewhere, too.
        """
        samples, rivals = places // self.rivals, places % self.rivals
        blocks = samples // BLOCK
        found: list[dict[str, LayerProducts]] = []
        order = []
        for block in torch.unique(blocks).tolist():
            here = torch.nonzero(blocks == block)[:, 0]
            order.append(here)
            found.append(self._factors_of_block(theta, block, samples[here], rivals[here]))
        return joined(found, torch.cat(order).argsort())

    def _factors_of_block(
        self, theta: Tensor, block: int, samples: Tensor, rivals: Tensor
    ) -> dict[str, LayerProducts]:
        """`_factors` of pairs of the samples of one block.

        The forward pass is that of `combine`: with other samples beside them, rounding might put
        some on the other side of a kink.
        """
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        # The module multiplies with c W, so the gradient in W is c times that in what it sees.
        scale, degree = self.scaled
        parameters = {
            k: (scale * part.detach()).requires_grad_()
            for k, part in self.parameters(theta).items()
        }
        with torch.enable_grad(), WatchedProducts(parameters) as watched:
            outputs = self._outputs(parameters, self._inputs(rows))
            margins = torch.einsum("nrk,nk->nr", self.combinations[rows], outputs)
            margins = margins * scale ** (1.0 - degree)
        seen = watched.of_samples(len(margins))
        if not seen:
            return {}

        def gradients(total: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                total, of, retain_graph=True, allow_unused=True, materialize_grads=True
            )

        weights = torch.rand(margins.shape, generator=torch.Generator().manual_seed(0)).to(theta)
        results, places = [call.result for call in seen.values()], torch.unique(rivals).tolist()
        used, place = torch.unique(samples - rows.start, return_inverse=True)
        slopes = dict[str, Tensor]()
        for rival in places:
            here = rivals == rival
            of_rival = gradients(margins[:, rival].sum(), results)
            for (name, call), slope in zip(seen.items(), of_rival, strict=True):
                table = call.table(slope[used])
                if name not in slopes:
                    slopes[name] = table.new_empty(len(samples), *table.shape[1:])
                slopes[name][here] = table[place[here]]
        combined = (weights[:, places] * margins[:, places]).sum()
        summed = gradients(combined, results)
        exact = gradients(combined, [parameters[name] for name in seen])
        return {
            name: LayerProducts(slopes[name], call.patches(call.given.detach()[used]), place)
            for (name, call), slope, true in zip(seen.items(), summed, exact, strict=True)
            if torch.linalg.norm(call.gradient(slope) - true.reshape(-1))
            <= FACTOR_TOLERANCE * torch.linalg.norm(true)
        }


def joined(parts: Sequence[Mapping[str, LayerProducts]], order: Tensor) -> dict[str, LayerProducts]:
    """Put the pairs of several parts after one another, of the parameters that all of them have."""
    return {
        name: LayerProducts.joined([part[name] for part in parts], order)
        for name in parts[0]
        if all(name in part for part in parts)
    }


def _derivative(total: Tensor, of: Tensor, *, create_graph: bool = False) -> Tensor:
    """Gradient of a number, which may depend on nothing."""
    if not total.requires_grad:
        return torch.zeros_like(of)
    (found,) = torch.autograd.grad(
        total, of, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return found


def defined() -> AbstractContextManager[None]:
    """Say that a module has no outputs at other parameters than its own, scaled or 0, say."""
    return explained(
        lambda error: (
            "the module has outputs at its own parameters, but not at all multiples of them "
            f"({type(error).__name__}: {error}): let its forward pass invert no trained matrix, "
            "and check no sizes of numbers"
        )
    )


def differentiated(module: nn.Module) -> AbstractContextManager[None]:
    """Say what keeps a module from being differentiated, and what to do."""
    return explained(
        lambda error: (
            f"the module cannot be differentiated as is needed here: {_hindrance(module)} (torch "
            f"says: {error})"
        )
    )


def _hooked(module: nn.Module) -> list[str]:
    """Parts that have a full backward hook: torch has no public list of these."""
    parts = module.named_modules()
    return [name for name, part in parts if part._backward_hooks or part._backward_pre_hooks]


def _hindrance(module: nn.Module) -> str:
    hooked = _hooked(module)
    if hooked:
        return (
            f"the part {hooked[0]!r} has a full backward hook, through which torch takes no second "
            "derivative; remove it (handle.remove()) before measuring"
        )
    bags = [name for name, part in module.named_modules() if isinstance(part, nn.EmbeddingBag)]
    if bags:
        return (
            f"{bags[0]!r} is an EmbeddingBag, which has no second derivative in torch; take "
            "nn.Embedding and sum (or average) its outputs over the tokens"
        )
    return (
        "its forward pass branches on the data, writes into what its backward pass needs, computes "
        "parts anew there (activation checkpointing), has sparse gradients or buffers (take "
        "sparse=False, .to_dense()), a function without second derivatives, or an "
        "autograd.Function of your own without setup_context; write it in functions of torch that "
        "have them"
    )
