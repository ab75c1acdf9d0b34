"""What a diagnosis finds: a code, a number, and what to do; the sentences are in words.toml.

Whatever measures something returns a `Finding`. Nothing but this file knows how a finding reads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Self

from implicit_bias.base.package import table_of
from implicit_bias.base.wording import listed_parts, percent, percent_bounds

WORDS = table_of("diagnosis/words.toml")
# The norms of gradient descent, by the names of `modules.optimizers`.
GRADIENT_DESCENTS = ("l2", "weighted l2")


class Thresholds:
    """What counts as near, and what is worth a line.

    Attributes
    ----------
    at : float
        A module is at a KKT point if its KKT gap is at most this.
    near : float
        It is near one if the gap is at most this. Only then are its multipliers used to look for
        better networks.
    clearly_below : float
        A gap is clearly below another one where it is at most this fraction of it.
    worth_naming : float
        The gap of a layer, or an excess in function space, is worth a line if it is above this.
    no_share : float
        A sample's fraction of the multipliers counts as 0 up to this times the largest one.
    """

    at: Final = 1e-3
    near: Final = 0.1
    clearly_below: Final = 0.5
    worth_naming: Final = 1e-3
    no_share: Final = 1e-6


class DiagnosisWarning(UserWarning):
    """A number that `diagnose` reports means less than it seems.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", DiagnosisWarning)  # where none is to pass unseen
    >>> warnings.simplefilter("default", DiagnosisWarning)
    """


class Topic(Enum):
    """What a finding is about."""

    STANDING = "where the module stands"
    OTHER_LIMIT = "the training converges to another limit than the one that is measured"
    OBSTACLE = "the training does not get to the limit that is measured"
    RATE = "how to get nearer where nothing is in the way"
    ABOUT = "what all numbers are about"
    DETAIL = "what some numbers show"
    CAVEAT = "the numbers mean less than they seem to"
    WHICH_NORM = "why a norm is named, or none"


class Code(StrEnum):
    """What was found. The value of a member is its key in words.toml; each has a topic."""

    topic: Topic

    def __new__(cls, key: str, topic: Topic) -> Self:
        """Make a member whose value is its key."""
        # The value is the key alone, not the pair: Code("near") and the keys of words.toml find it.
        member = str.__new__(cls, key)
        member._value_ = key
        member.topic = topic
        return member

    KKT_POINT = "kkt-point", Topic.STANDING
    NEAR = "near", Topic.STANDING
    PERHAPS_NEAR = "perhaps-near", Topic.STANDING
    FAR = "far", Topic.STANDING
    OTHER_NORM_IS_NEARER = "other-norm-is-nearer", Topic.STANDING
    FINITE_MINIMISER = "finite-minimiser", Topic.OTHER_LIMIT
    NO_EXPONENTIAL_TAIL = "no-exponential-tail", Topic.OTHER_LIMIT
    OTHER_MARGIN = "other-margin", Topic.OTHER_LIMIT
    WEIGHT_DECAY = "weight-decay", Topic.OTHER_LIMIT
    DECAY_IS_UNKNOWN = "decay-is-unknown", Topic.OTHER_LIMIT
    NEAR_IN_THE_BOX = "near-in-the-box", Topic.OTHER_LIMIT
    NOT_NEAR_IN_THE_BOX = "not-near-in-the-box", Topic.OTHER_LIMIT
    DECAY_HAS_HARDLY_ACTED = "decay-has-hardly-acted", Topic.OTHER_LIMIT
    UNKNOWN_LIMIT = "unknown-limit", Topic.OTHER_LIMIT
    OTHER_NORM = "other-norm", Topic.OTHER_LIMIT
    EPSILON = "epsilon", Topic.OTHER_LIMIT
    GRADIENT_OF_ZERO = "gradient-of-zero", Topic.OBSTACLE
    GRADIENT_OF_ROUNDING_ERRORS = "gradient-of-rounding-errors", Topic.OBSTACLE
    SQUARES_OF_ZERO = "squares-of-zero", Topic.OBSTACLE
    ADAMS_MEMORY = "adams-memory", Topic.OBSTACLE
    LOGARITHMIC_RATE = "logarithmic-rate", Topic.RATE
    CONSTANT_RATE = "constant-rate", Topic.RATE
    ONE_CLASS = "one-class", Topic.ABOUT
    LEADING_PART = "leading-part", Topic.ABOUT
    LEADING_PART_WITHOUT_THEOREM = "leading-part-without-theorem", Topic.ABOUT
    ACROSS_KINKS = "across-kinks", Topic.DETAIL
    STOPPED = "stopped", Topic.DETAIL
    LAYER = "layer", Topic.DETAIL
    ONE_MORE_UNIT = "one-more-unit", Topic.DETAIL
    AT_OPTIMUM = "at-optimum", Topic.DETAIL
    ABOVE_OPTIMUM = "above-optimum", Topic.DETAIL
    DEAD_UNITS = "dead-units", Topic.DETAIL
    LAZY_REGIME = "lazy-regime", Topic.DETAIL
    RICH_REGIME = "rich-regime", Topic.DETAIL
    MODULE_MISCLASSIFIES = "module-misclassifies", Topic.DETAIL
    DEGREE_0 = "degree-0", Topic.DETAIL
    DEGREE_0_WITHOUT_THEOREM = "degree-0-without-theorem", Topic.DETAIL
    KNOWN_BY_NAME = "known-by-name", Topic.DETAIL
    LINEAR_MODULE = "linear-module", Topic.DETAIL
    LOSS_NOT_CHECKED = "loss-not-checked", Topic.CAVEAT
    BETAS = "betas", Topic.CAVEAT
    JUMPS_NOT_CHECKED = "jumps-not-checked", Topic.CAVEAT
    TRAINING_MODE = "training-mode", Topic.CAVEAT
    DROPOUT = "dropout", Topic.CAVEAT
    NOT_IN_OPTIMIZER = "not-in-optimizer", Topic.CAVEAT
    NO_GRADIENT = "no-gradient", Topic.CAVEAT
    LIMIT = "limit", Topic.WHICH_NORM
    MARGIN_AND_GAP = "margin-and-gap", Topic.WHICH_NORM
    MARGIN = "margin", Topic.WHICH_NORM
    NO_GAP_NEAR_ZERO = "no-gap-near-zero", Topic.WHICH_NORM
    SEVERAL_NEAR_ZERO = "several-near-zero", Topic.WHICH_NORM
    WITHIN_NOISE = "within-noise", Topic.WHICH_NORM
    BOUNDS_OVERLAP = "bounds-overlap", Topic.WHICH_NORM
    SEVERAL_FAVOURED = "several-favoured", Topic.WHICH_NORM
    NO_MARGIN_FELL = "no-margin-fell", Topic.WHICH_NORM
    REFERENCE_IS_AHEAD = "reference-is-ahead", Topic.WHICH_NORM
    RIVAL = "rival", Topic.WHICH_NORM
    ONE_REFERENCE = "one-reference", Topic.WHICH_NORM
    REFERENCE_IS_BEHIND = "reference-is-behind", Topic.WHICH_NORM

    @property
    def keeps_from_limit(self) -> bool:
        """Whether further training as before misses the limit that is measured."""
        # A slow rate is no obstacle: longer training gets nearer all the same.
        return self.topic in (Topic.OTHER_LIMIT, Topic.OBSTACLE)

    @property
    def warns(self) -> bool:
        """Whether users are warned: the limit is another one, or the numbers mean less."""
        # An obstacle is not one of them: the numbers are right, the training stands still.
        return self.topic in (Topic.OTHER_LIMIT, Topic.CAVEAT)


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
        """Fill in a sentence of words.toml: ``part`` is "found", "why" or "cure"."""
        # Not each finding has a reason or a cure.
        sentence: str = WORDS[self.code].get(part, "")
        return sentence.format(
            value=self.value,
            share=percent(self.value, space=" "),
            names=listed_parts(self.names),
            **self.details,
        )

    @property
    def found(self) -> str:
        """What was found, with its number, in a sentence."""
        return self._sentence("found")

    @property
    def cure(self) -> str:
        """What to do; empty where there is nothing to do."""
        return self._sentence("cure")

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.found, self._sentence("why"), self.cure)))


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

    def __str__(self) -> str:
        # What "(stopped)" means is the finding `Code.STOPPED`, wherever such bounds are printed.
        text = percent_bounds(self.lower, self.upper)
        if self.stopped:
            text += " (stopped)"
        return text


def warn(findings: Iterable[Finding], stacklevel: int) -> None:
    """Warn of the findings whose code `warns`; ``stacklevel`` is as for the caller of this."""
    for finding in findings:
        if finding.code.warns:
            warnings.warn(str(finding), DiagnosisWarning, stacklevel=stacklevel + 1)
