r"""The networks that gradient descent trains: gated linear networks and ReLU networks.

=============  ==================  =============================================================
symbol         shape               meaning
=============  ==================  =============================================================
x              (D,)                input
H_l, C_l                           units of hidden layer l, and contexts of each unit
W_l            (H_l C_l, H_(l-1))  weights of hidden layer l, row h * C_l + c; H_0 = D
w              (1, H)              readout, the output layer
zeta_{h,c}     (D,)                w_h W_1[h C + c], of a network with one hidden layer
=============  ==================  =============================================================

GLN             unit h of layer l takes, of its C_l weight vectors, the one that the context of
                the *network input* x selects, and is linear in the previous layer's output. With
                one hidden layer f(x) = sum_h w_h <W_1[h, context_h(x)], x>.
ReLUNetwork     max(0, W_l previous), without bias units. Its gates are trained with it.
FrozenGateReLU  z_l(x) * (W_l previous), z_l the 0/1 gates that a ReLU network had at one moment.

With one hidden layer all are f(x) = sum_m z_m(x) <zeta_m, x>, the predictor of a margin problem:
`Network.gating` gives the gates z, `Network.coef` the coefficients zeta.

Many classes, labels 0 .. K - 1, have an output f_k each, and one of two architectures:

one network a class  K networks of the sizes above side by side, network k for f_k. Row
                     (k H_l + h) C_l + c of W_l belongs to unit h of network k, row k of the
                     readout (K, H) to network k. In a GLN all have the same contexts, so that this
                     is the margin problem with groups (k, h), one a unit of each class. Trained
                     gates differ between the networks: there the margin problem has all K H gates,
                     of which it lets every class use every one, so that its optimum is a lower
                     bound on the norm that the networks need.
shared units         One hidden part, with a readout (K, H) that has a row a class. The coefficients
                     of unit h, zeta_h = w_h (x) W_h, are a matrix (K, C D) of rank 1, and the norm
                     is the sum of their nuclear norms ||w_h|| ||W_h||. In the margin problem that
                     matrix may have any rank, as it could with K - 1 units for each gate. With
                     fewer, and in a GLN (each unit has other contexts), the optimum is a lower
                     bound on the norm that the network needs.

Source: Lippl, Abbott, Chung (2022), sections 2, 4 and 5; Fiat, Malach, Shalev-Shwartz (2019) for
fixed gates; Sahiner et al. (2021), "Vector-output ReLU neural network problems are copositive
programs", for the nuclear norm of several outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, TypeAlias, TypedDict, Unpack, final, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.norms import Nuclear, SumOverGroups
from implicit_bias.problem import BLOCK, Architecture
from implicit_bias.problem.gating import Gating, HyperplaneContexts, UnitGates
from implicit_bias.problem.margins import smallest_margins

Init: TypeAlias = Literal["orthogonal", "kaiming-normal"]


class NetworkOptions(TypedDict, total=False):
    """What all networks take: their outputs, initialization, precision, and the weights' seed."""

    classes: int | None
    shared: bool
    init: Init
    dtype: torch.dtype
    seed: int


class Network(nn.Module, ABC):
    """A network with hidden layers, and no bias but, if asked, at the readout.

    It has one output f(x), for two classes, or one for each of K classes.

    Parameters
    ----------
    n_features : int
        D.
    widths, contexts : sequence of int, one entry a hidden layer
        H_l and C_l.
    classes : int, optional
        K, for one output a class; by default there is one output, for two classes.
    shared : bool
        Whether the classes share their hidden units; by default there is one network per class.
    readout_bias : bool
        Add a trained scalar, initially 0, to each output. The network is then not homogeneous.
    init : {"orthogonal", "kaiming-normal"}, optional
        Initialization of each weight matrix; the network's `default_init` where not given.
    dtype : torch.float64 or torch.float32
        Precision of weights and arithmetic.
    seed : int
        Seed of the initial weights; torch's global generator is neither read nor moved.

    Raises
    ------
    ValueError
        No hidden layer, a size below 1, one class, shared units of two classes with one output,
        an unknown ``init`` or ``dtype``.

    Attributes
    ----------
    fixed_gates : bool
        Whether training leaves the gates as they are, so that each unit is linear in its weights.
    same_gates : bool
        Whether the networks of all classes have the same gates.
    """

    fixed_gates: ClassVar[bool]
    same_gates: ClassVar[bool] = False
    default_init: ClassVar[Init] = "kaiming-normal"

    def __init__(
        self,
        n_features: int,
        widths: Sequence[int],
        contexts: Sequence[int],
        *,
        classes: int | None = None,
        shared: bool = False,
        readout_bias: bool = False,
        init: Init | None = None,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if init is None:
            init = self.default_init
        validation.check_choice(init, "init", get_args(Init))
        validation.check_count(n_features, "n_features")
        if not widths:
            raise ValueError("a network needs at least one hidden layer: give the units of each")
        for width in widths:
            validation.check_count(width, "each of widths (n_units)")
        if classes is not None:
            validation.check_count(classes, "classes", 2)
        elif shared:
            raise ValueError("shared units need the number of classes: pass classes=K")
        if dtype is not torch.float64 and dtype is not torch.float32:
            raise ValueError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
        self.n_features = n_features
        self.classes = classes
        self.shared = shared

        # --- weights
        # Rows and columns of each weight matrix of one network, the readout's last.
        rows = [width * count for width, count in zip(widths, contexts, strict=True)]
        rows.append(self.n_outputs // self.n_networks)
        shapes = list(zip(rows, [n_features, *widths], strict=True))
        # Network by network, so that the first one has the weights of a network of two classes.
        generator = validation.torch_generator(seed)
        # One orthogonal matrix for all networks would not be orthogonal in each of them.
        networks: list[list[Tensor]] = []
        for _ in range(self.n_networks):
            matrices = []
            for shape in shapes:
                weights = torch.empty(*shape, dtype=dtype)
                if init == "orthogonal":
                    nn.init.orthogonal_(weights, generator=generator)
                else:
                    nn.init.kaiming_normal_(weights, generator=generator)
                matrices.append(weights)
            networks.append(matrices)
        *hidden, readout = (torch.cat(layer) for layer in zip(*networks, strict=True))
        self.hidden_weights = nn.ParameterList(map(nn.Parameter, hidden))
        self.readout = nn.Parameter(readout)
        self.readout_bias: nn.Parameter | None = None
        if readout_bias:
            shape_of_bias = () if classes is None else (classes,)
            self.readout_bias = nn.Parameter(torch.zeros(shape_of_bias, dtype=dtype))

    @abstractmethod
    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Do once what training does not change: inputs (n, D) to the arguments of `forward`.

        Each tensor has the samples as first axis, so that ``tuple(t[batch] for t in prepared)``
        is a batch.
        """

    def prepare_samples(self, X: ArrayLike, y: ArrayLike) -> tuple[tuple[Tensor, ...], Tensor]:
        """Prepare inputs (n, D) and their labels (n,).

        Labels are -1 and +1, in the same precision as the inputs, or with classes 0 .. K - 1.
        """
        inputs = self.prepare(X)
        n_samples = len(inputs[0])
        if self.classes is None:
            signs = validation.as_labels(y, n_samples)
            return inputs, torch.tensor(signs).to(inputs[0])
        labels, _ = validation.as_class_labels(y, n_samples, self.classes)
        return inputs, torch.tensor(labels, device=self.device)

    def gate_pattern(self, *prepared: Tensor) -> Tensor:
        """State of each hidden unit's gate, shape (n, H_1 + H_2 + ...), as it is now.

        Whether the unit is on, or, in a GLN, its weight row h * C + c. Two patterns of the same
        inputs are there to be compared entry by entry.
        """
        if self.fixed_gates:  # which are prepared, layer by layer
            return torch.cat(prepared[1:], dim=1)
        return torch.cat([outputs > 0 for outputs in self.hidden_layers(*prepared)], dim=1)

    @abstractmethod
    def _gated(self, layer: int, products: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Output (n, H_l) of hidden layer l from the products W_l a, (n, H_l C_l).

        One network a class: (n, K H_l) from (n, K H_l C_l), those of network k side by side.
        """

    @abstractmethod
    def _first_layer_gating(self) -> Gating:
        """Gates of the first hidden layer, columns in the order of `coef`'s rows."""

    def hidden_layers(self, *prepared: Tensor, detached: bool = False) -> list[Tensor]:
        """Compute the outputs of all hidden layers, shapes (n, H_1), (n, H_2), ...

        One network a class: (n, K H_1), (n, K H_2), ..., those of network k side by side.
        With ``detached`` each layer takes the one before it as constant: no gradient crosses.
        """
        outputs = prepared[0]
        layers = []
        for layer, weights in enumerate(self.hidden_weights):
            if detached:
                outputs = outputs.detach()
            products = self._products(layer, outputs, weights)
            outputs = self._gated(layer, products, prepared)
            layers.append(outputs)
        return layers

    def hidden(self, *prepared: Tensor) -> Tensor:
        """Output of the last hidden layer, shape (n, H)."""
        return self.hidden_layers(*prepared)[-1]

    def unit_outputs(self, *prepared: Tensor) -> Tensor:
        """Compute the outputs of all units, shape (n, H_1 + H_2 + ... + 1); the last is f(x).

        A column has a gradient in the weights of its unit, and in no others. One network per
        class: (n, H_1 + H_2 + ... + 1, K), where the same unit of all networks has an output for
        each class.

        Raises
        ------
        ValueError
            Shared units, none of which has an output for each class.
        """
        if self.shared:
            raise ValueError(
                "hidden units that the classes share have one output each, so no unit can predict "
                "one of several classes by itself: use one network a class (shared=False)"
            )
        # Each layer takes the one before it as constant, and so does the readout.
        layers = self.hidden_layers(*prepared, detached=True)
        outputs = self._read(layers[-1].detach())[:, None]
        if self.classes is None:
            return torch.cat([*layers, outputs], dim=1)
        # (n, K H_l) to (n, H_l, K): unit h of all networks together.
        by_unit = (_parts(layer, 1, self.classes).transpose(1, 2) for layer in layers)
        return torch.cat([*by_unit, outputs], dim=1)

    def forward(self, *prepared: Tensor) -> Tensor:
        """Compute the outputs f(x), shape (n,) or (n, K), of prepared inputs."""
        return self._read(self.hidden(*prepared))

    def decision(self, X: ArrayLike) -> Array:
        """f(x) of inputs (n, D): float64 of shape (n,) or (n, K), without gradient."""
        return self._evaluate(self, X)

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Output of the last hidden layer, float64 (n, H) or (n, K H), of inputs (n, D)."""
        return self._evaluate(self.hidden, X)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of weights and arithmetic."""
        return self.readout.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.readout.device

    @property
    def n_outputs(self) -> int:
        """One, or K with classes."""
        return self.classes or 1

    @property
    def n_networks(self) -> int:
        """Networks side by side: K, where each class has its own, else one."""
        if self.shared:
            return 1
        return self.n_outputs

    @property
    def n_layers(self) -> int:
        """L, the number of weight layers: the degree of homogeneity without a readout bias."""
        return len(self.hidden_weights) + 1

    @property
    def homogeneous(self) -> bool:
        """Whether scaling all weights by c scales f by c^L; a readout bias breaks it."""
        return self.readout_bias is None

    @property
    def readout_bias_value(self) -> float:
        """The readout's bias, with one output; 0 without one."""
        if self.readout_bias is None:
            return 0.0
        return self.readout_bias.item()

    @property
    def has_margin_structure(self) -> bool:
        """Whether the network has `gating` and `coef`: one hidden layer."""
        return self.n_layers == 2

    @property
    def relaxed(self) -> bool:
        """Whether the margin problem has more freedom than the network, see the module's head.

        Its optimum is then a lower bound on the norm that the network needs, and no limit of it
        is known. Shared units have the freedom of the problem with two classes, whose coefficients
        have rank 1.
        """
        if self.shared:
            return self.n_outputs > 2
        return self.n_networks > 1 and not self.same_gates

    def gating(self) -> Gating:
        """Gates z of a network with one hidden layer, as they are now.

        Raises
        ------
        ValueError
            More than one hidden layer.
        """
        self._check_margin_structure()
        return self._first_layer_gating()

    def architecture(self) -> Architecture:
        """Gates and groups of a network with one hidden layer: all but the coefficients.

        Raises
        ------
        ValueError
            More than one hidden layer.
        """
        gating = self.gating()
        if self.shared:
            return Architecture(gating, norm=SumOverGroups(Nuclear(), gating.groups))
        return Architecture(gating, apart=self.classes is not None)

    def unit_groups(self) -> NDArray[np.int64]:
        """Return the groups of the margin problem that the hidden units are.

        Shape (H,), or, one network a class, (K H,), network by network. Where the gates of the
        networks differ the problem has more groups, (k, j) for all K H gates j.
        """
        n_units = self.readout.shape[1]
        # With the same gates group (k, h) is k H + h. With different ones there are K H gates, and
        # unit h of network k, gate j = k H + h, is group (k, j), which is k K H + j.
        units = np.arange(self.n_networks * n_units)
        if self.n_networks == 1 or self.same_gates:
            return units
        return units + np.repeat(np.arange(self.n_networks), n_units) * len(units)

    def coef(self) -> Array:
        """Coefficients zeta of a network with one hidden layer, as they are now.

        Shape (M, D), or (K, M, D) with classes. Row h * C + c is w_h W_1[h * C + c], of class k
        with the readout and the network of class k. Where the networks of the classes have
        different gates, M = K H, and class k has those in the rows k H + h. The readout's bias is
        left out.

        Raises
        ------
        ValueError
            More than one hidden layer.
        """
        self._check_margin_structure()
        # Row-major: the weight vectors of a network lie together, as do those of each unit.
        first = _parts(self.hidden_weights[0], 0, self.n_networks)
        n_contexts = first.shape[1] // self.readout.shape[1]
        scale = self.readout.repeat_interleave(n_contexts, dim=1)
        coef = _as_array(scale[:, :, None] * first)
        if self.n_networks > 1 and not self.same_gates:
            # Class k has no coefficients in the rows of the other networks' gates.
            whole = np.zeros((len(coef), *coef.shape))
            whole[np.diag_indices(len(coef))] = coef
            return whole.reshape(len(coef), -1, self.n_features)
        if self.classes is None:
            return coef[0]
        return coef

    def norm(self) -> float:
        """Norm of the weights to which margins are compared, homogeneous of the same degree as f.

        One hidden layer: sum_h ||zeta_h||, over all contexts of unit h, and over all classes or,
        where they share it, as a nuclear norm; in any case the norm of `architecture`. Deeper
        networks: (||theta||^2 / L)^(L/2) over all weights theta; with L = 2 this would be an upper
        bound of the former, equal where ||w_h|| = ||W_1[h]|| for all h. The readout's bias is
        left out.
        """
        with torch.no_grad():
            if self.has_margin_structure:
                # The nuclear norm of w_h (x) W_h, of rank 1, is ||w_h|| ||W_h||.
                if self.shared:
                    readout = self.readout.norm(dim=0)
                else:
                    readout = self.readout.abs().flatten()
                # Row-major: the C weight vectors of a unit lie together.
                units = self.hidden_weights[0].reshape(len(readout), -1)
                return (readout @ units.norm(dim=1)).item()
            layers = (*self.hidden_weights, self.readout)
            squares = torch.stack([weights.square().sum().double() for weights in layers]).sum()
            return float((squares / self.n_layers) ** (self.n_layers / 2))

    def smallest_margin(self, outputs: Tensor, labels: Tensor) -> float:
        """Smallest y_n f(x_n) of outputs (n,) and labels (n,), as `prepare_samples` makes them.

        With classes, of outputs (n, K), the smallest f_{y_n}(x_n) - f_k(x_n). The readout's bias
        is left out, as it is in `norm`, so that their ratio has the SVM's as its bound.
        """
        if self.readout_bias is not None:
            outputs = outputs - self.readout_bias.detach()
        return smallest_margins(outputs, labels).min().item()

    def _products(self, layer: int, previous: Tensor, weights: Tensor) -> Tensor:
        """W_l a of hidden layer l; one network a class: of each with its own outputs a."""
        if layer == 0 or self.n_networks == 1:
            return previous @ weights.T
        # Row k of the einsum: the weights of network k times its own outputs.
        previous_of_network = _parts(previous, 1, self.n_networks)
        weights_of_network = _parts(weights, 0, self.n_networks)
        return torch.einsum("nki,kji->nkj", previous_of_network, weights_of_network).flatten(1)

    def _read(self, hidden: Tensor) -> Tensor:
        """Readout (n,) or (n, K) of the last hidden layer, (n, H) or (n, K H)."""
        if self.classes is None:
            outputs = hidden @ self.readout[0]
        elif self.shared:
            outputs = hidden @ self.readout.T
        else:
            hidden_of_network = _parts(hidden, 1, self.classes)
            outputs = torch.einsum("nkh,kh->nk", hidden_of_network, self.readout)
        if self.readout_bias is None:
            return outputs
        return outputs + self.readout_bias

    def _as_inputs(self, X: ArrayLike) -> Tensor:
        X = validation.as_features(X, self.n_features)
        return torch.tensor(X, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def _evaluate(self, function: Callable[..., Tensor], X: ArrayLike) -> Array:
        """Apply a function of prepared inputs to X (n, D), a block of rows at a time."""
        X = validation.as_features(X, self.n_features)
        starts = range(0, max(len(X), 1), BLOCK)  # one block at least: it sets the shape
        blocks = [function(*self.prepare(X[start : start + BLOCK])) for start in starts]
        return _as_array(torch.cat(blocks))

    def _check_margin_structure(self) -> None:
        if not self.has_margin_structure:
            raise ValueError(
                f"a network with {self.n_layers - 1} hidden layers is not linear in one layer of "
                "gates, so it has no margin problem: use one hidden layer"
            )


@final
class GLN(Network):
    """Gated linear network of any depth; its gates are fixed.

    Parameters
    ----------
    gatings : sequence of HyperplaneContexts
        The contexts of each hidden layer, all of the network's input. Not parameters.
    readout_bias : bool
        As in `Network`; the network is then not homogeneous.
    classes, shared, init, dtype, seed
        As in `Network`; the default initialization is orthogonal.

    Raises
    ------
    ValueError
        No gating, gatings of different input features.
    """

    fixed_gates = True
    same_gates = True
    default_init = "orthogonal"

    def __init__(
        self,
        gatings: Sequence[HyperplaneContexts],
        *,
        readout_bias: bool = False,
        **options: Unpack[NetworkOptions],
    ) -> None:
        n_features = {gating.n_features for gating in gatings}
        if len(n_features) != 1:
            raise ValueError(
                "a GLN needs one gating a hidden layer, all of the same inputs, got "
                f"{len(gatings)} gatings of {sorted(n_features)} features"
            )
        super().__init__(
            n_features.pop(),
            [gating.n_units for gating in gatings],
            [gating.n_contexts for gating in gatings],
            readout_bias=readout_bias,
            **options,
        )
        self.gatings = tuple(gatings)

    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Return the inputs (n, D) and, for each layer, the weight row h * C + c of each unit."""
        columns = (gating.columns(X) for gating in self.gatings)
        return self._as_inputs(X), *(torch.tensor(rows, device=self.device) for rows in columns)

    def _gated(self, layer: int, products: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        # Of the products of a unit with its C weight vectors the one of the input's context; all
        # networks have the same contexts.
        of_network = _parts(products, 1, self.n_networks)
        rows = prepared[1 + layer][:, None].expand(-1, self.n_networks, -1)
        return of_network.gather(2, rows).flatten(1)

    def _first_layer_gating(self) -> HyperplaneContexts:
        return self.gatings[0]


@final
class ReLUNetwork(Network):
    """ReLU network of any depth, without bias units; its gates are trained with its weights.

    Parameters
    ----------
    n_features : int
        D.
    widths : sequence of int
        Units of each hidden layer.
    classes, shared, init, dtype, seed
        As in `Network`; the default initialization is Kaiming normal.
    """

    fixed_gates = False

    def __init__(
        self, n_features: int, widths: Sequence[int], **options: Unpack[NetworkOptions]
    ) -> None:
        super().__init__(n_features, widths, [1] * len(widths), **options)

    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Return the inputs (n, D), and nothing else."""
        return (self._as_inputs(X),)

    def _gated(self, layer: int, products: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        return products.relu()

    def _first_layer_gating(self) -> UnitGates:
        return _unit_gates(self.hidden_weights[0])


@final
class FrozenGateReLU(Network):
    """ReLU network of any depth whose gates stay what they were when it was built.

    A unit is on where the same unit of the frozen network, fed by the frozen layers before it,
    is on; its output is linear in what the *trained* layer before it hands over. Until it is
    trained it has the outputs of the given network.

    Parameters
    ----------
    network : ReLUNetwork
        Its weights, precision and device are copied: once as the weights to train, once (those
        of the hidden layers) for the gates, which are buffers and no parameters. A state dict
        holds both, so loading one sets the gates too.
    """

    fixed_gates = True

    def __init__(self, network: ReLUNetwork) -> None:
        widths = [len(weights) // network.n_networks for weights in network.hidden_weights]
        super().__init__(
            network.n_features,
            widths,
            [1] * len(widths),
            classes=network.classes,
            shared=network.shared,
            dtype=network.dtype,
        )
        # First the weights that are trained, then a second copy, which decides the gates.
        self.to(network.device)
        self.load_state_dict(network.state_dict())
        for layer, weights in enumerate(network.hidden_weights):
            self.register_buffer(f"gate_weights_{layer}", weights.detach().clone())

    @property
    def gate_weights(self) -> list[Tensor]:
        """Frozen weights of each hidden layer, shapes (H_l, H_(l-1)): they decide the gates."""
        return [self.get_buffer(f"gate_weights_{i}") for i in range(len(self.hidden_weights))]

    @torch.no_grad()
    def prepare(self, X: ArrayLike) -> tuple[Tensor, ...]:
        """Return the inputs (n, D) and, for each layer, whether each unit is on: bool (n, H_l)."""
        # The frozen layers are a ReLU network of their own.
        inputs = self._as_inputs(X)
        outputs = inputs
        masks = []
        for layer, weights in enumerate(self.gate_weights):
            outputs = self._products(layer, outputs, weights).relu()
            masks.append(outputs > 0)
        return inputs, *masks

    def _gated(self, layer: int, products: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        return products * prepared[1 + layer]

    def _first_layer_gating(self) -> UnitGates:
        return _unit_gates(self.gate_weights[0])


def _unit_gates(weights: Tensor) -> UnitGates:
    """Gates of a first layer with weights (H, D): on where the projection is positive."""
    return UnitGates(
        _as_array(weights),
        np.zeros(len(weights)),
        ">",
        single_precision=weights.dtype == torch.float32,
    )


def _parts(tensor: Tensor, axis: int, count: int) -> Tensor:
    """Cut an axis into as many equal parts, one after the other (row-major): (.., count, n, ..)."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])


def _as_array(tensor: Tensor) -> Array:
    """Copy to float64: training goes on in the tensor's own memory."""
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float64)
