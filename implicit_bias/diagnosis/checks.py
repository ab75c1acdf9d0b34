"""Checks of a module before it is measured: what makes the numbers mean less, or what they are of.

What makes the question meaningless is an error, of `modules.subject` and `modules.homogeneity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import check_flag, pointing_to_the_page
from implicit_bias.diagnosis.findings import GRADIENT_DESCENTS, Code, Finding
from implicit_bias.modules.evaluate import evaluate, set_modes, values_of
from implicit_bias.modules.homogeneity import WATCHED, functions_used, of_degree_0
from implicit_bias.modules.optimizers import left_out
from implicit_bias.modules.subject import (
    Subject,
    margins_of,
    named,
    offering_leading,
    without_gradient,
)
from implicit_bias.norms.tensors import ParameterNorm


@dataclass(frozen=True)
class Checked:
    """A module that can be measured.

    Attributes
    ----------
    subject : Subject
        The module, without the parameters that do not count in the norm.
    excluded : tuple of str
        Their names.
    findings : tuple of Finding
        What makes the numbers mean less.
    """

    subject: Subject
    excluded: tuple[str, ...]
    findings: tuple[Finding, ...]


@pointing_to_the_page()
def check(
    module: nn.Module,
    inputs: object,
    labels: ArrayLike | Tensor,
    modes: Mapping[nn.Module, bool],
    optimizer: object,
    *,
    norms: Iterable[ParameterNorm],
    leading: bool,
) -> Checked:
    """Check a module with its samples, once, and leave out the parameters that do not count.

    Parameters
    ----------
    module : nn.Module
        In evaluation mode.
    inputs : Tensor, array_like or tuple of them
        Its arguments.
    labels : array_like of shape (N,)
        As in `diagnose`.
    modes : mapping from part to bool
        Which parts were in training mode.
    optimizer : object
        What trained it.
    norms : iterable of ParameterNorm
        Those that it is measured in.
    leading : bool
        Whether its leading part is measured.

    Raises
    ------
    HomogeneityError
        It is not homogeneous; the message says where ``leading`` may help.
    ValueError, SeparationError
        As `modules.subject.margins_of`.
    """
    check_flag(leading, "leading")
    not_held = left_out(module, optimizer)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    gradients = margins_of(module, inputs, labels, norms=norms)
    # What is measured in another way than it was trained.
    findings = list[Finding]()
    if mode_matters(module, gradients.inputs, modes):
        findings.append(Finding(Code.TRAINING_MODE))
    dropout = [name for name in dir(nn.functional) if "dropout" in name]
    dropping = list[str]()
    for parts in functions_used(gradients, dropout, trained=False).values():
        dropping += parts
    if dropping:
        findings.append(Finding(Code.DROPOUT, names=tuple(dropping)))
    hooked = [name for name, p in trained.items() if p._backward_hooks]
    if hooked:
        findings.append(Finding(Code.GRADIENT_HOOKS, names=tuple(hooked)))
    # What does not count in the norm.
    if not_held:
        findings.append(Finding(Code.NOT_IN_OPTIMIZER, names=not_held))
    constant = [name for name in without_gradient(gradients) if name not in not_held]
    if constant:
        findings.append(Finding(Code.NO_GRADIENT, names=tuple(constant)))
    excluded = (*not_held, *constant)
    with offering_leading():
        subject = Subject.of(gradients, gradients.shapes.keys() - excluded, leading=leading)
    return Checked(subject, excluded, tuple(findings))


def what_is_measured(subject: Subject, norm: ParameterNorm) -> Iterator[Finding]:
    """Say what a measurement of a module is about, where that is less than obvious."""
    gradients = subject.gradients
    still = set(of_degree_0(gradients))
    if subject.whole is not None:
        code = Code.LEADING_PART_WITHOUT_THEOREM
        if norm.name in GRADIENT_DESCENTS:
            code = Code.LEADING_PART
        about = {"degree": subject.degree, "norm": norm.name}
        yield Finding(code, subject.rest, details=about)
        wrong = subject.itself.wrong
        if len(wrong):
            samples = {"samples": named(wrong)}
            yield Finding(Code.MODULE_MISCLASSIFIES, float(len(wrong)), details=samples)
        # What vanishes from the leading part alone, as upper biases do, has no direction.
        still -= set(without_gradient(gradients))
    if still:
        in_order = tuple(name for name in gradients.shapes if name in still)
        yield Finding(Code.DEGREE_0, names=in_order)
    parameters = dict(gradients.module.named_parameters())
    for dtype in (torch.bfloat16, torch.float16):
        coarse = tuple(name for name in gradients.shapes if parameters[name].dtype == dtype)
        if coarse:
            stored = {"dtype": str(dtype).removeprefix("torch.")}
            yield Finding(Code.HALF_PRECISION, torch.finfo(dtype).eps, coarse, stored)


def mode_matters(
    module: nn.Module, inputs: tuple[Tensor, ...], modes: Mapping[nn.Module, bool]
) -> bool:
    """Whether a module's outputs in the modes it was in differ from those in evaluation mode.

    It is left in evaluation mode.
    """
    if not any(modes.values()):
        return False
    first = tuple(tensor[:WATCHED] for tensor in inputs)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # of which dropout draws
        evaluated = evaluate(module, values_of(module), first)
        set_modes(modes)
        try:
            return not torch.equal(evaluate(module, values_of(module), first), evaluated)
        except ValueError:  # torch has no batch statistics of a single sample
            return True
        finally:
            set_modes(dict.fromkeys(modes, False))
