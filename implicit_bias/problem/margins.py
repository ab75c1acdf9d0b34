r"""Margins of outputs, of two classes or of many.

=======  ========  ================================================================================
symbol   shape     meaning
=======  ========  ================================================================================
f        (N,)      outputs for two classes, whose labels y are -1 and +1
         (N, K)    outputs f_k for K classes, whose labels y are 0..K-1
q        (N,)      margins of two classes, q_n = y_n f(x_n)
         (N, K)    margins of K classes, q_nk = f_{y_n}(x_n) - f_k(x_n) for k != y_n; inf at k = y_n
s        (N,)      log-sum-exp margin, s_n = -log sum_{k != y_n} exp(-q_nk)
=======  ========  ================================================================================

The log-sum-exp margin makes a loss of many classes out of each loss l of one margin, l(s_n):

    logistic      log(1 + exp(-s_n)) = log(1 + sum_k exp(-q_nk)), the cross-entropy
    exponential   exp(-s_n) = sum_k exp(-q_nk)

It is within log(K - 1) of the smallest margin, so that a loss that is exponential-like (Lyu and Li
2020) stays so. With two classes there is one margin, and s_n = q_n. That is y_n f(x_n) with
f = f_1 - f_0 and labels -1 and +1, of which class 1 is +1.

Source: Ravi et al. (2024), "The implicit bias of gradient descent on separable multiclass data",
for losses of the margins (permutation equivariant and relative-margin based).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def class_margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Margins q_nk = f_{y_n}(x_n) - f_k(x_n), infinity at k = y_n.

    Parameters
    ----------
    outputs : Tensor of shape (N, K)
        f_k(x_n).
    labels : Tensor of shape (N,)
        Classes 0..K-1, as int64.

    Returns
    -------
    Tensor of shape (N, K)

    Examples
    --------
    >>> class_margins(torch.tensor([[3.0, 1.0, 2.5]]), torch.tensor([0]))
    tensor([[   inf, 2.0000, 0.5000]])
    """
    of_label = labels[:, None]
    return (outputs.gather(1, of_label) - outputs).scatter(1, of_label, math.inf)


def logsumexp_margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Log-sum-exp margins s_n: the losses of `training.losses` are functions of them.

    Parameters
    ----------
    outputs : Tensor of shape (N,) or (N, K)
        f(x_n), or f_k(x_n).
    labels : Tensor of shape (N,)
        -1 and +1, or classes 0..K-1 as int64.

    Returns
    -------
    Tensor of shape (N,)
        y_n f(x_n), or -log sum_{k != y_n} exp(-q_nk); differentiable by autograd, and accurate for
        enormous margins of either sign.

    Examples
    --------
    >>> from implicit_bias.training.losses import LOSSES
    >>> outputs, labels = torch.tensor([[3.0, 1.0, 2.5], [0.0, 2.0, 1.0]]), torch.tensor([0, 2])
    >>> LOSSES["logistic"](logsumexp_margins(outputs, labels)).mean()
    tensor(0.9813)
    >>> torch.nn.functional.cross_entropy(outputs, labels)
    tensor(0.9813)
    """
    if outputs.ndim == 1:
        return labels * outputs
    return -torch.logsumexp(-class_margins(outputs, labels), dim=1)


def smallest_margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Smallest margin of each sample, shape (N,): y_n f(x_n), or f_{y_n}(x_n) - max of the others.

    Parameters
    ----------
    outputs, labels
        As in `logsumexp_margins`.
    """
    if outputs.ndim == 1:
        return labels * outputs
    return class_margins(outputs, labels).amin(dim=1)
