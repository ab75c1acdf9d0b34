r"""Optimizers by name, each of another implicit bias (`OPTIMIZER_LIMITS`).

======  ===========================================================================================
name    step
======  ===========================================================================================
sgd     theta <- theta - s m,  m <- mu m + g (heavy ball)
sign    theta <- theta - s sign(m), with the same m
adam    torch.optim.Adam with its own betas (0.9, 0.999) and epsilon 1e-8
adamw   torch.optim.AdamW, decay 0.01
muon    torch.optim.Muon (torch 2.9 or newer) without decay: steps of about equal singular values, a
        layer at a time
======  ===========================================================================================

g is the gradient, s the step size, mu the momentum. Muon of torch multiplies the steps of a tall
matrix by sqrt(rows / columns), which would make the limit a *weighted* maximum over the layers.
Here that factor is undone, so that all layers count alike. The singular values of its steps are
within about 0.5 to 1.2 of the step size only (five Newton-Schulz steps in bfloat16).

Source: Bernstein et al. (2018), "signSGD", for sign descent with momentum (signum); Kingma and Ba
(2015); Loshchilov and Hutter (2019); Jordan et al. (2024), "Muon".
"""

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from implicit_bias.base.validation import check_number
from implicit_bias.training.configuration import TrainingConfig


class SignDescent(Optimizer):
    r"""Descent along the signs of the gradient, or of its moving average (signum).

    .. math:: \theta \leftarrow \theta - \eta \, \mathrm{sign}(m), \qquad m \leftarrow \mu m + g

    Steepest descent in the largest entry, so that its limit is the maximum margin under linf.

    Parameters
    ----------
    params : iterable of Tensor
        As of any optimizer.
    lr : float
        Step size: what each entry moves by.
    momentum : float
        mu of m <- mu m + g, whose sign is the step; in [0, 1).

    Notes
    -----
    Bernstein et al. (2018), "signSGD", for momentum; Gunasekar et al. (2018) for the limit.

    Examples
    --------
    >>> weights = nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = SignDescent([weights], lr=0.5)
    >>> (weights**2).sum().backward()
    >>> optimizer.step()
    >>> weights.tolist()
    [0.5, -1.5]
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.01, *, momentum: float = 0.0
    ) -> None:
        check_number(lr, "lr", "[0, inf)")
        check_number(momentum, "momentum", "[0, 1)")
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Do one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is None:
                    continue
                direction = weights.grad
                if group["momentum"]:  # m <- mu m + g, whose scale the sign leaves out
                    state = self.state[weights]
                    average = state.setdefault("average", torch.zeros_like(weights))
                    direction = average.mul_(group["momentum"]).add_(weights.grad)
                weights.sub_(group["lr"] * direction.sign())
        return loss


def build_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> Optimizer:
    """Make the optimizer that a configuration names.

    Parameters
    ----------
    parameters : iterable of Parameter
        What it trains.
    config : TrainingConfig
        ``optimizer``, ``learning_rate`` and ``momentum`` count.

    Raises
    ------
    ValueError
        Muon of parameters that are no matrices; torch's own error.
    ImportError
        Muon, which this torch does not have yet.
    """
    trained = list(parameters)
    if config.optimizer == "sgd":
        return SGD(trained, lr=config.learning_rate, momentum=config.momentum)
    if config.optimizer == "sign":
        return SignDescent(trained, lr=config.learning_rate, momentum=config.momentum)
    if config.optimizer == "adam":
        return Adam(trained, lr=config.learning_rate)
    if config.optimizer == "adamw":
        return AdamW(trained, lr=config.learning_rate)
    return _build_muon(trained, config)


def _build_muon(parameters: list[nn.Parameter], config: TrainingConfig) -> Optimizer:
    if not hasattr(torch.optim, "Muon"):
        raise ImportError(
            "the optimizer muon is torch.optim.Muon, which came with torch 2.9, and this is torch "
            f"{torch.__version__}: pip install 'torch>=2.9', or choose another optimizer"
        )
    groups = []
    for weights in parameters:
        # Undoes the factor by which torch lengthens the steps of tall matrices.
        factor = math.sqrt(max(1.0, weights.shape[0] / weights[0].numel()))
        groups.append({"params": [weights], "lr": config.learning_rate / factor})
    return cast(Optimizer, torch.optim.Muon(groups, momentum=config.momentum, weight_decay=0.0))
