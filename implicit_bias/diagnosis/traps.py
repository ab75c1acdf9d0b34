"""Traps that can be mended: the module is measured all the same, and the user is warned.

Those that make the question meaningless are errors: of `modules.subject` and `modules.homogeneity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import check_flag, pointing_to_the_page
from implicit_bias.base.wording import percent
from implicit_bias.modules.evaluate import evaluate, set_modes, values_of
from implicit_bias.modules.homogeneity import WATCHED, functions_used, listed, of_degree_0
from implicit_bias.modules.optimizers import left_out
from implicit_bias.modules.subject import (
    Subject,
    margins_of,
    named,
    offering_leading,
    without_gradient,
)
from implicit_bias.norms.tensors import ParameterNorm

# Functions that drop units out.
DROPOUT = tuple(name for name in dir(nn.functional) if "dropout" in name)


class DiagnosisWarning(UserWarning):
    """A number that `diagnose` reports means less than it seems.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", DiagnosisWarning)  # where none is to pass unseen
    >>> warnings.simplefilter("default", DiagnosisWarning)
    """


@pointing_to_the_page()
def checked(
    module: nn.Module,
    inputs: object,
    labels: ArrayLike | Tensor,
    modes: Mapping[nn.Module, bool],
    optimizer: object,
    *,
    norms: Iterable[ParameterNorm],
    leading: bool,
) -> tuple[Subject, tuple[str, ...], list[str]]:
    """Return the subject without the parameters that do not count, their names, and warnings.

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
    warnings, unknown = list[str](), left_out(module, optimizer)
    trained = {name for name, own in module.named_parameters() if own.requires_grad}
    with offering_leading():
        gradients = margins_of(
            *(module, inputs, labels),
            norms=norms,
            homogeneous=None if leading else trained.difference(unknown),
        )
    if mode_matters(module, gradients.inputs, modes):
        warnings.append(
            "the module is in training mode, where its outputs differ from those in evaluation "
            "mode; it was measured in the latter and left as it was: call module.eval() first"
        )
    used = functions_used(gradients, DROPOUT, trained=False)
    dropped = sum(used.values(), start=list[str]())
    if dropped:
        warnings.append(
            f"dropout in {listed(dropped)} is off here, while training with it minimises another "
            "loss: leave it out of a training whose limit is asked for"
        )
    hooked = [
        n for n, own in module.named_parameters() if own.requires_grad and own._backward_hooks
    ]
    if hooked:
        warnings.append(
            f"hooks see the gradient of {listed(hooked)} in training (register_hook), and are not "
            "called here: entries that they mask were measured as if they were trained"
        )
    excluded = dict.fromkeys(
        unknown,
        "is not among those of the optimizer, so it does not count in the norm: freeze it with "
        "requires_grad_(False), or give it to the optimizer",
    )
    excluded |= dict.fromkeys(
        without_gradient(gradients),
        "gets no gradient from any sample (a gate's own weights, or units that are all dead), so "
        "it is not trained and does not count in the norm: freeze it with requires_grad_(False), "
        "or make it a buffer",
    )
    warnings += [f"parameter {name!r} {why}" for name, why in excluded.items()]
    counting = gradients.shapes.keys() - excluded.keys()
    with offering_leading():
        subject = Subject.of(gradients, counting, leading=leading)
    return subject, tuple(excluded), warnings


def notes_on(subject: Subject) -> list[str]:
    """Say what a measurement of a module is about, where that is less than obvious."""
    gradients, notes = subject.gradients, list[str]()
    if subject.whole is not None:
        notes.append(
            f"measured is the leading part, of degree {subject.degree:.4g}, to which the module "
            "tends as its trained parameters grow; on these samples the rest still is "
            f"{percent(subject.rest, space=' ')} of it"
        )
        wrong = subject.itself.wrong
        if len(wrong):
            notes.append(
                f"the module misclassifies {len(wrong)} samples (samples {named(wrong)}), which "
                "its leading part does not: train until all are right"
            )
    vanishing = without_gradient(gradients)
    still = [name for name in of_degree_0(gradients) if name not in vanishing]
    if still:
        notes.append(
            f"the size of {listed(still)} changes no output (degree 0, the direction of weight "
            "normalisation, say): at a KKT point in l2 it is 0, and in norms that are maxima it is "
            "free up to the maximum"
        )
    parameters = dict(gradients.module.named_parameters())
    for dtype in (torch.bfloat16, torch.float16):
        coarse = [name for name in gradients.shapes if parameters[name].dtype == dtype]
        if coarse:
            notes.append(
                f"{listed(coarse)} {'is' if len(coarse) == 1 else 'are'} stored in "
                f"{str(dtype).removeprefix('torch.')}, to {percent(torch.finfo(dtype).eps)} of "
                "each entry: what is measured are these values, in float64, and a gap much smaller "
                "than that can be out of reach of the training"
            )
    return notes


def mode_matters(
    module: nn.Module, inputs: tuple[Tensor, ...], modes: Mapping[nn.Module, bool]
) -> bool:
    """Whether a module's outputs in the modes it was in differ from those in evaluation mode.

    It is left in evaluation mode.
    """
    if not any(modes.values()):
        return False

    def outputs() -> Tensor:
        return evaluate(module, values_of(module), tuple(t[:WATCHED] for t in inputs))

    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # of which dropout draws
        evaluated = outputs()
        set_modes(modes)
        try:
            return not torch.equal(outputs(), evaluated)
        except ValueError:  # batch statistics of a single sample
            return True
        finally:
            set_modes(dict.fromkeys(modes, False))
