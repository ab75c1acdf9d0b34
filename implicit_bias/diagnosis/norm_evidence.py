r"""By which numbers a norm is named whose margin a training maximized, or why none is.

theta is the module at unit margin, L its degree. In each norm a

    gap_a    = 1 - (optimum_a / ||theta||_a)^2,    optimum_a = min ||w||_a s.t. J w >= L,
    margin_a = (smallest margin) / ||theta||_a^L    of the module as it is.

**Only a gap of 0 compares across norms.** A gap is the distance to a KKT point in units of its own
norm. Between two norms of R^P there is a factor of up to sqrt(P) (l2, linf), so a direction that is
nearly optimal in linf may lack a factor of several in l2. Of two gaps that are both far from 0 the
smaller one is no evidence.

**A factor within one norm compares.** The optimum over all parameters does not depend on the
training, so between two trainings of one architecture margin_a changes by the same factor as its
fraction of that optimum: steepest descent in norm a raises margin_a, and often lowers the others.

A norm is named by the first of three rules that applies:

1. "limit": the gap in it is near 0, by its upper bound, and clearly above that in all others, by
   their lower bounds.
2. "margin and gap": it is the only norm in which the gap is below that of the reference trainings,
   by bounds that do not overlap, and the margin above theirs; and this at a cost: in some other
   norm the margin fell, or in none of the others it is above theirs. Single samples may raise the
   margin in linf by a factor of 1.8, and those in all other norms, too: that is no preference.
3. "margin": it is the only norm in which the margin is above that of the references, and in all
   others it is below theirs. This is no evidence of the distance to a limit. It needs a module that
   was trained at least as far as the references: while gradient descent goes on, the margin in l2
   rises, and may fall in another norm, so that an earlier state seems to prefer that norm.

**Noise.** Two trainings by one optimizer from two seeds differ in each norm's margin, too, by a
factor which several references show: with margins m_1, ..., m_R in a norm

    factor = margin_a / (m_1 ... m_R)^(1/R),    spread = max m_r / min m_r,

and the margin rose where factor >= 1.1 and factor > spread, and fell where 1 / factor does so. With
one reference the spread is unknown, which is one of the findings. If a training does not
differ in kind from R references, and margins are log-normal, the factor still exceeds the spread in
23, 12, 7, 4, 3 % of all cases for R = 2, 3, 4, 5, 6. The rules ask for more: a gap that fell as
well, and other margins that did not rise. `benchmarks.illustrations.controls` counts false names
beside three references: 0 of 66 gradient descents by other rates, momentum, noise and batches, and
SAM, so at most 4.5 % with a confidence of 95 %. Without the cost that rule 2 asks for it was 2 of
66.

**Rivals.** In norm b the margin of a reference can rise by a factor of (1 - gap_b)^(-L/2) at most,
up to the optimum of its tangent problem. Where the reference is near a limit in b this is little,
and a margin that did not rise is no evidence against b. So b is a rival of the norm that would be
named where this factor may be, by the lower bound on gap_b, below the square root of the factor by
which the margin rose in that norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from implicit_bias.diagnosis.findings import Code, Finding, GapBounds, Thresholds

Evidence = Literal["limit", "margin and gap", "margin", "none"]


class EvidenceThresholds:
    """What counts as a change from the reference trainings.

    Attributes
    ----------
    risen : float
        A margin has risen if it is at least this many times the references', and above their
        spread.
    fallen : float
        A gap has fallen if it is below the references' by this fraction, not by what any training
        changes.
    as_far : float
        Of two trainings the smallest margins are alike if neither is above this times the other.
    """

    risen: Final = 1.1
    fallen: Final = 0.05
    as_far: Final = 1.1


@dataclass(frozen=True)
class NormRow:
    """A module, and references, in one norm.

    Attributes
    ----------
    norm : str
        Its name.
    gap : GapBounds
        Bounds on the KKT gap.
    margin : float
        Smallest margin over ||theta||^L.
    reference_gap : GapBounds or None
        Bounds on the smallest gap of a reference; None without one.
    reference_margin : float
        Geometric mean of the references' margins; nan without one.
    spread : float
        The largest of the references' margins over the smallest one; nan with less than two, of
        which the noise is unknown.
    same : tuple of str
        Norms of the table that are the same one of parameters of these shapes: spectral and l2 of a
        vector.

    Examples
    --------
    >>> row = NormRow("linf", GapBounds(0.5, 0.5), 1.3, GapBounds(0.9, 0.9), 1.0, spread=1.2)
    >>> row.factor, row.rose, row.favoured
    (1.3, True, True)
    """

    norm: str
    gap: GapBounds
    margin: float
    reference_gap: GapBounds | None = None
    reference_margin: float = math.nan
    spread: float = math.nan
    same: tuple[str, ...] = ()

    @property
    def factor(self) -> float:
        """Margin over the references'; nan without one."""
        return self.margin / self.reference_margin

    @property
    def rose(self) -> bool:
        """Whether the margin is above that of the references by more than the noise."""
        return self._is_beyond_noise(self.factor)

    @property
    def fell(self) -> bool:
        """Whether it is below that of the references by more than the noise."""
        return self._is_beyond_noise(1.0 / self.factor)

    def _is_beyond_noise(self, factor: float) -> bool:
        # Comparisons with an unknown spread, which is nan, are false.
        return factor >= EvidenceThresholds.risen and not factor <= self.spread

    @property
    def favoured(self) -> bool | None:
        """Whether the training was towards this norm; None where bounds overlap.

        It was where the margin rose, and the gap is below that of each reference.
        """
        if self.reference_gap is None or not self.rose:
            return False
        if self.gap.upper < (1.0 - EvidenceThresholds.fallen) * self.reference_gap.lower:
            return True
        if self.gap.lower >= (1.0 - EvidenceThresholds.fallen) * self.reference_gap.upper:
            return False
        return None


@dataclass(frozen=True)
class Conclusion:
    """The norm that is named (None for none), the rule that names it, and why."""

    best: str | None
    evidence: Evidence
    why: Finding


@dataclass(frozen=True)
class NormTable:
    """A module, and references, in several norms, with the rules of this file's head.

    Attributes
    ----------
    rows : sequence of NormRow
        A row for each norm.
    reached : sequence of float
        Smallest margins of the module and of each reference.
    degree : float
        L.
    """

    rows: Sequence[NormRow]
    reached: Sequence[float]
    degree: float

    def conclude(self) -> Conclusion:
        """Name the norm whose margin was maximized, or say why none can be named."""
        # Rule 1: near 0 by the upper bound, and clearly below all others by their lower ones.
        nearest = min(self.rows, key=lambda row: row.gap.upper)
        gap = nearest.gap.upper
        near = gap <= Thresholds.near
        also = list[str]()
        for row in self._others(nearest):
            if gap > Thresholds.clearly_below * row.gap.lower:
                also.append(row.norm)
        if near and not also:
            return self._named(nearest, "limit", Code.LIMIT, gap)
        # Without a reference there is nothing else that compares.
        if nearest.reference_gap is None and near:
            return self._none(Code.SEVERAL_NEAR_ZERO, nearest, gap, also)
        if nearest.reference_gap is None:
            return self._none(Code.NO_GAP_NEAR_ZERO, nearest, gap)

        # Rule 2: the norms in which the margin rose and the gap fell.
        most = max(self.rows, key=lambda row: row.factor)
        favoured = [row for row in self.rows if row.favoured]
        names = [row.norm for row in favoured]
        overlapping = [row.norm for row in self.rows if row.favoured is None]
        if favoured and not overlapping:
            # Two names of one norm are no contradiction.
            if any(row.norm not in favoured[0].same for row in favoured[1:]):
                return self._none(Code.SEVERAL_FAVOURED, most, most.factor, names)
            others = self._others(favoured[0])
            # Noise of single samples may raise the margins in all norms. A preference shows by what
            # it costs.
            at_a_cost = any(row.fell for row in others) or all(row.factor <= 1.0 for row in others)
            if not at_a_cost:
                return self._none(Code.NO_MARGIN_FELL, favoured[0], favoured[0].factor)
            return self._unless_rival(favoured[0], "margin and gap", Code.MARGIN_AND_GAP)

        # Rule 3: the margin rose in one norm, at the cost of all others.
        others = self._others(most)
        if most.rose and others and all(row.fell for row in others):
            if EvidenceThresholds.as_far * self.reached[0] < max(self.reached[1:]):
                return self._none(Code.REFERENCE_IS_AHEAD, most, most.factor)
            return self._unless_rival(most, "margin", Code.MARGIN)
        if overlapping:
            return self._none(Code.BOUNDS_OVERLAP, most, most.factor, overlapping)
        return self._none(Code.WITHIN_NOISE, most, most.factor)

    def _unless_rival(self, row: NormRow, evidence: Evidence, code: Code) -> Conclusion:
        """Name a norm, unless the references may be near a limit in another one."""
        for other in self._others(row):
            assert other.reference_gap is not None
            # (1 - gap)^(-L/2), by which the reference's margin can rise, against factor^(1/2):
            # both are squared, and multiplied, as 1 - gap may be 0.
            at_limit = row.factor * (1.0 - other.reference_gap.lower) ** self.degree > 1.0
            if at_limit and not other.fell:
                return self._none(Code.RIVAL, row, row.factor, [other.norm])
        return self._named(row, evidence, code, row.factor)

    def _others(self, row: NormRow) -> list[NormRow]:
        """Norms that compete with one: not those that are the same on these parameters."""
        return [each for each in self.rows if each is not row and each.norm not in row.same]

    def _named(self, row: NormRow, evidence: Evidence, code: Code, value: float) -> Conclusion:
        return Conclusion(row.norm, evidence, Finding(code, value, details={"norm": row.norm}))

    def _none(
        self, code: Code, row: NormRow, value: float, names: Sequence[str] = ()
    ) -> Conclusion:
        details = {"norm": row.norm, "reached": self.reached[0]}
        return Conclusion(None, "none", Finding(code, value, tuple(names), details))

    def caveats(self) -> list[Finding]:
        """Say what the references lack: others of them, steps, or time for the search."""
        found = list[Finding]()
        references = self.reached[1:]
        if len(references) == 1:
            found.append(Finding(Code.ONE_REFERENCE))
        if references and self.reached[0] > EvidenceThresholds.as_far * min(references):
            details = {"reached": self.reached[0]}
            found.append(Finding(Code.REFERENCE_IS_BEHIND, min(references), details=details))
        gaps = [row.gap for row in self.rows]
        gaps += [row.reference_gap for row in self.rows if row.reference_gap is not None]
        if any(gap.stopped for gap in gaps):
            found.append(Finding(Code.STOPPED))
        return found
