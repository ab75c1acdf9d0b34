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

- J' lambda is one backward pass. lambda enters through the K numbers per sample with which the
  outputs are multiplied.
- J w is the transpose of that: a backward pass through the backward pass. It works wherever the
  module can be differentiated twice.
- J J' of some pairs is a sum over the parameters. The gradient in weights of a linear layer or a
  convolution is a sum of outer products delta a' over positions, whose inner products need no
  gradient (`layer_products`); delta of all pairs is one backward pass per rival. The rows of all
  other parameters are computed in blocks (`vmap`).

All is in float64, whatever the module's own precision, and leaves the module as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import grad, vmap

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array, as_class_labels, as_labels
from implicit_bias.modules.evaluate import as_inputs, evaluate, values_of
from implicit_bias.modules.layer_products import GRADIENT_ENTRIES, LayerProducts, WatchedProducts
from implicit_bias.problem import BLOCK
from implicit_bias.problem.constraints import Constraints

NO_PARAMETER = (
    "the module has no parameter that requires a gradient: call requires_grad_(True) on what is "
    "trained, or on the whole module"
)


@contextmanager
def differentiated() -> Iterator[None]:
    """Say what a module must be like where torch cannot differentiate it.

    Raises
    ------
    ValueError
        torch failed, for another reason than a lack of memory.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # all that torch's own functions raise here
        raise ValueError(
            f"the module cannot be differentiated as is needed here ({error}): its forward pass "
            "must be made of functions of torch that have second derivatives, without sparse "
            "gradients, EmbeddingBag, and branches on the data"
        ) from error


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
    module, classes, scaled
        As given.
    inputs : tuple of Tensor
        As given, in float64 where they are floating point.
    labels : ndarray of shape (N,)
        As given, checked.
    pairs : Constraints
        The pairs that have margins, sample by sample.
    combinations : Tensor of shape (N, K - 1, K) or (N, 1, 1)
        C with q_nk = <c_nk, f(x_n)>.
    rivals : int
        K - 1, the number of pairs of each sample; 1 with two labels.
    theta : Tensor of shape (P,)
        The parameters as they are.
    shapes : dict from name to torch.Size
        Their shapes, in the order of theta.
    entries : int
        Entries of a block of per-sample gradients, and of what a forward pass keeps for its
        backward pass; at most a few blocks exist at a time.
    """

    # Samples up to which a forward pass is never cut into blocks.
    fewest: ClassVar[int] = 64

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
        # --- theta, and what is constant
        values = values_of(module) | dict(at or {})
        trained = dict[str, Tensor]()
        self.frozen = list[str]()
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                self.frozen.append(name)
            counts = parameter.requires_grad if names is None else name in names
            if counts and parameter.numel():
                trained[name] = values[name]
        if not trained:
            raise ValueError(NO_PARAMETER)
        self.module = module
        self.constants = {name: value for name, value in values.items() if name not in trained}
        self.buffers = [name for name, _ in module.named_buffers()]
        self.shapes = {name: part.shape for name, part in trained.items()}
        self.theta = torch.cat([part.reshape(-1) for part in trained.values()])
        self.scaled = scaled
        self.entries = GRADIENT_ENTRIES

        # --- samples and pairs
        n_samples = len(inputs[0])
        if classes is None:
            self.labels = as_labels(labels, n_samples)
        else:
            self.labels = as_class_labels(labels, n_samples, classes)[0]
        self.classes = classes
        self.inputs = as_inputs(inputs, n_samples, self.theta.device)
        self.pairs = Constraints.of_labels(self.labels, classes, intercept=False)
        combinations = self.pairs.label_vectors.toarray().reshape(n_samples, -1, self.pairs.width)
        self.combinations = torch.tensor(combinations, device=self.theta.device)
        self.rivals = combinations.shape[1]

    def restricted(self, names: Collection[str], theta: Tensor) -> Margins:
        """Return the same margins as a function of some parameters, all others as in theta (P,)."""
        # What becomes a constant is no longer scaled in the evaluation.
        scale = self.scaled[0]
        at = dict(self.constants)
        for name, part in self.parameters(theta).items():
            at[name] = part if name in names else scale * part
        return self._again(names, at, self.scaled)

    def reread(self, module: nn.Module) -> Margins:
        """Return the margins at the parameters that a module, or a copy of it, has by now.

        Raises
        ------
        ValueError
            Parameters or buffers have come, have gone, have other shapes or were frozen or thawed.
        """
        now = self._again(self.shapes, None, self.scaled, module)
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
        found.inputs = self._inputs(rows)
        found.combinations = self.combinations[rows]
        return found

    def of_outputs(self) -> Margins:
        """Return the outputs themselves in the place of margins, K of each sample, for `gram`."""
        found = copy(self)
        width = self.pairs.width
        identity = torch.eye(width, dtype=self.combinations.dtype, device=self.theta.device)
        found.combinations = identity.expand(len(self.labels), width, width)
        found.rivals = width
        return found

    def _again(
        self,
        names: Collection[str],
        at: Mapping[str, Tensor] | None,
        scaled: tuple[float, float],
        module: nn.Module | None = None,
    ) -> Margins:
        found = Margins(
            module or self.module,
            self.inputs,
            self.labels,
            self.classes,
            names=names,
            at=at,
            scaled=scaled,
        )
        found.kept = self.kept
        return found

    def parameters(self, theta: Tensor) -> dict[str, Tensor]:
        """View a vector (P,) as the parameters, by name."""
        parts = torch.split(theta, [shape.numel() for shape in self.shapes.values()])
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def flat(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Undo `parameters`."""
        return torch.cat([parameters[name].reshape(-1) for name in self.shapes])

    # --- margins, J' lambda and J w, in blocks of samples

    def outputs(self, theta: Tensor) -> Array:
        """Compute the outputs (N, K), or (N, 1)."""
        with torch.no_grad():
            parts = [self.outputs_at(theta, *self._inputs(rows)) for rows in self._blocks()]
        return torch.cat(parts).cpu().numpy()

    def outputs_at(self, theta: Tensor, *inputs: Tensor) -> Tensor:
        """Compute the outputs (m, K), or (m, 1), of any inputs, in one batch."""
        return self._scaled_outputs(self.parameters(theta), inputs)

    def margins(self, theta: Tensor) -> Array:
        """Margins q (n,) of all pairs."""
        return self.pairs.margins(self.outputs(theta))

    def vjp(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,), without J."""
        table = torch.tensor(weights, device=theta.device).reshape(len(self.combinations), -1)
        leaf = theta.detach().requires_grad_()
        # Block by block, so that the graph of one block of samples exists at a time.
        total = torch.zeros_like(leaf)
        with differentiated(), torch.enable_grad():
            for rows in self._blocks():
                combined = (table[rows] * self._margins(rows, leaf)).sum()
                total += _derivative(combined, leaf)
        return total

    def jvp(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (n,), of a direction w (P,), without J.

        J' lambda is linear in lambda, so J w is the gradient of <J' lambda, w> in lambda, anywhere.
        """
        leaf = theta.detach().requires_grad_()
        parts = list[Tensor]()
        with differentiated(), torch.enable_grad():
            for rows in self._blocks():
                margins = self._margins(rows, leaf)
                # Where lambda is does not matter: 0 will do.
                weights = torch.zeros_like(margins).requires_grad_()
                transpose = _derivative((weights * margins).sum(), leaf, create_graph=True)
                parts.append(_derivative((transpose * direction).sum(), weights))
        found = torch.cat(parts).reshape(-1)
        # The second derivative of a root at 0 is not finite. The rows of J need first ones alone.
        if not found.isfinite().all():
            places = torch.arange(len(found), device=theta.device)
            found = torch.cat([rows @ direction for rows in self._rows(theta, places)])
        return found.cpu().numpy()

    def _margins(self, rows: slice, theta: Tensor) -> Tensor:
        """Margins (m, K - 1) of some samples."""
        outputs = self.outputs_at(theta, *self._inputs(rows))
        return torch.einsum("nrk,nk->nr", self.combinations[rows], outputs)

    def _inputs(self, rows: slice | Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor[rows] for tensor in self.inputs)

    def _scaled_outputs(
        self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]
    ) -> Tensor:
        """Compute the outputs (m, K) of f(c theta) / c^L."""
        scale, degree = self.scaled
        if scale == 1.0:
            return self._outputs(parameters, inputs)
        scaled = {name: scale * part for name, part in parameters.items()}
        return self._outputs(scaled, inputs) * scale**-degree

    def _outputs(self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        """Compute the outputs (m, K) of f itself."""
        # A forward pass may write into buffers (a counter), so they are copies. torch forbids it to
        # write into parameters that are differentiated.
        written = {name: self.constants[name].clone() for name in self.buffers}
        outputs = evaluate(self.module, {**self.constants, **written, **parameters}, inputs)
        width = self.pairs.width
        if outputs.numel() != width * len(inputs[0]):
            raise ValueError(
                f"the module must have {width} output(s) for each sample, got shape "
                f"{tuple(outputs.shape)} for {len(inputs[0])} samples"
            )
        return outputs.reshape(-1, width).double()

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, len(self.combinations), self.block):
            yield slice(start, start + self.block)

    @property
    def block(self) -> int:
        """Samples of a forward pass: those that keep `entries` activations, at most `BLOCK`."""
        return min(BLOCK, max(self.fewest, self.entries // max(1, self.kept)))

    @cached_property
    def kept(self) -> int:
        """Entries that a forward pass keeps per sample for the backward pass.

        They are counted in a pass of `fewest` samples, and 0 where there are no more samples.
        """
        total = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        if len(self.combinations) > self.fewest:
            leaf = self.theta.detach().requires_grad_()
            hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
            with torch.enable_grad(), hooks:
                self.outputs_at(leaf, *self._inputs(slice(0, self.fewest)))
        return total // self.fewest

    def _pairs_at_a_time(self, parameters: int) -> int:
        """Return how many per-sample gradients, each of so many parameters, are in a block."""
        return max(1, self.entries // (parameters + self.kept))

    # --- rows of J, and J J' of some pairs

    def rows(self, theta: Tensor, chosen: NDArray[np.int64]) -> Array:
        """J (m, P) of some pairs, for few of them."""
        places = torch.tensor(chosen, device=theta.device)
        return torch.cat([*self._rows(theta, places)]).cpu().numpy()

    def _rows(self, theta: Tensor, places: Tensor) -> Iterator[Tensor]:
        """J of some pairs, block by block."""
        # As many rows at a time as have `entries` entries together.
        for block in torch.split(places, self._pairs_at_a_time(len(theta))):
            yield self.gradients(theta, block, dict.fromkeys(self.shapes, 1.0))

    def gram(
        self,
        theta: Tensor,
        chosen: NDArray[np.int64],
        scale: Mapping[str, float] | None = None,
        others: NDArray[np.int64] | None = None,
        deadline: Deadline = NEVER,
    ) -> Array:
        """J S^2 J' (m, k) of some pairs and others, by default the same ones.

        S are scales of the parameters by name, 1 if not given.

        Raises
        ------
        TimeoutError
            The deadline has passed between two blocks of the matrix.
        """
        products_of = partial(self.layer_products, theta)
        rows_of = partial(self.gradients, theta)
        return self.inner_products(chosen, others, products_of, rows_of, scale, deadline)

    def inner_products(
        self,
        chosen: NDArray[np.int64],
        others: NDArray[np.int64] | None,
        products_of: Callable[[Tensor, Deadline], Mapping[str, LayerProducts]],
        rows_of: Callable[[Tensor, Mapping[str, float]], Tensor],
        scale: Mapping[str, float] | None,
        deadline: Deadline,
    ) -> Array:
        """Compute the inner products (m, k) of some rows of J with others, as `gram`.

        ``products_of`` returns the layer products of rows, and ``rows_of`` the rows themselves in
        the parameters that have none.
        """
        if others is None:
            others = chosen
        m = len(chosen)
        # One forward pass for the chosen rows and the others together: their products meet.
        places = torch.tensor(np.append(chosen, others), device=self.theta.device)
        products = products_of(places, deadline)
        scale = scale or {}
        rest = {name: scale.get(name, 1.0) for name in self.shapes if name not in products}
        gram = self._gram_by_rows(places[:m], places[m:], rows_of, rest, deadline)
        for name, of_layer in products.items():
            scaled = of_layer.times(scale.get(name, 1.0))
            deadline.check()
            gram += scaled.of(slice(m)).gram(scaled.of(slice(m, None)), deadline)
        return gram.cpu().numpy()

    def _gram_by_rows(
        self,
        places: Tensor,
        others: Tensor,
        rows_of: Callable[[Tensor, Mapping[str, float]], Tensor],
        scales: Mapping[str, float],
        deadline: Deadline,
    ) -> Tensor:
        """J S^2 J' (m, k) of the gradients in the parameters named in ``scales``, in blocks."""
        gram = self.theta.new_zeros(len(places), len(others))
        if not scales:
            return gram
        size = self._pairs_at_a_time(sum(self.shapes[name].numel() for name in scales))
        # Splits of `gram` are views, so that products written into them fill it block by block.
        row_blocks = zip(torch.split(gram, size), torch.split(places, size), strict=True)
        for strip, rows in row_blocks:
            first = rows_of(rows, scales)
            column_blocks = zip(
                torch.split(strip, size, dim=1), torch.split(others, size), strict=True
            )
            for block, columns in column_blocks:
                deadline.check()
                same = columns.equal(rows)
                second = first if same else rows_of(columns, scales)
                torch.mm(first, second.T, out=block)
        return gram

    def gradients(self, theta: Tensor, places: Tensor, scales: Mapping[str, float]) -> Tensor:
        """Gradients (m, P') of some margins in the parameters named in ``scales``, times these."""
        # The other parameters are constants of the function that is differentiated.
        parameters = self.parameters(theta)
        point = {name: parameters.pop(name) for name in scales}

        def margin(point: dict[str, Tensor], combination: Tensor, *sample: Tensor) -> Tensor:
            single = tuple(tensor[None] for tensor in sample)
            return combination @ self._scaled_outputs({**parameters, **point}, single)[0]

        combinations = self.combinations.reshape(-1, self.pairs.width)[places]
        arguments = (combinations, *self._inputs(places // self.rivals))
        over_pairs = (None, *[0] * len(arguments))
        with differentiated():
            found = vmap(grad(margin), in_dims=over_pairs)(point, *arguments)
        parts = list[Tensor]()
        for name, scale in scales.items():
            parts.append(scale * found[name].detach().reshape(len(places), -1))
        return torch.cat(parts, dim=1)

    # --- gradients that are sums of outer products

    def layer_products(
        self, theta: Tensor, places: Tensor, deadline: Deadline = NEVER
    ) -> dict[str, LayerProducts]:
        """Gradients of some margins as sums of outer products, by parameter.

        Those parameters are left out with which the module does not multiply in the forward pass,
        and those for which the outer products are not the whole gradient, as they are used
        elsewhere, too. The gradient of a random combination of the margins shows that.
        """
        samples = places // self.rivals
        rivals = places % self.rivals
        blocks = samples // self.block
        found = list[dict[str, LayerProducts]]()
        order = list[Tensor]()
        for block in torch.unique(blocks).tolist():
            deadline.check()
            here = torch.nonzero(blocks == block)[:, 0]
            order.append(here)
            found.append(self._products_of_block(theta, block, samples[here], rivals[here]))
        return joined(found, torch.cat(order).argsort())

    def _products_of_block(
        self, theta: Tensor, block: int, samples: Tensor, rivals: Tensor
    ) -> dict[str, LayerProducts]:
        """`layer_products` of pairs of the samples of one block.

        The forward pass is that of `combine`: with other samples beside them, rounding might put
        some on the other side of a kink.
        """
        # --- a forward pass that is watched, at c theta. The margins are q(c theta) / c^L, whose
        # gradient in theta is c^(1 - L) times that of q in c theta. So below q is multiplied with
        # c^(1 - L), and differentiated in c theta.
        rows = slice(block * self.block, (block + 1) * self.block)
        scale, degree = self.scaled
        parameters = dict[str, Tensor]()
        for name, part in self.parameters(theta).items():
            parameters[name] = (scale * part.detach()).requires_grad_()
        with torch.enable_grad(), WatchedProducts(parameters) as watched:
            outputs = self._outputs(parameters, self._inputs(rows))
            margins = torch.einsum("nrk,nk->nr", self.combinations[rows], outputs)
            margins = margins * scale ** (1.0 - degree)
        calls = watched.of_samples(len(margins))
        if not calls:
            return {}
        results = [call.result for call in calls.values()]

        # --- delta of all pairs: a backward pass for each rival. It gives the slopes of all samples
        # of the block at once, as each margin depends on its own sample alone.
        used, place = torch.unique(samples - rows.start, return_inverse=True)
        rivals_here = torch.unique(rivals).tolist()
        slopes = dict[str, Tensor]()
        for rival in rivals_here:
            of_rival = rivals == rival
            deltas = _derivatives(margins[:, rival].sum(), results)
            for (name, call), delta in zip(calls.items(), deltas, strict=True):
                table = call.table(delta[used])
                if name not in slopes:
                    slopes[name] = table.new_empty(len(samples), *table.shape[1:])
                slopes[name][of_rival] = table[place[of_rival]]

        # --- keep the parameters whose outer products sum to the gradient of a random combination
        weights = torch.rand(margins.shape, generator=torch.Generator().manual_seed(0)).to(theta)
        combined = (weights[:, rivals_here] * margins[:, rivals_here]).sum()
        summed = _derivatives(combined, results)
        exact = _derivatives(combined, [parameters[name] for name in calls])
        found = dict[str, LayerProducts]()
        for (name, call), delta, true in zip(calls.items(), summed, exact, strict=True):
            missed = torch.linalg.norm(call.gradient(delta) - true.reshape(-1))
            if missed <= 1e-9 * torch.linalg.norm(true):  # equal up to rounding
                given = call.patches(call.given.detach()[used])
                found[name] = LayerProducts(slopes[name], given, place)
        return found


def joined(parts: Sequence[Mapping[str, LayerProducts]], order: Tensor) -> dict[str, LayerProducts]:
    """Concatenate the pairs of several parts, for the parameters that all of them have."""
    found = dict[str, LayerProducts]()
    for name in parts[0]:
        if all(name in part for part in parts):
            found[name] = LayerProducts.joined([part[name] for part in parts], order)
    return found


# Not by `vjp` or `grad_outputs`, for which torch imports its compiler: a second or two.


def _derivative(total: Tensor, of: Tensor, *, create_graph: bool = False) -> Tensor:
    """Gradient of a number, which may depend on nothing."""
    if not total.requires_grad:
        return torch.zeros_like(of)
    (found,) = torch.autograd.grad(
        total, of, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return found


def _derivatives(total: Tensor, of: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a number whose graph is needed again."""
    return torch.autograd.grad(
        total, of, retain_graph=True, allow_unused=True, materialize_grads=True
    )
