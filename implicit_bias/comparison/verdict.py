"""The verdict of a comparison: what it shows, decided from facts, in at most three lines.

`conclude` takes the facts of a trained network, a `Standing`, or those of all models by their
errors, a `Ranking`. It knows nothing of models or data. The verdicts on a network, in the order in
which they are tried:

===================  =========================================================================
verdict              when
===================  =========================================================================
LOCAL                each unit was trained by its own rule: the problem of its limit is not known
INSEPARABLE          nothing separates the training samples with the network's gates: proven
SOFT                 the SVM of its gates has a finite C, so it is not the limit
CONSTRAINED          weight decay bounded the weights in training, so it maximizes no margin
OTHER_NORM           training is steepest descent in another norm than that of the SVM
NO_TRAINING_SAMPLES  the training samples were not given, so there is no norm at unit margin
NO_SVM               no SVM of the network's margin problem is among the models
NOT_SEPARATED        the network is wrong on some training samples
NO_BOUND             the minimum norm has no certified lower bound
CONVERGED            its norm at unit margin is at most `CLOSE` above the certified minimum
RELAXED              it is above, but the problem has more freedom than the network, so that the
                     minimum is a lower bound only
DEAD_UNITS           it is above, and units that the SVM uses are dead in the network: norm 0
NOT_CONVERGED        it is above
===================  =========================================================================

and on all models by their errors:

===================  =========================================================================
NO_PREDICTOR         no model has a predictor: no model separates the samples
ONE_MODEL            there is one model only
NOT_DECIDED          the lowest error is not significantly lower than that of every other model
LOWEST_ERROR         it is
===================  =========================================================================

words.toml has the sentences. A sentence is left out where a number that it states is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from string import Formatter

from implicit_bias.base.counts import Count, PairedDifference
from implicit_bias.base.package import table_of
from implicit_bias.base.wording import number, percent, percent_range

# All sentences, headings and definitions of comparisons and their pages.
WORDS = table_of("comparison/words.toml")
# Excess up to which a network counts as converged to its SVM.
CLOSE = 0.01


class Verdict(Enum):
    """What a comparison shows; see the module's head. The value is the key in words.toml."""

    LOCAL = "local"
    INSEPARABLE = "inseparable"
    SOFT = "soft"
    CONSTRAINED = "constrained"
    OTHER_NORM = "other_norm"
    NO_TRAINING_SAMPLES = "no_training_samples"
    NO_SVM = "no_svm"
    NOT_SEPARATED = "not_separated"
    NO_BOUND = "no_bound"
    CONVERGED = "converged"
    RELAXED = "relaxed"
    DEAD_UNITS = "dead_units"
    NOT_CONVERGED = "not_converged"

    NO_PREDICTOR = "no_predictor"
    ONE_MODEL = "one_model"
    NOT_DECIDED = "not_decided"
    LOWEST_ERROR = "lowest_error"


@dataclass(frozen=True)
class Message:
    """A sentence of words.toml, and what its places in braces are filled with.

    Examples
    --------
    >>> print(Message("its norm is {excess} above", {"excess": "12 %"}))
    its norm is 12 % above
    """

    template: str
    values: Mapping[str, str]

    def __str__(self) -> str:
        return self.template.format_map(self.values)


@dataclass(frozen=True)
class Conclusion:
    """A verdict and the lines that state it: what was found, why it matters, what to do.

    Examples
    --------
    >>> found = Message("{best} misclassifies {count} samples.", {"best": "svm", "count": "3"})
    >>> conclusion = Conclusion(Verdict.ONE_MODEL, (found,))
    >>> print(conclusion.headline)
    svm misclassifies 3 samples.
    """

    verdict: Verdict
    lines: tuple[Message, ...]

    @property
    def headline(self) -> str:
        """The first line: what was found."""
        return str(self.lines[0])

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of a trained network beside an SVM.

    Attributes
    ----------
    network : str
        Its name.
    svm : str or None
        Name of the SVM of the network's problem, or of one with its gates and a finite C;
        None where there is none.
    soft : str
        The finite C of the SVM, as text; empty for a hard margin.
    excess : float
        Norm at unit margin over the certified minimum, minus 1; inf where the network does not
        separate its training samples, nan where it is not known.
    train_wrong : Count or None
        Misclassified training samples.
    wrong : Count or None
        Misclassified test samples.
    agreement : Count or None
        Test samples on which network and SVM agree.
    chance_agreement : float
        Fraction on which independent models of their error rates would agree.
    held_out : bool or None
        Whether any test sample is not among the training samples; None if unknown.
    trained_on_given : bool
        Whether the training samples were given.
    inseparable : bool
        Whether an SVM has proven that nothing separates the training samples.
    dead : int
        How many units that are active in the SVM have norm 0 in the network.
    gates_moved : bool
        Whether training changed any gate.
    relaxed : bool
        Whether the problem has more freedom than the network.
    local : bool
        Whether each unit was trained by its own rule.
    geometry : str
        The norm in which training is steepest descent, such as "l2" for gradient descent and
        "linf" for Adam or sign descent.
    constrained : bool
        Whether weight decay bounded the weights in training, as that of AdamW.
    to_limit : str
        How to train the network to its limit; empty where there is no way.

    Examples
    --------
    >>> Standing(network="net", svm="svm", excess=0.002).verdict
    <Verdict.CONVERGED: 'converged'>
    """

    network: str
    svm: str | None = None
    soft: str = ""
    excess: float = math.nan
    train_wrong: Count | None = None
    wrong: Count | None = None
    agreement: Count | None = None
    chance_agreement: float = math.nan
    held_out: bool | None = True
    trained_on_given: bool = True
    inseparable: bool = False
    dead: int = 0
    gates_moved: bool = False
    relaxed: bool = False
    local: bool = False
    geometry: str = "l2"
    constrained: bool = False
    to_limit: str = WORDS["to_limit"]

    @property
    def verdict(self) -> Verdict:
        """What these facts show: the first that applies, in the order of the module's head."""
        # First what says that there is no limit to compare with, or that it is not known.
        if self.local:
            return Verdict.LOCAL
        if self.svm is not None and self.inseparable:
            return Verdict.INSEPARABLE
        if self.soft:
            return Verdict.SOFT
        if self.svm is not None and self.constrained:
            return Verdict.CONSTRAINED
        if self.svm is not None and self.geometry != "l2":
            return Verdict.OTHER_NORM
        # Before NO_SVM: without training samples no model has a `MarginResult`, so that no SVM of
        # the network's problem is found.
        if not self.trained_on_given:
            return Verdict.NO_TRAINING_SAMPLES
        if self.svm is None:
            return Verdict.NO_SVM
        # Then whether the network has a norm at unit margin, and a minimum to compare it with.
        some_wrong = self.train_wrong is not None and self.train_wrong.count > 0
        # Where the count is not known, an infinite norm at unit margin says the same.
        if some_wrong or math.isinf(self.excess):
            return Verdict.NOT_SEPARATED
        if math.isnan(self.excess):
            return Verdict.NO_BOUND
        # Last how far it is. What may explain an excess matters only if there is one.
        if self.excess <= CLOSE:
            return Verdict.CONVERGED
        if self.relaxed:
            return Verdict.RELAXED
        if self.dead:
            return Verdict.DEAD_UNITS
        return Verdict.NOT_CONVERGED


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is known of all models by their errors on the test samples.

    Attributes
    ----------
    models : sequence of str
        Names of those that have a predictor; of all, where none has.
    best : str
        The one of the lowest error; empty where there is none.
    count : Count
        Samples that it misclassifies.
    held_out : bool or None
        Whether any test sample is not among the training samples; None if unknown.
    tied : sequence of str
        Models whose error is not significantly higher than that of the best.
    majority : str
        The most frequent class of the training samples; empty where these were not given.
    beside_majority : PairedDifference or None
        The best model beside a predictor that always answers with that class.
    gap : float
        Largest relative duality gap of the SVMs; nan where there is none.
    """

    models: Sequence[str]
    best: str
    count: Count
    held_out: bool | None = True
    tied: Sequence[str] = ()
    majority: str = ""
    beside_majority: PairedDifference | None = None
    gap: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """What these facts show; see the module's head."""
        if not self.best:
            return Verdict.NO_PREDICTOR
        if len(self.models) == 1:
            return Verdict.ONE_MODEL
        if self.tied:
            return Verdict.NOT_DECIDED
        return Verdict.LOWEST_ERROR


def conclude(facts: Standing | Ranking) -> Conclusion:
    """State what is known of a network, or of all models by their errors.

    Examples
    --------
    >>> print(conclude(Standing(network="net", svm="svm", excess=1.36)))
    net has not converged to its SVM: its norm at unit margin is 136 % above the certified minimum \
(42 % of the maximum margin).
    To train net to its limit: fit_by(X, y, implicit_bias.train_to_limit)
    """
    words = WORDS["verdicts"][facts.verdict.value]
    found = words["found"]
    if isinstance(facts, Standing):
        values = _values_of_standing(facts)
        # Where training moved the gates, the problem is that of the gates at its end.
        if facts.gates_moved:
            found = words.get("found_with_learned_gates", found)
        comparing = [WORDS["pair"]["agreement"]]
        if facts.agreement is None:
            comparing = [WORDS["pair"]["errors"]]
    else:
        values = _values_of_ranking(facts)
        comparing = [WORDS["ranking"]["majority"], WORDS["ranking"]["certified"]]

    # What was found, why it matters, the models side by side, what to do: the first three that
    # apply, and of which everything is known.
    lines = []
    for template in (found, words.get("why", ""), *comparing, words.get("do", "")):
        if template and _is_known(template, values):
            lines.append(Message(template, values))
    return Conclusion(facts.verdict, tuple(lines[:3]))


def _is_known(template: str, values: Mapping[str, str]) -> bool:
    """Whether everything that a sentence states is known."""
    # A sentence with a gap in it would be wrong or empty, so it is left out as a whole.
    return all(values.get(name) for _, name, _, _ in Formatter().parse(template) if name)


def _values_of_standing(facts: Standing) -> dict[str, str]:
    """Write the facts as text; those that are not known are left out, or empty."""
    values = {
        "network": facts.network,
        "svm": facts.svm or "",
        "C": facts.soft,
        "geometry": facts.geometry,
        "samples": _samples(facts.held_out),
        "to_limit": facts.to_limit,
        "train_wrong": "some",
        "dead": str(facts.dead),
        "close": percent(CLOSE, space=" "),
    }
    # Where their number is not known, NOT_SEPARATED still says "some".
    if facts.train_wrong is not None:
        values["train_wrong"] = str(facts.train_wrong)
    if math.isfinite(facts.excess):
        values["excess"] = percent(facts.excess, space=" ")
        # Beside "at most 1 %" an excess that rounds to 1 % has more digits.
        if values["excess"] == values["close"]:
            values["excess"] = percent(facts.excess, decimals=3, space=" ")
        # The margin of the network over the maximum margin: 1 / norm over 1 / minimum.
        values["margin_share"] = percent(1.0 / (1.0 + facts.excess), space=" ")
    if facts.wrong is not None:
        values["count"] = str(facts.wrong)
        values["error"] = percent(facts.wrong.share, space=" ")
    if facts.agreement is not None:
        values["agreed"] = str(facts.agreement)
        values["agreement"] = percent(facts.agreement.share, space=" ")
        values["agreement_interval"] = percent_range(*facts.agreement.interval, space=" ")
        if math.isfinite(facts.chance_agreement):
            values["chance_agreement"] = percent(facts.chance_agreement, space=" ")
    return values


def _values_of_ranking(facts: Ranking) -> dict[str, str]:
    """Write the facts as text; those that are not known are left out, or empty."""
    values = {
        "models": ", ".join(facts.models),
        "best": facts.best,
        "count": str(facts.count),
        "error": percent(facts.count.share, space=" "),
        "interval": percent_range(*facts.count.interval, space=" "),
        "samples": _samples(facts.held_out),
        "tied": ", ".join(facts.tied),
        "majority": facts.majority,
    }
    if math.isfinite(facts.gap):
        values["gap"] = number(facts.gap, 1)
    if facts.beside_majority is not None:
        beside = facts.beside_majority
        # The second of the two is the predictor that always answers with the same class.
        share = Count(beside.both + beside.only_second, beside.total).share
        values["majority_error"] = percent(share, space=" ")
    return values


def _samples(held_out: bool | None) -> str:
    """Return what the samples are called on which errors are counted."""
    words = "training"
    if held_out is None:
        words = "unknown"
    elif held_out:
        words = "test"
    return str(WORDS["samples"][words])
