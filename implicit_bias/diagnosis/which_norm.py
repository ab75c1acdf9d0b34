r"""In which norm did a training maximise the margin, by what can be compared across norms.

theta is the module at smallest margin 1, L its degree. In each norm a

    gap_a    = 1 - (optimum_a / ||theta||_a)^2,    optimum_a = min ||w||_a s.t. J w >= L,
    margin_a = (smallest margin) / ||theta||_a^L    of the module as it is.

**Only 0 is the same in all norms.** A gap is the distance to a KKT point in units of its own norm.
Between two norms of R^P there is a factor of up to sqrt(P) (l2, linf), so a direction that is
nearly optimal in linf may lack a factor of several in l2, and of two gaps that are both far from 0
the smaller one tells nothing.

**A factor within one norm compares.** The optimum over all parameters does not depend on the
training, so between two trainings of one architecture margin_a changes by the same factor as its
share of that optimum: training in the geometry of a raises margin_a, and often lowers the others.

**Linear modules.** Where the margins are linear in all parameters, J does not depend on theta, so
that optimum_a is the module's own: sqrt(1 - gap_a) is the margin over the certified maximum.

So a norm is named where

- the gap in it is near 0, by its upper bound, and clearly above that in all others, by their lower
  bounds; or
- it is the only one in which the gap is below that of the reference trainings, by bounds that do
  not overlap, and the margin above theirs; or
- it is the only one in which the margin is above that of the references, and it is below in all
  others of them, or rose by far less: by a factor whose logarithm, and that of 1.01^L, is at most a
  tenth. This tells nothing of the distance to a limit. It asks that the module was trained at least
  as far: while gradient descent goes on, the margin in l2 rises, and may fall in another norm, so
  that an earlier state seems to prefer that.

**No factor within the noise counts.** Two trainings by one optimizer from two seeds differ in each
norm's margin, too, by a factor which several references show: with margins m_1, ..., m_R in a norm

    factor = margin_a / (m_1 ... m_R)^(1/R),    spread = max m_r / min m_r,

and the margin rose where factor >= 1.1 and factor > spread, and fell where 1 / factor does so. With
one reference the spread is unknown, which is one of the findings.

**Where a reference tells nothing.** A margin that did not rise in a norm is no evidence against it
if the reference may be near a limit in it, too: (1 - gap)^(-L/2), by which it can rise, is by the
gap's lower bound less than the root of the largest factor. Nor is it against the norm of a known
optimizer in which the reference is nearer to a limit than the module, which is on its way.

Source: Lyu and Li (2020); Tsilivis, Vardi, Kempe (2024).
"""

from __future__ import annotations

import copy
import html
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.wording import html_table, number, percent_bounds, text_table
from implicit_bias.diagnosis.checks import check, what_is_measured
from implicit_bias.diagnosis.findings import (
    GRADIENT_DESCENTS,
    Code,
    Finding,
    GapBounds,
    Thresholds,
    warn,
)
from implicit_bias.diagnosis.function_space import in_function_space
from implicit_bias.diagnosis.training import TrainingTest, judge, limit_of
from implicit_bias.modules.evaluate import as_module, drawn_like, evaluating
from implicit_bias.modules.lent_threads import one_thread_if_small
from implicit_bias.modules.multipliers import best_multipliers, kkt_gap
from implicit_bias.modules.subject import SeparationError, Subject, margins_of
from implicit_bias.norms.tensors import GivenNorm, ParameterNorm, as_parameter_norm, one_or_several

# A module of the same architecture, or its state dict.
Reference: TypeAlias = nn.Module | Mapping[str, Tensor]
Evidence = Literal["limit", "margin and gap", "margin", "none"]


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
        The largest margin of a reference over the smallest one; nan with less than two, of which
        the noise is unknown.
    same : tuple of str
        Norms of the table that are the same one of parameters of these shapes: spectral and l2 of a
        vector.
    risen : float
        A margin has risen if it is at least this many times the references', and above their
        spread.
    fallen : float
        A gap has fallen if it is below the references' by this share, not by what any training
        changes.

    Examples
    --------
    >>> gaps = [GapBounds(gap, gap, stopped=False) for gap in (0.5, 0.9)]
    >>> row = NormRow("linf", gaps[0], 1.3, gaps[1], 1.0, spread=1.2)
    >>> row.factor, row.noise, row.favoured
    (1.3, 1.2, True)
    """

    norm: str
    gap: GapBounds
    margin: float
    reference_gap: GapBounds | None = None
    reference_margin: float = math.nan
    spread: float = math.nan
    same: tuple[str, ...] = ()
    risen: float = 1.1
    fallen: float = 0.05

    @property
    def factor(self) -> float:
        """Margin over the references'; nan without one."""
        return self.margin / self.reference_margin

    @property
    def noise(self) -> float:
        """The factor that a margin has to reach: 1.1, or the spread, which it has to exceed."""
        if math.isnan(self.spread):
            return self.risen
        return max(self.risen, self.spread)

    @property
    def rose(self) -> bool:
        """Whether the margin is above that of the references by more than the noise."""
        return self._beyond(self.factor)

    @property
    def fell(self) -> bool:
        """Whether it is below that of the references by more than the noise."""
        return self._beyond(1.0 / self.factor)

    def _beyond(self, factor: float) -> bool:
        # Of an unknown spread, nan, no comparison is true.
        return factor >= self.risen and not factor <= self.spread

    @property
    def favoured(self) -> bool | None:
        """Whether the training was towards this norm; None where bounds overlap.

        It was where the margin rose, and the gap is below that of each reference.
        """
        if self.reference_gap is None or not self.rose:
            return False
        if self.gap.upper < (1.0 - self.fallen) * self.reference_gap.lower:
            return True
        if self.gap.lower >= (1.0 - self.fallen) * self.reference_gap.upper:
            return False
        return None

    @property
    def stopped(self) -> bool:
        """Whether a search was stopped by ``max_seconds``."""
        return self.gap.stopped or (self.reference_gap is not None and self.reference_gap.stopped)


@dataclass(frozen=True)
class WhichNorm:
    """What `which_norm` found.

    Attributes
    ----------
    rows : tuple of NormRow
        A row a norm.
    best : str or None
        The norm whose margin the training maximised, or favoured beside the references, or
        preferred to the others; None where it cannot be told, or not from the noise.
    evidence : {"limit", "margin and gap", "margin", "none"}
        Why it is named. "limit": its gap is near 0, and that of no other norm is. "margin and gap":
        beside the references its margin is larger and its gap smaller, and in no other norm both
        are so. "margin": its margin is larger than that of the references, and in every other norm
        smaller, or larger by a far smaller factor, which certifies no limit. "none": no norm is
        named. A margin is larger or smaller where the factor is 1.1 at least, and above the spread
        of the references.
    findings : tuple of Finding
        Why a norm is named, or none; then what else was found of the module, its training and its
        references.
    own : str
        The norm of the optimizer; empty without one.
    linear : bool
        Whether the margins are linear in the parameters, so that margins have a certified maximum.
    seconds : float
        Wall time.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import which_norm
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, 1.0]]))
    >>> found = which_norm(module, torch.tensor([[2.0, 1.0]]), [1], norms=("l2", "linf"))
    >>> found.best, [row.norm for row in found.rows]
    ('linf', ['l2', 'linf'])
    """

    rows: tuple[NormRow, ...]
    best: str | None
    evidence: Evidence
    findings: tuple[Finding, ...]
    own: str
    linear: bool
    seconds: float

    @property
    def conclusion(self) -> str:
        """Why a norm is named; or why none is, and what to do."""
        first = self.findings[0]
        return f"{first.found} {first.cure}".rstrip()

    def __str__(self) -> str:
        return f"{text_table(*self._table())}\n\n{self.conclusion}"

    def _repr_html_(self) -> str:
        return f"<div>{html_table(*self._table())}<p>{html.escape(self.conclusion)}</p></div>"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows; columns that say nothing are left out."""

        def measured(gap: GapBounds) -> str:
            bounds = percent_bounds(*(gap.share if self.linear else (gap.lower, gap.upper)))
            return f"{bounds} (stopped)" if gap.stopped else bounds

        what = "margin / maximum" if self.linear else "KKT gap"
        beside = self.rows[0].reference_gap is not None
        several = not math.isnan(self.rows[0].spread)
        headings = ["norm", what, "margin"]
        if beside:
            headings += [f"{what} of the nearest reference", "margin / the references'"]
        if several:
            headings.append("spread of the references")
        table = list[list[str]]()
        for row in self.rows:
            name = row.norm
            if name == self.own:
                name = f"{name} (the optimizer's)"
            cells = [name, measured(row.gap), number(row.margin)]
            if row.reference_gap is not None:
                cells += [measured(row.reference_gap), number(row.factor, 3)]
            if several:
                cells.append(number(row.spread, 3))
            table.append(cells)
        return headings, table


def which_norm(
    module: nn.Module,
    inputs: tuple[Tensor | ArrayLike, ...] | Tensor | ArrayLike,
    labels: ArrayLike | Tensor,
    *,
    optimizer: object = None,
    loss: object = None,
    reference: Reference | Sequence[Reference] | None = None,
    norms: Sequence[GivenNorm] | GivenNorm | None = None,
    max_seconds: float | None = None,
    leading: bool = False,
) -> WhichNorm:
    """Say in which norm a training maximised the margin, if that can be told.

    Raw gaps of different norms do not compare, except near 0 (see the page "Reading gaps across
    norms"). What does is put in a table: of modules that are linear in their parameters the margin
    over its certified maximum; of others bounds on the KKT gap, and beside it the same of a
    reference training.

    Parameters
    ----------
    module : nn.Module
        As in `diagnose`.
    inputs : Tensor, array_like (a frame, say) or tuple of them
        The module's argument or arguments, each with the samples as first axis.
    labels : array_like of shape (N,) or (N, 1)
        As in `diagnose`.
    optimizer : torch.optim.Optimizer, its class or its name, or several optimizers, optional
        What trained it: its own norm joins the table.
    loss : str, MarginLoss or callable, optional
        What was minimised, as in `diagnose`.
    reference : nn.Module or state dict, or a list or tuple of them, optional
        The same architecture, trained otherwise: a ``copy.deepcopy`` of the module from before its
        training, by plain gradient descent, stopped at the same smallest margin, or a state
        recorded early in the training, as soon as all samples are right. Its `state_dict()` does.
        By it a change is seen far from the limit. Several of them, trained in one way from other
        seeds, show the noise: no norm is named whose factor is within their spread. With one the
        noise is unknown, which is one of the findings.
    norms : norm or sequence of norms, optional
        Names or norms, as in `diagnose`; by default l2, linf and spectral.
    max_seconds : float, optional
        Limit on the time of all searches together, which the norms share; where it stops one, its
        bounds so far are reported, and that it was stopped. It is passed by a second at most, or a
        tenth of it if that is more, unless the checks of the modules alone take longer. Without it
        a norm may take as long as in `diagnose`, up to 25 seconds, for the module and each
        reference, so three norms may take 75 seconds alone and 150 beside a reference: with much
        less the bounds say little.
    leading : bool
        Whether to measure the leading part of the module, and of the reference, as `diagnose` does.

    Returns
    -------
    WhichNorm

    Raises
    ------
    HomogeneityError, SeparationError
        As `diagnose`; of the reference, too.
    ValueError, TypeError
        As `diagnose`; no norm, or one twice; a reference of another architecture, or an empty list
        of them.

    Warns
    -----
    DiagnosisWarning
        What makes the numbers mean less, as `diagnose` does.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import which_norm
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[2.0, 1.0]]))
    >>> which_norm(module, torch.tensor([[2.0, 1.0]]), [1], norms=("l2", "linf")).best
    'l2'

    Far from all limits, references of two seeds show the noise. The module's margin in linf is 1.3
    times theirs, which differ by a factor of 1.27 among themselves:

    >>> def weights(*values):
    ...     made = torch.nn.Linear(3, 1, bias=False)
    ...     _ = made.weight.data.copy_(torch.tensor([values]))
    ...     return made
    >>> X = torch.tensor([[1.0, 1.0, 1.0]])
    >>> references = [weights(1.0, 0.9, 0.0), weights(1.0, 0.5, 0.0)]
    >>> found = which_norm(
    ...     weights(1.0, 1.0, 0.2), X, [1], norms=("l2", "linf"), reference=references
    ... )
    >>> [round(row.factor, 2) for row in found.rows], [round(row.spread, 2) for row in found.rows]
    ([1.12, 1.3], [1.05, 1.27])
    """
    started = time.monotonic()
    deadline = Deadline.asked(max_seconds)
    module = as_module(module)
    asked = one_or_several(("l2", "linf", "spectral") if norms is None else norms)
    geometries = {norm.name: norm for norm in map(as_parameter_norm, asked)}
    if not asked or len(geometries) < len(asked):
        raise ValueError(f"norms must name at least one, and none twice, got {asked}")
    limit = limit_of(module, None, optimizer)
    own = ""
    if optimizer is not None:
        own = limit.norm.name
        geometries.setdefault(own, limit.norm)
    references = _as_references(reference)
    with one_thread_if_small(module, inputs), evaluating(module) as modes:
        # The module is checked once; of a reference, whose inputs are the same, its margins are.
        checked = check(
            module, inputs, labels, modes, optimizer, norms=geometries.values(), leading=leading
        )
        subject = checked.subject
        judged = judge(loss, subject.gradients.classes)
        subjects = [subject]
        subjects += [_reference(each, module, inputs, labels, subject) for each in references]
        # What follows the searches takes about as long as the checks did.
        deadline = deadline.leaving(time.monotonic() - started)
        rows = _rows(subjects, geometries, deadline)
        reached = [each.itself.min_margin for each in subjects]
        best, evidence, why = conclude(rows, own, reached, subject.degree)
        findings = [why, *_of_the_references(rows, reached, evidence)]
        findings += TrainingTest().findings(subject, limit, optimizer, loss, judged)
        findings += what_is_measured(subject, geometries[best or rows[0].norm])
        findings += checked.findings
    warn(findings, stacklevel=2)
    return WhichNorm(
        rows=tuple(rows),
        best=best,
        evidence=evidence,
        findings=tuple(findings),
        own=own,
        linear=subject.linear,
        seconds=time.monotonic() - started,
    )


def _as_references(reference: Reference | Sequence[Reference] | None) -> Sequence[Reference]:
    """Return the references, one or several or none."""
    if reference is None:
        return []
    if isinstance(reference, (nn.Module, Mapping)):  # a list of modules may be one: nn.Sequential
        return [reference]
    if not reference:
        raise ValueError("reference has no module: pass at least one, or leave it out")
    return reference


def _reference(
    reference: Reference,
    module: nn.Module,
    inputs: Any,
    labels: ArrayLike,
    subject: Subject,
) -> Subject:
    """Put the reference's values into a copy of the module, and check that it can be measured."""
    state = reference
    if isinstance(reference, nn.Module):
        state = as_module(reference).state_dict()
    # What a forward pass left behind (a pruned weight, a cached activation) has no deep copy.
    left = dict[int, Tensor]()
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                left[id(value)] = value.detach()
    other = copy.deepcopy(module, left)
    try:
        other.load_state_dict(state)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the reference is not of the module's architecture ({error}): pass a deep copy of it "
            "that was trained otherwise, or the state_dict() of one"
        ) from None
    found = Subject.of(
        margins_of(other.eval(), inputs, labels),
        subject.gradients.shapes,
        subject.degree,
        leading=subject.whole is not None,
    )
    if not found.min_margin > 0:
        where = ""
        if found.itself.min_margin > 0:
            where = " in its leading part"
        raise SeparationError(
            f"the reference has samples on the wrong side{where} (smallest margin "
            f"{found.min_margin:.3g}), so it has no gap: pass a later state of its training"
        )
    return found


def _rows(
    subjects: Sequence[Subject], norms: Mapping[str, ParameterNorm], deadline: Deadline
) -> list[NormRow]:
    """Measure a module, and references if there are any, in each norm."""
    # Norms that agree at random parameters are the same.
    gradients = subjects[0].gradients
    drawn = gradients.parameters(drawn_like(gradients.theta))
    sizes = {name: norm.value(drawn) for name, norm in norms.items()}

    rows = list[NormRow]()
    left = len(norms) * len(subjects)
    for name, norm in norms.items():
        gaps = list[GapBounds]()
        margins = list[float]()
        for subject in subjects:
            gaps.append(_gap_bounds(subject, norm, deadline.sooner(1.0 / left)))
            margins.append(subject.normalised_margin(norm))
            left -= 1
        same = [b for b in sizes if b != name and math.isclose(sizes[b], sizes[name])]
        row = NormRow(name, gaps[0], margins[0], same=tuple(same))
        if len(subjects) > 1:
            row = _beside(row, gaps[1:], margins[1:])
        rows.append(row)
    return rows


def _beside(row: NormRow, gaps: Sequence[GapBounds], margins: Sequence[float]) -> NormRow:
    """Put the references' gaps and margins beside those of a module."""
    smallest = GapBounds(
        min(gap.lower for gap in gaps),
        min(gap.upper for gap in gaps),
        stopped=any(gap.stopped for gap in gaps),
    )
    # Ratios to one of them, whose product stays in the range of float64 where theirs does not.
    ratios = [margin / margins[0] for margin in margins]
    mean = margins[0] * math.prod(ratios) ** (1.0 / len(ratios))
    spread = math.nan
    if len(ratios) > 1:
        spread = max(ratios) / min(ratios)
    return replace(row, reference_gap=smallest, reference_margin=mean, spread=spread)


def _gap_bounds(subject: Subject, norm: ParameterNorm, deadline: Deadline) -> GapBounds:
    """Bound the KKT gap in a norm, by the certified optimum where the module has one."""
    program = subject.at_margin_1(norm)
    if subject.linear:
        known = in_function_space(program, deadline.left)
        if known is not None and known.certificate is not None:
            lower = kkt_gap(known.certificate.upper, known.value)
            upper = kkt_gap(known.certificate.lower, known.value)
            return GapBounds(lower, upper, deadline.passed)
    best = best_multipliers(program, deadline=deadline)
    return GapBounds(best.gap_lower, best.gap, best.method == "stopped")


# The norm that is named, by which evidence, and why; or why none is.
Conclusion = tuple[str | None, Evidence, Finding]


def conclude(
    rows: Sequence[NormRow],
    own: str,
    reached: Sequence[float],
    degree: float,
    *,
    dwarfs: float = 10.0,
    next_to_1: float = 1.01,
    as_far: float = 1.1,
) -> Conclusion:
    """Name the norm whose margin was maximised, or say why none can be named.

    Parameters
    ----------
    rows : sequence of NormRow
        What was measured.
    own : str
        The norm of the optimizer; empty without one.
    reached : sequence of float
        Smallest margins of the module and of each reference.
    degree : float
        L.
    dwarfs : float
        One factor dwarfs another where its logarithm is this many times that of the other, ...
    next_to_1 : float
        ... and that of this number for each unit of the degree, as margins are over the power L of
        the norm.
    as_far : float
        Of two trainings the smallest margins are alike if neither is above this times the other.
    """

    def others(row: NormRow) -> list[NormRow]:
        """Norms that compete with one: not those that are the same on these parameters."""
        return [each for each in rows if each is not row and each.norm not in row.same]

    def not_excluded(named: NormRow) -> Finding | None:
        """Say against which other norm the reference does not speak."""
        for row in others(named):
            gap = row.reference_gap
            assert gap is not None
            # By its gap the reference's margin can rise by (1 - gap)^(-L/2): by less than the root
            # of the largest factor, if it is near a limit in this norm, too.
            full = named.factor * (1.0 - gap.lower) ** degree > 1.0
            behind = row.norm == own and gap.upper < row.gap.lower
            if (full and not row.fell) or behind:
                said = {"norm": named.norm}
                return Finding(Code.RIVAL, named.factor, (row.norm,), said)
        return None

    def none(code: Code, row: NormRow, value: float, names: Sequence[str] = ()) -> Conclusion:
        details = {"norm": row.norm, "reached": reached[0]}
        return None, "none", Finding(code, value, tuple(names), details)

    # --- the gap is near 0 in one norm alone ------------------------------------------------------
    nearest = min(rows, key=lambda row: row.gap.upper)
    near = nearest.gap.upper <= Thresholds.near
    also = list[str]()
    for row in others(nearest):
        if nearest.gap.upper > Thresholds.clearly_below * row.gap.lower:
            also.append(row.norm)
    if near and not also:
        said = {"norm": nearest.norm}
        return nearest.norm, "limit", Finding(Code.LIMIT, nearest.gap.upper, details=said)
    if nearest.reference_gap is None:
        if near:
            return none(Code.SEVERAL_NEAR_ZERO, nearest, nearest.gap.upper, also)
        if own in GRADIENT_DESCENTS:
            return none(Code.GRADIENT_DESCENT_IS_FAR, nearest, nearest.gap.upper)
        return none(Code.NO_GAP_NEAR_ZERO, nearest, nearest.gap.upper)

    # --- beside the references, the margin rose and the gap fell in one norm alone ----------------
    most = max(rows, key=lambda row: row.factor)
    overlapping = [row.norm for row in rows if row.favoured is None]
    favoured = [row for row in rows if row.favoured]
    alike = [row for row in favoured[1:] if row.norm not in favoured[0].same]
    if overlapping:
        undecided = none(Code.BOUNDS_OVERLAP, most, most.factor, overlapping)
    elif not any(row.rose for row in rows):
        undecided = none(Code.WITHIN_NOISE, most, most.factor)
    elif not favoured:
        undecided = none(Code.MARGIN_WITHOUT_GAP, most, most.factor)
    elif alike:
        undecided = none(Code.SEVERAL_FAVOURED, most, most.factor, [row.norm for row in favoured])
    else:
        first = favoured[0]
        rival = not_excluded(first)
        if rival is None:
            said = {"norm": first.norm}
            why = Finding(Code.MARGIN_AND_GAP, first.factor, details=said)
            return first.norm, "margin and gap", why
        undecided = (None, "none", rival)

    # --- beside the references, the margin rose in one norm, and fell or rose far less in others --
    rivals = others(most)
    traded = bool(rivals) and all(row.fell for row in rivals)
    # A factor within the noise may be as large as the noise.
    noise = 1.0
    if not math.isnan(most.spread):
        noise = max((row.spread for row in rivals), default=1.0)
    rest = max((row.factor * noise for row in rivals), default=math.inf)
    dwarfed = most.factor ** (1.0 / dwarfs) >= max(rest, next_to_1**degree)
    if not most.rose or not (traded or dwarfed):
        return undecided
    # An earlier state of gradient descent seems to prefer other norms: its margin in l2 rises.
    if as_far * reached[0] < max(reached[1:]):
        return none(Code.REFERENCE_IS_AHEAD, most, most.factor)
    rival = not_excluded(most)
    if rival is not None:
        return None, "none", rival
    said = {"norm": most.norm}
    return most.norm, "margin", Finding(Code.MARGIN, most.factor, details=said)


def _of_the_references(
    rows: Sequence[NormRow], reached: Sequence[float], evidence: Evidence, as_far: float = 1.1
) -> list[Finding]:
    """Say what the references lack: others of them, steps, or time for the search."""
    found = list[Finding]()
    if len(reached) == 2:
        found.append(Finding(Code.ONE_REFERENCE))
    if len(reached) > 1 and evidence != "margin" and reached[0] > as_far * min(reached[1:]):
        behind = {"reached": reached[0]}
        found.append(Finding(Code.REFERENCE_IS_BEHIND, min(reached[1:]), details=behind))
    if any(row.stopped for row in rows):
        found.append(Finding(Code.STOPPED))
    return found
