"""Margins of many classes: brute force, exact in the tails, binary where there are two classes."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from implicit_bias.problem.margins import class_margins, logsumexp_margins, smallest_margins
from implicit_bias.training.losses import LOSSES, as_loss

OUTPUTS = torch.tensor(np.random.default_rng(0).normal(size=(7, 4)) * 3.0)
LABELS = torch.tensor([0, 3, 1, 2, 2, 0, 1])


def test_margins_by_brute_force() -> None:
    found = class_margins(OUTPUTS, LABELS)
    for n, y in enumerate(LABELS.tolist()):
        others = [k for k in range(4) if k != y]
        q = [(OUTPUTS[n, y] - OUTPUTS[n, k]).item() for k in others]
        assert found[n, others].tolist() == q
        assert found[n, y].item() == np.inf
        assert smallest_margins(OUTPUTS, LABELS)[n].item() == min(q)
        soft = -np.log(np.exp(-np.array(q)).sum())
        assert logsumexp_margins(OUTPUTS, LABELS)[n].item() == pytest.approx(soft, rel=1e-13)


def test_losses_of_many_classes() -> None:
    """The logistic one is torch's cross-entropy, with its gradient; both from their definitions."""
    q = class_margins(OUTPUTS, LABELS)
    sums = torch.exp(-q).sum(dim=1)  # exp(-inf) = 0 at the class itself
    margins = logsumexp_margins(OUTPUTS, LABELS)
    torch.testing.assert_close(LOSSES["exponential"](margins), sums)
    torch.testing.assert_close(LOSSES["logistic"](margins), torch.log1p(sums))
    assert as_loss("cross-entropy") is LOSSES["logistic"]
    f = OUTPUTS.clone().requires_grad_()
    (found,) = torch.autograd.grad(LOSSES["logistic"](logsumexp_margins(f, LABELS)).mean(), f)
    (expected,) = torch.autograd.grad(cross_entropy(f, LABELS), f)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1e-3, 50.0])
def test_log_loss_of_many_classes_with_many_digits(loss: str, scale: float) -> None:
    outputs = scale * OUTPUTS
    found = LOSSES[loss].log_loss(logsumexp_margins(outputs, LABELS)).tolist()
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 400, 10**9, -(10**9)
        for n in (0, 1, 2):
            f = [Decimal(value) for value in outputs[n].tolist()]
            y = int(LABELS[n])
            total = sum((f[k] - f[y]).exp() for k in range(4) if k != y)
            exact = Decimal(1 + total).ln().ln() if loss == "logistic" else Decimal(total).ln()
            assert found[n] == pytest.approx(float(exact), rel=1e-13, abs=1e-13)


def test_enormous_margins_keep_a_gradient() -> None:
    for scale in (1e6, 1e300):
        f = (scale * OUTPUTS).requires_grad_()
        log_loss = LOSSES["logistic"].log_loss(logsumexp_margins(f, LABELS))
        (gradient,) = torch.autograd.grad(log_loss.sum(), f)
        assert torch.isfinite(log_loss).all()
        assert torch.isfinite(gradient).all()
        right = smallest_margins(f, LABELS) > 0
        assert gradient[right].abs().sum(dim=1).tolist() == [2.0] * int(right.sum())


def test_two_classes_are_binary_to_the_digit() -> None:
    """Of f = f_1 - f_0 and labels -1 and +1, gradients included."""
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    signs = (2 * labels - 1).double()
    outputs = OUTPUTS[:, :2]
    f = outputs[:, 1] - outputs[:, 0]
    for margins in (logsumexp_margins, smallest_margins):
        assert torch.equal(margins(outputs, labels), margins(f, signs))
    assert torch.equal(logsumexp_margins(f, signs), signs * f)
