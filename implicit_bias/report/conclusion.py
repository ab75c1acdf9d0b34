"""What a comparison says of a trained network, in a sentence: is it its SVM, and if not, why not.

`conclude` takes a `Standing`, which holds all that it needs, and knows nothing of models or data.
The verdicts, in the order in which they are tried:

================  ============================================================================
verdict           when
================  ============================================================================
LOCAL             each unit learned by itself: no SVM is known to be the limit
INSEPARABLE       nothing separates the training samples with the network's gates: proven
SOFT              the SVM of its gates has a finite C, which makes it no limit: errors are compared
OTHER_GEOMETRY    training moves in another norm than the one of the SVM beside the network
UNKNOWN           no SVM of the network's program is among the models; or it is, above its optimum,
                  and has more freedom than the network (`Network.relaxed`): no limit is shown then
NOT_SEPARATED     the network is wrong on some training samples
AT_LIMIT          its norm is at most `CLOSE` above the certified optimum
HELD_BACK         units that the SVM uses are dead in the network: their norm is 0
NOT_AT_LIMIT      its norm is above that
SOLVED            no network, or data of one's own: all models by errors, a sentence of `words`
================  ============================================================================

A sentence is text in which `term` marks numbers and words with a definition, which a page links,
and `command` what is to be typed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from implicit_bias.base.counts import Count
from implicit_bias.base.packaged import table_of
from implicit_bias.base.wording import NO_BREAK, percent, percent_range

# What is said of tables, sections, curves and verdicts.
WORDS = table_of("report/page.toml")
# What evaluation samples are called, by whether they are others than the training samples.
SAMPLES = {True: "unseen samples", False: "training samples", None: "samples"}
# Excess up to which a network counts as its SVM.
CLOSE = 0.01
# Units named one by one; more are counted.
LISTED = 6


# Key and text of what is marked, within characters that Unicode keeps for use inside a program.
MARKED = re.compile("\ufdd0(.*?)\ufdd1(.*?)\ufdd2", re.DOTALL)


def term(text: str, key: str) -> str:
    """Mark text in a sentence that stands for something defined under a key."""
    return f"\ufdd0{key}\ufdd1{text}\ufdd2"


def command(text: str) -> str:
    """Mark text in a sentence that is to be typed."""
    return term(text, "")


def plain(sentence: str) -> str:
    """Write a sentence without its marks.

    Examples
    --------
    >>> plain(f"the norm is {term('12 %', 'excess')} above")
    'the norm is 12 % above'
    """
    return MARKED.sub(r"\2", sentence)


class Verdict(Enum):
    """What `conclude` finds; see the module's head."""

    LOCAL = "local learning"
    INSEPARABLE = "not separable"
    SOFT = "soft margin"
    OTHER_GEOMETRY = "other geometry"
    UNKNOWN = "not known"
    NOT_SEPARATED = "not separated yet"
    AT_LIMIT = "at its limit"
    HELD_BACK = "held back by dead units"
    NOT_AT_LIMIT = "not at its limit"
    SOLVED = "solved"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of a trained network beside an SVM.

    Attributes
    ----------
    network : str
        Its name.
    svm : str or None
        Name of the SVM whose program is the network's, or of one with its gates and a finite C;
        None where there is none.
    soft : str
        The finite C of the SVM, in words; empty for a hard margin.
    no_svm : str
        Why there is none, or how to have one; empty where nothing is known.
    excess : float
        Norm over the certified optimum, minus 1; inf where the network does not separate its
        training samples, nan where it is not known.
    train_wrong : Count or None
        Training samples on the wrong side.
    wrong, svm_wrong : Count or None
        Evaluation samples on the wrong side of the network, and of the SVM.
    agreement : Count or None
        Evaluation samples on which network and SVM say the same.
    by_chance : float
        Share on which independent models of their errors would agree.
    held_out : bool or None
        Whether the evaluation samples are others than the training samples; None if unknown.
    inseparable : bool
        Whether an SVM has proven that nothing separates the training samples.
    dead : sequence of int or str
        Units of norm 0 in the network that are active in the SVM.
    gates_moved : bool
        Whether training changed any gate.
    relaxed : bool
        Whether the program has more freedom than the network.
    local : bool
        Whether each unit learned by itself.
    geometry : str
        The norm in which training moves, such as "l2" for gradient descent, which ends at the SVM,
        and "linf" for Adam or sign descent.
    train_on : str
        The command that trains the network towards its limit; empty where there is none.

    Examples
    --------
    >>> conclude(Standing(network="net", svm="svm", excess=0.002)).verdict.value
    'at its limit'
    """

    network: str
    svm: str | None = None
    soft: str = ""
    no_svm: str = ""
    excess: float = math.nan
    train_wrong: Count | None = None
    wrong: Count | None = None
    svm_wrong: Count | None = None
    agreement: Count | None = None
    by_chance: float = math.nan
    held_out: bool | None = True
    inseparable: bool = False
    dead: Sequence[int | str] = ()
    gates_moved: bool = False
    relaxed: bool = False
    local: bool = False
    geometry: str = "l2"
    train_on: str = ""


@dataclass(frozen=True)
class Conclusion:
    """A verdict, the headline that says it, and sentences with the evidence.

    Examples
    --------
    >>> print(Conclusion(Verdict.SOLVED, "svm is wrong on 3 of 90", ("Certified.",)))
    svm is wrong on 3 of 90
    Certified.
    """

    verdict: Verdict
    headline: str
    evidence: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The headline as plain text, for a terminal."""
        return plain(self.headline).replace(NO_BREAK, " ")

    def __str__(self) -> str:
        return "\n".join(map(plain, (self.headline, *self.evidence)))


def conclude(standing: Standing) -> Conclusion:
    """Say where a network stands; a page and a terminal show the same words.

    Examples
    --------
    >>> standing = Standing(network="net", svm="svm", excess=1.36, train_on="train on")
    >>> conclusion = conclude(standing)
    >>> print(conclusion.verdict.value)
    not at its limit
    >>> print(conclusion.title)
    Not at its limit: the norm of net is 136 % above the smallest possible. Train on: train on
    """
    verdict, parts = _verdict(standing), _parts(standing)
    relaxed = standing.relaxed and standing.svm is not None
    beyond = verdict is Verdict.UNKNOWN and relaxed
    headline = WORDS["headlines"]["not known, with more freedom" if beyond else verdict.value]
    evidence = tuple(_evidence(verdict, standing, parts))
    return Conclusion(verdict, headline.format(**parts), evidence)


def _verdict(standing: Standing) -> Verdict:
    if standing.local:
        return Verdict.LOCAL
    if standing.svm is not None and standing.inseparable:
        return Verdict.INSEPARABLE
    if standing.soft:
        return Verdict.SOFT
    if standing.svm is not None and standing.geometry != "l2":
        return Verdict.OTHER_GEOMETRY
    if standing.svm is None:
        return Verdict.UNKNOWN
    wrong = standing.train_wrong
    if math.isinf(standing.excess) or (wrong is not None and wrong.count):
        return Verdict.NOT_SEPARATED
    if math.isnan(standing.excess):
        return Verdict.UNKNOWN
    if standing.excess <= CLOSE:
        return Verdict.AT_LIMIT
    if standing.relaxed:
        return Verdict.UNKNOWN
    return Verdict.HELD_BACK if len(standing.dead) else Verdict.NOT_AT_LIMIT


def _parts(s: Standing) -> dict[str, Any]:
    """Return what the sentences of page.toml have places for."""
    several, places = len(s.dead) != 1, ", ".join(map(str, s.dead[:LISTED]))
    units = f"{len(s.dead)} units" if len(s.dead) > LISTED else f"unit{'s' * several} {places}"
    wrong = "some" if s.train_wrong is None else str(s.train_wrong)
    return {
        **vars(s),
        "excess": term(percent(s.excess), "excess"),
        "errors": _errors(s),
        "wrong": term(wrong, "train_error"),
        "now": "with the gates it has now " if s.gates_moved else "",
        "There": "With the gates it has now there" if s.gates_moved else "There",
        "onward": f" Train on: {command(s.train_on)}" if s.train_on else "",
        "no_svm": s.no_svm or "no SVM of its program is among the models",
        "units": units,
        "are": "are" if several else "is",
        "them": "them" if several else "it",
        "dead": term("dead", "dead"),
        "soften": command("--C 0.1"),
    }


def _errors(s: Standing) -> str:
    """Say on how many samples network and SVM are wrong, and differ; nothing where unknown."""
    if s.wrong is None:
        return ""
    said = f"{s.network} is wrong on {term(percent(s.wrong.share), 'error')} of the "
    said += SAMPLES[s.held_out]
    if s.svm_wrong is None or s.agreement is None:
        return f"{said}. "
    differ = term(percent(1 - s.agreement.share), "disagreement")
    theirs = term(percent(s.svm_wrong.share), "error")
    return f"{said}, {s.svm} on {theirs}; the two differ on {differ}. "


def _evidence(verdict: Verdict, s: Standing, parts: dict[str, Any]) -> Iterator[str]:
    instead = verdict is Verdict.INSEPARABLE and s.soft
    found = WORDS["evidence"].get(verdict.value + ", but softly" * bool(instead))
    if found is not None and (verdict is not Verdict.LOCAL or math.isfinite(s.excess)):
        yield found.format(**parts)
    if s.agreement is not None and s.agreement.total:
        chance = ""
        if math.isfinite(s.by_chance):
            chance = f", independent models with these errors on {percent(s.by_chance)}"
        no_limit = (Verdict.NOT_SEPARATED, Verdict.INSEPARABLE, Verdict.SOFT)
        verb = "agrees on" if verdict in no_limit else "explains"
        yield (
            f"{s.svm} {verb} {term(percent(s.agreement.share), 'agreement')} of the predictions of "
            f"{s.network}: the two agree on {s.agreement} {SAMPLES[s.held_out]} (95 % interval "
            f"{percent_range(*s.agreement.interval)}){chance}."
        )
