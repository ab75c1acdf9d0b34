r"""How far a network is from a KKT point of its max-margin problem in l2.

Gradient descent on a homogeneous network converges, in direction, to a KKT point of

    minimize  1/2 ||theta||^2   subject to  q_n(theta) = y_n f(x_n; theta) >= 1 for all n,

if the loss is exponential-like and converges to 0, theta / ||theta|| converges, and all margins at
that limit are above 0: theorem 3.1 of Lippl et al. under their conditions B.1 to B.4 (B.5 is not
needed where all margins have one degree). Where nothing is known of convergence, every limit point
of theta / ||theta|| is such a point for gradient flow that separates the samples once (Lyu and Li
2020). How near a network is, scaled to unit margin, its best multipliers say (`tangent_program`).
In l2 they are the dual solution of the hard-margin SVM on the per-sample gradients.

===========  =========  ==========================================================================
symbol       shape      meaning
===========  =========  ==========================================================================
lambda       (N,)       multipliers of the samples
w_h, W_h     1, (C, D)  readout and weights of hidden unit h; zeta_h = w_h W_h (see `networks`)
V_h          (C, D)     V_h(lambda) of the margin problem, for hidden unit h (see `problem`)
===========  =========  ==========================================================================

**To the convex problem.** With one hidden layer f(x) = sum_h w_h <W_h, z_h(x) x'>, L = 2, zeta_h =
w_h W_h, and the gradients of sum_n lambda_n q_n are w_h V_h in W_h and <W_h, V_h> in w_h. At a KKT
point therefore W_h = w_h V_h and w_h = <W_h, V_h>, so that an active unit (zeta_h != 0) has |w_h| =
||W_h||, which is eq. (18), and ||V_h(lambda)|| = 1: lambda is alpha, the dual variables of the
margin problem, with no factor between them, unless there is a dead unit. For at a dead
unit both conditions hold whatever V_h is, while the margin problem also asks ||V_h|| <= 1. A dead
unit of a larger dual norm is the mark of another stationary point than the SVM.

Source: Lippl, Abbott, Chung (2022), theorem 3.1, proposition B.8 and eq. (18); Lyu and Li (2020),
"Gradient descent maximizes the margin of homogeneous neural networks", for approximate KKT points.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from implicit_bias.base.validation import Array, check_flag
from implicit_bias.bounds.certificate import Certificate, certify
from implicit_bias.modules.evaluate import as_module, double, evaluating
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.subject import SeparationError, Subject, margins_of
from implicit_bias.modules.tangent_program import Multipliers
from implicit_bias.networks import Network
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.problem import MarginProblem


@dataclass(frozen=True, eq=False)
class NetworkCertificate:
    """A network of one hidden layer beside the margin problem of its gates.

    Attributes
    ----------
    problem : MarginProblem
        The margin problem.
    given : Certificate
        Upper bound from the network, lower bound from the dual variables that were given.
    by_multipliers : Certificate or None
        The same upper bound, lower bound from the network's own multipliers.
    stationarity : Multipliers or None
        None where ``obstacle`` says why, or where the multipliers were not asked for.
    obstacle : str
        Why the network has no multipliers, and so gives no lower bound; else empty.
    unit_norms : ndarray of shape (H,)
        ||zeta_h|| of each hidden unit, as the network is; one network a class: (K H,), network by
        network.
    dual_norms : ndarray of shape (H,) or (K H,)
        ||V_h(lambda)||: 1 at active units of a KKT point; nan without multipliers.
    balance : float
        See `balance`.
    """

    problem: MarginProblem
    given: Certificate
    by_multipliers: Certificate | None
    stationarity: Multipliers | None
    obstacle: str
    unit_norms: Array
    dual_norms: Array
    balance: float

    @property
    def certificate(self) -> Certificate:
        """The better of the two lower bounds; its ``gap`` is how near the limit the network is."""
        # Both have the network's upper bound.
        found = self.by_multipliers
        if found is None or found.lower <= self.given.lower:
            return self.given
        return found

    @property
    def active(self) -> NDArray[np.bool_]:
        """Units (H,) with at least 1 % of the largest norm."""
        return active_units(self.unit_norms)

    @property
    def dead(self) -> NDArray[np.int64]:
        """The units that are not active.

        Where `stationarity.gap` is near 0 and one of them has a dual norm above 1, the network is
        near another stationary point than the SVM: with that unit the norm could be lower.
        """
        return np.flatnonzero(~self.active)


def stationarity(
    module: nn.Module,
    inputs: tuple[Tensor | Array, ...],
    labels: ArrayLike,
) -> Multipliers:
    r"""Measure how far a module is from a KKT point of theorem 3.1, in float64.

    .. math:: \theta = \sum_n \lambda_n \nabla q_n(\theta), \qquad
        \lambda_n (q_n(\theta) - 1) = 0, \qquad \lambda \ge 0, \quad q_n(\theta) \ge 1

    Parameters
    ----------
    module : nn.Module
        Any module that treats its samples one by one, has one output a sample (or one a class), and
        is homogeneous in those of its parameters that require a gradient (the others count as
        constants). It is measured in evaluation mode, and left as it is.
    inputs : tuple of Tensor or ndarray
        Arguments of the module, each with the samples as first axis, on its device; `Network.
        prepare` makes those of this package's networks.
    labels : array_like of shape (N,)
        -1 or +1; or 0 .. K - 1.

    Returns
    -------
    Multipliers
        lambda >= 0 of least gap; ``residual``, ``slackness``, ``epsilon`` and ``delta`` are what
        they leave of the conditions above. `Multipliers.program` has the module at unit margin.

    Raises
    ------
    HomogeneityError
        The module is not homogeneous.
    SeparationError
        A margin is not positive.
    ValueError
        Inputs, outputs or labels that do not fit, or NaN; no parameter to train.

    Notes
    -----
    Lippl, Abbott, Chung (2022), theorem 3.1; Lyu and Li (2020) for approximate KKT points.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.constant_(module.weight, 3.0)
    >>> found = stationarity(module, (torch.tensor([[1.0], [-2.0]]),), [1, -1])
    >>> found.program.degree
    1.0
    """
    module = as_module(module)
    with evaluating(module) as (copied, _):
        subject = Subject.of(margins_of(copied, inputs, labels))
        return subject.measure(PARAMETER_NORMS["l2"])


def certify_network(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    *,
    alpha: ArrayLike | None = None,
    multipliers: bool = True,
) -> NetworkCertificate:
    r"""Bound how far a network of one hidden layer is from the limit, without solving the SVM.

    .. math:: \zeta_h = w_h W_h, \qquad
        \frac{\sum_n \lambda_n}{\max_h \|V_h(\lambda)\|} \;\le\; \text{optimum} \;\le\;
        \frac{\sum_h \|\zeta_h\|}{\min_n y_n f(x_n)}

    The network gives the upper bound, its multipliers the lower one; both come from `certify`. A
    readout bias is left out, as it is in `Network.coef`.

    Parameters
    ----------
    network : Network
        One hidden layer.
    X : array_like of shape (N, D)
        Training inputs.
    y : array_like of shape (N,)
        Labels, -1 or +1; or 0 .. K - 1, of a network with an output for each class.
    alpha : array_like of shape (N,) or (N, K), optional
        Dual variables of the network's margin problem, of `solve` say; they count where their
        lower bound is above that of the multipliers.
    multipliers : bool
        Find the network's multipliers, which takes long with many more than 2,000 samples.

    Returns
    -------
    NetworkCertificate

    Raises
    ------
    TypeError
        A classifier, or a module that is none of this package's networks; ``multipliers`` that is
        no bool.
    ValueError
        More than one hidden layer; data that do not fit.

    Notes
    -----
    Lippl, Abbott, Chung (2022), theorem 3.1 and eq. (18): at a KKT point the multipliers lambda
    of the network are dual variables of its margin problem.

    Examples
    --------
    >>> from implicit_bias import GLNClassifier, certify_network
    >>> from implicit_bias.datasets import make_toy
    >>> blobs = make_toy("blobs", 40)
    >>> model = GLNClassifier(3, steps=500, random_state=0).fit(blobs.X, blobs.y)
    >>> found = certify_network(model.network_, blobs.X, blobs.y)
    >>> bounds = found.certificate
    >>> print(0 < bounds.lower < bounds.upper, found.dead.tolist())
    True []
    """
    if isinstance(network, nn.Module):
        network = cast(Network, as_module(network))
    if not isinstance(network, Network):
        raise TypeError(
            f"certify_network takes a network of this package, not a {type(network).__name__}: of "
            "a classifier pass classifier.network_; for another torch module use stationarity"
        )
    check_flag(multipliers, "multipliers")
    # The convex program of the module's head: the gates of the network as they are now, with its
    # readout and hidden weights multiplied to coefficients zeta_h = w_h W_h.
    problem = network.architecture().problem(X, y, classes=network.classes)
    coef = network.coef()
    units = network.unit_groups()
    # Without multipliers (not asked for, or not to be had) there is the bound by alpha alone.
    dual_norms = np.full(len(units), np.nan)
    found = None
    by_multipliers = None
    obstacle = ""
    if multipliers:
        try:
            found = stationarity(network, network.prepare(X), problem.y)
        # A readout bias, or a sample that is not classified yet: the upper bound and that by alpha
        # hold all the same.
        except (HomogeneityError, SeparationError) as error:
            obstacle = str(error)
        else:
            # At a KKT point the multipliers are dual variables, with no factor between them.
            weights = problem.constraints.alpha(found.weights)
            dual_norms = problem.dual_norms(weights)[units]
            by_multipliers = certify(problem, coef, weights)
    return NetworkCertificate(
        problem=problem,
        given=certify(problem, coef, alpha),
        by_multipliers=by_multipliers,
        stationarity=found,
        obstacle=obstacle,
        unit_norms=problem.group_norms(coef)[units],
        dual_norms=dual_norms,
        balance=balance(network),
    )


def kkt_measure(X: ArrayLike, y: ArrayLike) -> Callable[[Network], dict[str, float]]:
    """Return a measure for `train_to_limit`: `residual` and `slackness` on X (N, D), y (N,).

    Both are nan as long as the network does not separate the samples. A network that is not
    homogeneous is refused, at step 0.
    """

    def measure(network: Network) -> dict[str, float]:
        try:
            found = stationarity(network, network.prepare(X), y)
        except SeparationError:
            return {"residual": math.nan, "slackness": math.nan}
        return {"residual": found.residual, "slackness": found.slackness}

    return measure


def layer_norms(network: Network) -> Iterator[tuple[Array, Array]]:
    """Norms (H_l,) of the weights into each unit (of all its contexts), and out of it.

    Yields
    ------
    inward, outward : ndarray of shape (H_l,)
        Or (K H_l,), one network a class, network by network. Of one hidden layer after the other;
        their product is the units' norm.
    """
    for layer, following in pairwise([*network.hidden_weights, network.readout]):
        # Row-major: the rows of a network lie together.
        by_network = double(following).reshape(network.n_networks, -1, following.shape[1])
        outward = by_network.norm(dim=1).flatten()
        # Row-major: the C weight vectors of a unit lie together.
        by_unit = double(layer).reshape(len(outward), -1)
        inward = by_unit.norm(dim=1)
        yield inward.cpu().numpy(), outward.cpu().numpy()


def balance(network: Network) -> float:
    """Largest deviation from ||w_h|| = ||W_h||, eq. (18), over the active units of any layer.

    Let a unit have the norm a of the weights into it (of all its contexts) and the norm b of those
    out of it. Its deviation is |a - b| / max(a, b), in [0, 1], and tends to 0 in the limit. A unit
    is active if its product a b is at least 1 % of the largest one in its layer.
    """
    # A unit that is not active may have any balance: it does not count.
    largest = 0.0
    for inward, outward in layer_norms(network):
        active = active_units(inward * outward)
        a = inward[active]
        b = outward[active]
        if len(a):
            largest = max(largest, float((np.abs(a - b) / np.maximum(a, b)).max()))
    return largest


def active_units(norms: Array) -> NDArray[np.bool_]:
    """Which units have at least 1 % of the largest norm, of the norms (H,) of all."""
    # Where all norms are 0, each one is 1 % of the largest.
    active: NDArray[np.bool_] = (norms > 0) & (norms >= 0.01 * norms.max())
    return active
