"""What a diagnosis finds: a code, a number, and what to do; the sentences are in words.toml.

Whatever measures something returns a `Finding`. Nothing but this file knows how a finding reads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from implicit_bias.base.packaged import table_of
from implicit_bias.base.wording import percent, percent_bounds
from implicit_bias.modules.homogeneity import listed

WORDS = table_of("diagnosis/words.toml")
# Up to this KKT gap a point is near a KKT point: its multipliers say where to look further.
NEAR = 0.1
# A gap is clearly below another one where it is at most this share of it.
CLEARLY_BELOW = 0.5
# The norms of gradient descent, by the names of `modules.optimizers`.
GRADIENT_DESCENTS = ("l2", "weighted l2")


class DiagnosisWarning(UserWarning):
    """A number that `diagnose` reports means less than it seems.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", DiagnosisWarning)  # where none is to pass unseen
    >>> warnings.simplefilter("default", DiagnosisWarning)
    """


class Code(StrEnum):
    """What was found; each member is a key of words.toml."""

    # Where the module stands.
    KKT_POINT = "kkt-point"
    NEAR = "near"
    PERHAPS_NEAR = "perhaps-near"
    FAR = "far"
    OTHER_NORM_IS_NEARER = "other-norm-is-nearer"
    ACROSS_KINKS = "across-kinks"
    STOPPED = "stopped"
    LAYER = "layer"
    ONE_MORE_UNIT = "one-more-unit"
    AT_OPTIMUM = "at-optimum"
    ABOVE_OPTIMUM = "above-optimum"
    DEAD_UNITS = "dead-units"
    # What keeps the training from the limit that is measured.
    FINITE_MINIMISER = "finite-minimiser"
    NO_EXPONENTIAL_TAIL = "no-exponential-tail"
    OTHER_MARGIN = "other-margin"
    WEIGHT_DECAY = "weight-decay"
    UNKNOWN_LIMIT = "unknown-limit"
    OTHER_NORM = "other-norm"
    GRADIENT_OF_ZERO = "gradient-of-zero"
    GRADIENT_OF_ROUNDING_ERRORS = "gradient-of-rounding-errors"
    EPSILON = "epsilon"
    DEFAULT_EPSILON = "default-epsilon"
    SQUARES_UNDERFLOW = "squares-underflow"
    ADAMS_MEMORY = "adams-memory"
    GAP_ROSE = "gap-rose"
    # What helps where nothing is in the way.
    LOGARITHMIC_RATE = "logarithmic-rate"
    CONSTANT_RATE = "constant-rate"
    # What makes the numbers mean less.
    LOSS_NOT_CHECKED = "loss-not-checked"
    TRAINING_MODE = "training-mode"
    DROPOUT = "dropout"
    GRADIENT_HOOKS = "gradient-hooks"
    NOT_IN_OPTIMIZER = "not-in-optimizer"
    NO_GRADIENT = "no-gradient"
    # What the numbers are about.
    LEADING_PART = "leading-part"
    LEADING_PART_WITHOUT_THEOREM = "leading-part-without-theorem"
    MODULE_MISCLASSIFIES = "module-misclassifies"
    DEGREE_0 = "degree-0"
    HALF_PRECISION = "half-precision"
    # Which norm was maximised, or why none can be named.
    LIMIT = "limit"
    MARGIN_AND_GAP = "margin-and-gap"
    MARGIN = "margin"
    NO_GAP_NEAR_ZERO = "no-gap-near-zero"
    GRADIENT_DESCENT_IS_FAR = "gradient-descent-is-far"
    SEVERAL_NEAR_ZERO = "several-near-zero"
    WITHIN_NOISE = "within-noise"
    BOUNDS_OVERLAP = "bounds-overlap"
    MARGIN_WITHOUT_GAP = "margin-without-gap"
    SEVERAL_FAVOURED = "several-favoured"
    REFERENCE_IS_AHEAD = "reference-is-ahead"
    RIVAL = "rival"
    ONE_REFERENCE = "one-reference"
    REFERENCE_IS_BEHIND = "reference-is-behind"

    @property
    def blocks(self) -> bool:
        """Whether training on as before does not lead to the limit that is measured."""
        return self in BLOCKS

    @property
    def warns(self) -> bool:
        """Whether users are warned: the limit is another one, or the numbers mean less."""
        return self in WARNS


# The limit is another one.
_OTHER_LIMIT = {
    Code.FINITE_MINIMISER,
    Code.NO_EXPONENTIAL_TAIL,
    Code.OTHER_MARGIN,
    Code.WEIGHT_DECAY,
    Code.UNKNOWN_LIMIT,
    Code.OTHER_NORM,
    Code.EPSILON,
    Code.SQUARES_UNDERFLOW,
}
BLOCKS = _OTHER_LIMIT | {
    Code.GRADIENT_OF_ZERO,
    Code.GRADIENT_OF_ROUNDING_ERRORS,
    Code.DEFAULT_EPSILON,
    Code.ADAMS_MEMORY,
    Code.GAP_ROSE,
}
WARNS = _OTHER_LIMIT | {
    Code.LOSS_NOT_CHECKED,
    Code.TRAINING_MODE,
    Code.DROPOUT,
    Code.GRADIENT_HOOKS,
    Code.NOT_IN_OPTIMIZER,
    Code.NO_GRADIENT,
}


@dataclass(frozen=True)
class Finding:
    """One fact about a module or its training.

    Attributes
    ----------
    code : Code
        What was found.
    value : float
        Its number; nan where there is none.
    names : tuple of str
        Parameters, parts of the module or norms that it is about.
    details : mapping from str to object
        What else its sentence in words.toml has places for.

    Examples
    --------
    >>> found = Finding(Code.LAYER, 0.25, ("0.weight",))
    >>> print(found)
    Largest per-layer KKT gap: 25 %, of '0.weight'.
    """

    code: Code
    value: float = math.nan
    names: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    def _sentence(self, part: str) -> str:
        sentence: str = WORDS[self.code].get(part, "")
        return sentence.format(
            value=self.value,
            share=percent(self.value, space=" "),
            names=listed(self.names),
            **self.details,
        )

    @property
    def found(self) -> str:
        """What was found, with its number, in a sentence."""
        return self._sentence("found")

    @property
    def why(self) -> str:
        """Why it matters; empty where the finding says so itself."""
        return self._sentence("why")

    @property
    def cure(self) -> str:
        """What to do; empty where there is nothing to do."""
        return self._sentence("cure")

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.found, self.why, self.cure)))


@dataclass(frozen=True)
class GapBounds:
    """Bounds on a KKT gap.

    Attributes
    ----------
    lower, upper : float
        The gap of the best multipliers is between them, in [0, 1].
    stopped : bool
        Whether the search for them was stopped by ``max_seconds``.
    """

    lower: float
    upper: float
    stopped: bool = False

    @property
    def share(self) -> tuple[float, float]:
        """Bounds on sqrt(1 - gap): of a linear module, its margin over the maximum."""
        return math.sqrt(1.0 - self.upper), math.sqrt(1.0 - self.lower)

    def __str__(self) -> str:
        return percent_bounds(self.lower, self.upper)


def warn(findings: Iterable[Finding], stacklevel: int) -> None:
    """Warn of the findings that make a number mean less."""
    for finding in findings:
        if finding.code.warns:
            warnings.warn(str(finding), DiagnosisWarning, stacklevel=stacklevel + 1)
