"""Checks of a module before it is measured: findings that say how far the numbers can be trusted.

Where the question has no answer, `modules.subject` or `modules.homogeneity` raises an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import check_flag, pointing_to_the_page
from implicit_bias.base.wording import listed_samples
from implicit_bias.diagnosis.findings import GRADIENT_DESCENTS, Code, Finding
from implicit_bias.modules.optimizers import left_out
from implicit_bias.modules.partial_degrees import scale_invariant
from implicit_bias.modules.subject import (
    Subject,
    margins_of,
    offering_leading,
)
from implicit_bias.norms.tensors import ParameterNorm


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
    deadline: Deadline = NEVER,
) -> tuple[Subject, list[Finding]]:
    """Check a module with its samples, once, and leave out the parameters that do not count.

    Parameters
    ----------
    module : nn.Module
        In evaluation mode.
    inputs : Tensor, array_like or tuple of them
        Its arguments; of a loader as `modules.loading.collected` returns them.
    labels : array_like of shape (N,)
        As in `diagnose`.
    modes : mapping from part to bool
        Which parts were in training mode.
    optimizer : object
        What trained it.
    norms : iterable of ParameterNorm
        Those that it is measured in.
    leading : bool
        Whether its leading-order part is measured.
    deadline : Deadline
        When to end the search for that.

    Returns
    -------
    Subject
        The module, without the parameters that do not count in the norm.
    list of Finding
        What makes the numbers mean less.

    Raises
    ------
    HomogeneityError
        It is not homogeneous; the message says where ``leading`` may help.
    ValueError, SeparationError
        As `modules.subject.margins_of` and `Subject.of`.
    TimeoutError
        The deadline has passed before the degree of the leading-order part was known.
    """
    check_flag(leading, "leading")
    # --- parts that compute something else in training than in the measurement
    findings = list[Finding]()
    dropping = list[str]()
    training = list[str]()
    for name, part in module.named_modules():
        drops = _dropout_rate(part) > 0.0
        if drops:
            dropping.append(name)
        # Both differ between the two modes: dropout draws, and batch normalization reads its batch.
        if modes.get(part, False) and (drops or isinstance(part, _BatchNorm)):
            training.append(name)
    if training:
        findings.append(Finding(Code.TRAINING_MODE, names=tuple(training)))
    if dropping:
        findings.append(Finding(Code.DROPOUT, names=tuple(dropping)))
    # --- its margins on the samples
    function = margins_of(module, inputs, labels, norms=norms)
    # --- parameters that are not trained, and do not count in the norm
    not_held = left_out(module, optimizer)
    if not_held:
        findings.append(Finding(Code.NOT_IN_OPTIMIZER, names=not_held))
    with offering_leading():
        subject = Subject.of(function, excluded=not_held, leading=leading, deadline=deadline)
    constant = list[str]()
    for name in function.shapes:
        # What no optimizer holds has been listed already.
        if name not in subject.function.shapes and name not in not_held:
            constant.append(name)
    if constant:
        findings.append(Finding(Code.NO_GRADIENT, names=tuple(constant)))
    if subject.not_checked:
        findings.append(Finding(Code.JUMPS_NOT_CHECKED, names=subject.not_checked))
    return subject, findings


def _dropout_rate(part: nn.Module) -> float:
    """Fraction of the activations that a part drops in training; 0 of parts that drop none."""
    if isinstance(part, _DropoutNd):
        return part.p
    if isinstance(part, (nn.MultiheadAttention, nn.RNNBase)):
        return part.dropout
    return 0.0


def what_is_measured(subject: Subject, norm: ParameterNorm) -> Iterator[Finding]:
    """Say what a measurement of a module is about, where that is less than obvious."""
    function = subject.function
    # One sample alone is an example on purpose.
    if len(function.labels) > 1 and (function.labels == function.labels[0]).all():
        yield Finding(Code.ONE_CLASS, float(function.labels[0]))
    if subject.whole is not None:
        code = Code.LEADING_PART_WITHOUT_THEOREM
        if norm.name in GRADIENT_DESCENTS:
            code = Code.LEADING_PART
        about = {"degree": subject.degree, "norm": norm.name}
        yield Finding(code, subject.rest, details=about)
        wrong = subject.module_itself.wrong
        if len(wrong):
            samples = {"samples": listed_samples(wrong)}
            yield Finding(Code.MODULE_MISCLASSIFIES, float(len(wrong)), details=samples)
    names = tuple(scale_invariant(function))
    if names:
        # Two findings: what it means for the numbers, and that no theorem covers it.
        yield Finding(Code.DEGREE_0, names=names)
        yield Finding(Code.DEGREE_0_WITHOUT_THEOREM, names=names)
