"""What is measured: a module with samples, checked once, and measured in one way.

`diagnose`, `stationarity`, `certify_network`, `Recorder` and `train_to_limit` all do these steps:

1. `margins_of` checks the module, its inputs and labels, and makes them margins with gradients.
2. `Subject.of` leaves out the parameters that are not trained, and measures the degree.
3. `Subject.at_margin_1` formulates the tangent problem of a norm at the module scaled to unit
   margin (`tangent_program`), and `Subject.measure` finds its best multipliers (`multipliers`),
   whose `gap` is how far the module is from where training can end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array, as_finite, pointing_to_the_page
from implicit_bias.base.wording import listed_parts, listed_samples
from implicit_bias.modules import (
    evaluate,
    homogeneity,
    multipliers,
    partial_degrees,
)
from implicit_bias.modules.leading import leading_part, margins_in_the_limit
from implicit_bias.modules.loading import collected
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.tangent_program import Multipliers, TangentProgram
from implicit_bias.norms.tensors import ParameterNorm, check_parts

NOTHING_TRAINED = (
    "no parameter gets a gradient, so nothing is trained: is the output computed from the "
    "parameters in each forward pass, without detach() and without no_grad()?"
)

# Of so many samples the first few are checked before the others. Of fewer, all are as quick.
MANY_SAMPLES = 512
FIRST_SAMPLES = 32


class SeparationError(ValueError):
    """A module with a margin q_n(theta) <= 0: it does not separate its samples.

    q_n(c theta) = c^L q_n(theta) has the same sign for every c > 0, so no scaling of the module
    makes its smallest margin positive. A KKT point is defined at unit margin only. The margin of a
    sample is 0 or less where the module misclassifies it, or gives it no class.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import SeparationError, diagnose
    >>> module = torch.nn.Linear(1, 1, bias=False).eval()
    >>> try:
    ...     diagnose(module, torch.ones(2, 1), [1, -1])
    ... except SeparationError:
    ...     print("train until all samples are right")
    train until all samples are right
    """


@pointing_to_the_page()
def margins_of(
    module: nn.Module,
    inputs: object,
    labels: ArrayLike | Tensor | None,
    *,
    norms: Iterable[ParameterNorm] = (),
) -> Margins:
    """Check a module, in the modes that it is in, with its samples: the one check there is.

    Parameters
    ----------
    module : nn.Module
        As `modules.as_module` returns it. It is left as it is, but for torch's random numbers.
    inputs : Tensor, array_like or tuple of them, or a loader
        Its arguments, each with the samples as first axis; or batches of them with labels, see
        `modules.loading`.
    labels : array_like of shape (N,) or (N, 1)
        -1 and +1 for outputs of shape (N,) or (N, 1); classes 0 .. K - 1 for outputs (N, K). None
        of a loader.
    norms : iterable of ParameterNorm
        Those that it is measured in.

    Raises
    ------
    ValueError
        Inputs, outputs or labels that do not fit; outputs that are random, depend on the other
        samples of a batch; no parameter to train; a norm that names parts that the module lacks.
    """
    inputs, labels = collected(inputs, labels)
    arguments = evaluate.as_arguments(inputs, module)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    # An argument without axes has no samples, which `as_inputs` refuses.
    n_samples = 0
    if arguments[0].ndim:
        n_samples = len(arguments[0])
    tensors = evaluate.as_inputs(arguments, n_samples, device)
    # One output a sample takes two labels, several ones take classes.
    labels = evaluate.labels_as_array(labels)
    classes = _classes(evaluate.check_outputs(module, tensors), labels)
    function = Margins(module, tensors, labels, classes)
    # A norm that names other parts than the module has would fail within a search, minutes later.
    for norm in norms:
        check_parts(norm, function.shapes)
    return function


def _check_finite(function: Margins) -> None:
    """Refuse outputs that are not finite, by their cause."""
    if np.isfinite(function.outputs(function.theta)).all():
        return
    # The cause is in the inputs, in the weights, or in what the module makes of them.
    for tensor in function.inputs:
        as_finite(cast(Any, tensor), "an input of the module", tensor.ndim)
    weights = function.parameters(function.theta).items()
    broken = [name for name, weight in weights if not weight.isfinite().all()]
    if broken:
        raise ValueError(
            f"weights are NaN or infinite in {listed_parts(broken)}, so the training "
            "diverged: go back to a state before that, and train at a smaller rate, with an "
            "eps of at least 1e-19 in single precision and in Muon"
        )
    raise ValueError(
        "the module's outputs contain NaN or infinity, though its trained weights are "
        "finite: start from smaller weights"
    )


@contextmanager
def offering_leading(how: str = "pass leading=True") -> Iterator[None]:
    """Let the refusal of a module mention ``leading=True``, where it may help.

    Whether there is a leading-order part is not looked for, which takes hundreds of forward passes.
    ``how`` says how to ask for it.
    """
    try:
        yield
    except homogeneity.HomogeneityError as error:
        if not error.leads:
            raise
        raise homogeneity.HomogeneityError(
            f"{error}. Or {how}, for the part that leads where the parameters are "
            "large, as they are in the limit",
            leads=True,
        ) from error


def _classes(outputs: Tensor, labels: ArrayLike) -> int | None:
    """K of outputs (n, K), None of outputs (n,), if the labels are of that kind."""
    classes = outputs.shape[1] if outputs.ndim == 2 else None
    if classes is None and set(np.unique(labels).tolist()) == {0, 1}:
        raise ValueError(
            "labels are 0 and 1, but the module has one output a sample: recode them as -1 and +1 "
            "(2 * labels - 1)"
        )
    return classes


def at_nonzero_outputs(function: Margins) -> Margins:
    """Return the margins as they are or, if all of them are 0, at random parameters.

    A linear module with weights 0 shows neither its degree nor which parameters get a gradient.
    """
    if function.margins(function.theta).any():
        return function
    found = function.restricted(function.shapes, evaluate.drawn_like(function.theta))
    if not found.margins(found.theta).any():
        raise SeparationError(
            f"the module gives 0 for the first {len(function.labels)} samples, with the "
            "parameters that it has and with random ones: are the inputs all 0, or the units all "
            "off? Leave out samples that are 0, as no training gives them a margin"
        )
    return found


def without_gradient(function: Margins) -> tuple[str, ...]:
    """Names of the parameters, not 0, in which a random combination of margins has no gradient."""
    function = at_nonzero_outputs(function)
    theta = function.parameters(function.theta)
    # A parameter that starts at 0 (a last layer) hides the gradients of those before it. These are
    # trained as soon as it is not 0, so it is drawn.
    shown = dict[str, Tensor]()
    for name, part in theta.items():
        shown[name] = part if part.any() else evaluate.drawn_like(part)
    v = partial_degrees.gradient_of_combination(function, function.flat(shown))
    # An unused parameter of value 0 adds nothing to ||theta||: it may count or not.
    return tuple(name for name, part in v.items() if theta[name].any() and not part.any())


@dataclass(frozen=True, eq=False)
class Subject:
    """A module with samples that it can be measured on, at the parameters that it has now.

    Attributes
    ----------
    function : Margins
        Its margins as a function of the parameters that count; with ``leading`` those of its
        leading-order part.
    degree : float
        L.
    whole : Margins or None
        With ``leading`` the margins of the module itself; else None.
    not_checked : tuple of str
        Parameters in which there was no time to look for jumps of the leading-order part.
    """

    function: Margins
    degree: float
    whole: Margins | None = None
    not_checked: tuple[str, ...] = ()

    @classmethod
    @pointing_to_the_page()
    def of(
        cls,
        function: Margins,
        names: Collection[str] | None = None,
        degree: float | None = None,
        *,
        excluded: Collection[str] = (),
        leading: bool = False,
        deadline: Deadline = NEVER,
    ) -> Subject:
        """Leave out parameters that do not count, and measure the degree in the others.

        Parameters
        ----------
        function : Margins
            Of all parameters that require a gradient.
        names : collection of str, optional
            The parameters that count, by default those that get a gradient from a sample and are
            not ``excluded``.
        degree : float, optional
            L; checked where it is given.
        excluded : collection of str
            Parameters that do not count, such as those that no optimizer holds.
        leading : bool
            Whether to measure the leading-order part of the module; see `modules.leading`.
        deadline : Deadline
            When to end the search for the leading-order part.

        Raises
        ------
        HomogeneityError
            The module is not homogeneous; the message names the part that breaks it, with a cure.
        ValueError
            No parameter gets a gradient; outputs that are not finite, or 0 whatever the parameters
            are; no second derivatives in torch.
        TimeoutError
            The deadline has passed before the degree of the leading-order part was known.
        """
        measured = partial(
            cls._measured,
            names=names,
            degree=degree,
            excluded=excluded,
            leading=leading,
            deadline=deadline,
        )
        if names is not None or len(function.labels) < MANY_SAMPLES:
            return measured(function)
        # A module that is not homogeneous on its first samples is not so on all of them, either.
        # It is refused before it gets these.
        try:
            first = measured(function.of_samples(np.arange(FIRST_SAMPLES)))
        except homogeneity.HomogeneityError:
            raise
        except ValueError:
            # All units may be off on these samples, say, and not on others.
            return measured(function)
        if first.function.scaled[0] == 1.0:
            return measured(function)
        # The first samples show jumps as well as all of them.
        found = measured(function, jumps=False)
        return replace(found, not_checked=first.not_checked)

    @classmethod
    def _measured(
        cls,
        function: Margins,
        *,
        names: Collection[str] | None,
        degree: float | None,
        excluded: Collection[str],
        leading: bool,
        deadline: Deadline,
        jumps: bool = True,
    ) -> Subject:
        """Do what `of` does on the samples of the margins, all at once."""
        _check_finite(function)
        if names is None:
            # A parameter without a gradient is never moved. As a variable it would add its size to
            # ||theta||, and a gap that no training can close.
            names = function.shapes.keys() - {*without_gradient(function), *excluded}
        if not names:
            raise ValueError(NOTHING_TRAINED)
        function = function.restricted(names, function.theta)
        if leading:
            found = leading_part(function, degree, deadline=deadline, jumps=jumps)
            return cls(found.margins, found.degree, whole=function, not_checked=found.not_checked)
        return cls(function, homogeneity.degree_of(at_nonzero_outputs(function), degree))

    @classmethod
    def known(cls, function: Margins, degree: float, *, leading: bool) -> Subject:
        """Make a subject of margins and a degree that were checked before, without a check.

        All parameters of ``function`` count.
        """
        if not leading:
            return cls(function, degree)
        return cls(leading_part(function, degree).margins, degree, whole=function)

    def reread(self, module: nn.Module) -> Subject:
        """Return the same module, or a copy of it, with the parameters that it has by now."""
        # The leading-order part was found at a scale that may not do for the new parameters: the
        # module itself is read, and the part is found anew.
        leading = self.whole is not None
        return self.known(self.module_itself.function.reread(module), self.degree, leading=leading)

    @cached_property
    def rest(self) -> float:
        """Largest |f - f_L| over the largest |f_L|, f_L the leading-order part; 0 without one."""
        if self.whole is None:
            return 0.0
        leading = self.function.outputs(self.function.theta)
        rest = self.whole.outputs(self.whole.theta) - leading
        size = np.abs(leading).max()
        if not size > 0:
            return math.inf
        return float(np.abs(rest).max() / size)

    @cached_property
    def margins(self) -> Array:
        """Margins (n,) of all pairs."""
        if self.whole is None:
            return self.function.margins(self.function.theta)
        return margins_in_the_limit(self.function)

    @cached_property
    def linear(self) -> bool:
        """Whether the margins are linear in all parameters, wherever these are."""
        if self.degree > 1.0 + partial_degrees.HOMOGENEITY_TOLERANCE:
            return False
        # Degree 1 alone does not do: max(<w, x>, 0) has it, too. At random a and b
        # q(a + b) = q(a) + q(b), and q(-a) = -q(a), which shows a kink at 0 whatever b is.
        margins = self.function.margins
        a = evaluate.drawn_like(self.function.theta, 0)
        b = evaluate.drawn_like(self.function.theta, 1)
        at_a = margins(a)
        at_b = margins(b)
        missed = np.abs(np.concatenate([margins(a + b) - at_a - at_b, margins(-a) + at_a]))
        size = np.abs(np.concatenate([at_a, at_b])).max()
        return bool(missed.max() <= partial_degrees.HOMOGENEITY_TOLERANCE * size)

    @property
    def min_margin(self) -> float:
        """The smallest margin."""
        return float(self.margins.min())

    @property
    def separates(self) -> bool:
        """Whether all margins are positive, and finite."""
        return self.min_margin > 0 and bool(np.isfinite(self.margins).all())

    @property
    def error(self) -> float:
        """Fraction of misclassified samples; nan where an output is not finite."""
        if not math.isfinite(self.min_margin):
            return math.nan
        return len(self.wrong) / len(self.function.labels)

    @property
    def module_itself(self) -> Subject:
        """The module itself; where no leading-order part is measured, that is this subject."""
        return self if self.whole is None else Subject(self.whole, self.degree)

    @property
    def wrong(self) -> NDArray[np.int64]:
        """Samples that have a margin that is not positive."""
        # Not `<= 0`, which would count a margin that is NaN as right.
        return np.unique(self.function.pairs.samples[~(self.margins > 0)])

    def normalised_margin(self, norm: ParameterNorm) -> float:
        """Smallest margin over ||theta||^L; nan where that is not known."""
        size = norm.value(self.function.parameters(self.function.theta))
        if not (size > 0 and math.isfinite(self.min_margin)):
            return math.nan
        # The power L is taken last: that of ||theta|| alone may leave float64 where the ratio does
        # not.
        with np.errstate(over="ignore"):
            root = np.float64(abs(self.min_margin)) ** (1.0 / self.degree) / size
            return math.copysign(root**self.degree, self.min_margin)

    def at_margin_1(self, norm: ParameterNorm) -> TangentProgram:
        """Scale the module to unit margin, and formulate its tangent problem in a norm.

        Raises
        ------
        SeparationError
            A margin is not positive.
        """
        smallest = self.min_margin
        if not self.separates:
            raise SeparationError(self._why_not_separating())
        # q(theta / c) = q(theta) / c^L is 1 at the smallest margin for c = q^(1 / L).
        scale = float(np.float64(smallest) ** (1.0 / self.degree))
        if not 0.0 < scale < math.inf:
            raise homogeneity.HomogeneityError(
                f"the module is homogeneous of degree {self.degree:.4g}: scaled to unit margin "
                "its parameters leave the range of float64",
                "use layers whose outputs grow with the parameters, not with a small power of them",
            )
        theta = self.function.theta / scale
        # Divided, not evaluated at theta / c: the smallest one is exactly 1.
        margins = self.margins / smallest
        return TangentProgram(self.function, theta, self.degree, norm, margins, scale)

    def _why_not_separating(self) -> str:
        """Say which margins are not positive, and what to do."""
        # The narrowest cause comes first: outputs of 0, then samples that only the leading-order
        # part gets wrong, then training that has not separated the samples yet.
        if not self.margins.any():
            return (
                "all margins are 0, at any scale of the module, so it has no KKT gap: are all its "
                "units dead, its last weights 0, or its leading-order part 0 (a low-rank "
                "update before its first step)? Continue the training, or start from other weights"
            )
        wrong = self.wrong
        n_samples = len(self.function.labels)
        only = np.setdiff1d(wrong, self.module_itself.wrong)
        if len(only):
            return (
                f"the leading-order part of the module misclassifies {len(only)} of {n_samples} "
                f"samples (samples {listed_samples(only)}) that the module itself classifies "
                "correctly, and it decides in the limit: train further, as by "
                "train_to_limit(..., leading=True)"
            )
        return (
            f"{len(wrong)} of {n_samples} samples are misclassified (samples "
            f"{listed_samples(wrong)}; smallest margin {self.min_margin:.3g}). Their margins are "
            "not positive at any scale of the module, so it has no KKT gap: train until no sample "
            "is misclassified, or leave these samples out"
        )

    def measure(self, norm: ParameterNorm, deadline: Deadline = NEVER) -> Multipliers:
        """Find the best multipliers of the module at unit margin; see `best_multipliers`."""
        return multipliers.best_multipliers(self.at_margin_1(norm), deadline=deadline)

    def gap(
        self,
        norm: ParameterNorm,
        deadline: Deadline,
        seconds: float = multipliers.MultiplierSearch.seconds,
    ) -> float:
        """Relative KKT gap; nan where a margin is not positive, or not finite."""
        if not self.separates:
            return math.nan
        program = self.at_margin_1(norm)
        return multipliers.best_multipliers(program, seconds=seconds, deadline=deadline).gap
