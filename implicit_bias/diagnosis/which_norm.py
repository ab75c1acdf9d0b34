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
one reference the spread is unknown, which the conclusion says.

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
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.wording import html_table, number, percent, percent_bounds, text_table
from implicit_bias.diagnosis import recipe
from implicit_bias.diagnosis.escape import FAR
from implicit_bias.diagnosis.function_space import in_function_space
from implicit_bias.diagnosis.result import ANOTHER
from implicit_bias.diagnosis.traps import DiagnosisWarning, checked
from implicit_bias.modules.evaluate import as_module, drawn_like, evaluating
from implicit_bias.modules.lent_threads import one_thread_if_small
from implicit_bias.modules.margin_gradients import MarginGradients
from implicit_bias.modules.multipliers import best_multipliers, kkt_gap
from implicit_bias.modules.subject import SeparationError, Subject, margins_of
from implicit_bias.norms.tensors import GivenNorm, ParameterNorm, as_parameter_norm, one_or_several

# A margin has risen if it is at least this many times the references', and above their spread.
RISEN = 1.1
# A gap has fallen if it is below the reference's by this share, not by what any training changes.
FALLEN = 0.05
# One factor dwarfs another where its logarithm is this many times that of the other, and that of
# NEXT_TO_1 for each unit of the degree L, as margins are over the power L of the norm.
DWARFS, NEXT_TO_1 = 10.0, 1.01
# Of two trainings the smallest margins are alike if neither is above this times the other.
AS_FAR = 1.1
# The norms of gradient descent, of Adam and of Muon on all matrices.
NORMS = ("l2", "linf", "spectral")

# A module of the same architecture, or its state dict.
Reference: TypeAlias = nn.Module | Mapping[str, Tensor]
Evidence = Literal["limit", "margin and gap", "margin", "none"]
# How a norm is named by what speaks for it, the strongest first.
NAMED: dict[Evidence, str] = {
    "limit": "The margin was maximised in",
    "margin and gap": "The training favoured",
    "margin": "Beside the reference, the training preferred",
}


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
    stopped: bool

    @property
    def share(self) -> tuple[float, float]:
        """Bounds on sqrt(1 - gap): of a linear module, its margin over the maximum."""
        return math.sqrt(1.0 - self.upper), math.sqrt(1.0 - self.lower)

    def __str__(self) -> str:
        return percent_bounds(self.lower, self.upper)


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

    @property
    def factor(self) -> float:
        """Margin over the references'; nan without one."""
        return self.margin / self.reference_margin

    @property
    def noise(self) -> float:
        """The factor that a margin has to reach: 1.1, or the spread, which it has to exceed."""
        return RISEN if math.isnan(self.spread) else max(RISEN, self.spread)

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
        return factor >= RISEN and not factor <= self.spread

    @property
    def favoured(self) -> bool | None:
        """Whether the training was towards this norm; None where bounds overlap.

        It was where the margin rose, and the gap is below that of each reference.
        """
        if self.reference_gap is None or not self.rose:
            return False
        if self.gap.upper < (1.0 - FALLEN) * self.reference_gap.lower:
            return True
        return False if self.gap.lower >= (1.0 - FALLEN) * self.reference_gap.upper else None

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
    conclusion : str
        That in a sentence, or why it cannot be told.
    linear : bool
        Whether the margins are linear in the parameters, so that margins have a certified maximum.
    seconds : float
        Wall time.
    evidence : {"limit", "margin and gap", "margin", "none"}
        Why it is named. "limit": its gap is near 0, and that of no other norm is. "margin and gap":
        beside the references its margin is larger and its gap smaller, and in no other norm both
        are so. "margin": its margin is larger than that of the references, and in every other norm
        smaller, or larger by a far smaller factor, which certifies no limit. "none": no norm is
        named. A margin is larger or smaller where the factor is 1.1 at least, and above the spread
        of the references.

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
    conclusion: str
    linear: bool
    seconds: float
    evidence: Evidence

    def __str__(self) -> str:
        return f"{text_table(*self._table())}\n\n{self.conclusion}"

    def _repr_html_(self) -> str:
        return f"<div>{html_table(*self._table())}<p>{html.escape(self.conclusion)}</p></div>"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows; columns that say nothing are left out."""

        def measured(gap: GapBounds) -> str:
            bounds = percent_bounds(*(gap.share if self.linear else (gap.lower, gap.upper)))
            return bounds + (" (stopped)" if gap.stopped else "")

        what = "margin / maximum" if self.linear else "KKT gap"
        headings = ["norm", what, "margin"]
        if self.rows[0].reference_gap is not None:
            headings += [f"{what} of the reference", "margin / the reference's"]
        several = not math.isnan(self.rows[0].spread)
        if several:
            headings[-2:] = [f"{what} of the nearest reference", "margin / the references'"]
            headings.append("spread of the references")
        table = list[list[str]]()
        for row in self.rows:
            cells = [row.norm, measured(row.gap), number(row.margin)]
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
        What trained it: its own norm joins the table, and the conclusion says whether it is the
        one that was found.
    loss : str, MarginLoss or callable, optional
        What was minimised, as in `diagnose`.
    reference : nn.Module or state dict, or a list or tuple of them, optional
        The same architecture, trained otherwise: a ``copy.deepcopy`` of the module from before its
        training, by plain gradient descent, stopped at the same smallest margin (else the
        conclusion says so, with the call), or a state recorded early in the training, as soon as
        all samples are right. Its `state_dict()` does. By it a change is seen far from the limit.
        Several of them, trained in one way from other seeds, show the noise: no norm is named whose
        factor is within their spread. With one the noise is unknown, and the conclusion says so.
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
    several = one_or_several(NORMS if norms is None else norms)
    geometries = {norm.name: norm for norm in map(as_parameter_norm, several)}
    if not several or len(geometries) < len(several):
        raise ValueError(f"norms must name at least one, and none twice, got {several}")
    geometry, _, obstacles = recipe.limit_of(module, None, optimizer)
    own = "" if optimizer is None else geometry.name
    if own:
        geometries.setdefault(own, geometry)
    with (
        one_thread_if_small(module, inputs),
        evaluating(module) as modes,
    ):
        subject, _, found = checked(
            *(module, inputs, labels, modes, optimizer),
            norms=geometries.values(),
            leading=leading,
        )
        unfit = recipe.loss_obstacle(loss, subject.gradients.classes)
        subjects = [subject]
        for each in _several(reference):
            subjects.append(_reference(each, module, inputs, labels, subject))
        # What follows the searches takes about as long as the checks did.
        deadline = deadline.leaving(time.monotonic() - started)
        rows = _rows(subjects, geometries, deadline)
        twins = _twins(subject.gradients, geometries)
        best, evidence, conclusion = _conclude(rows, twins, own, subjects)
        asked = _in_question(rows, best or own)
        call = recipe.call_towards(subject, asked.norm, read=asked.norm == own)
        obstacles += [unfit] if unfit else recipe.standstill(subject, call, optimizer, loss)
        if evidence in ("margin", "none"):
            conclusion += _what_would_tell(rows, asked, own, evidence, subject, call)
        conclusion += _as_far(subjects, evidence)
        rests = [percent(each.rest, space=" ") for each in subjects]
    for text in (*found, *(obstacle.warning for obstacle in obstacles if obstacle.warns)):
        warnings.warn(text, DiagnosisWarning, stacklevel=2)
    quiet = (obstacle.advice for obstacle in obstacles if not obstacle.warns)
    conclusion += "".join(f" What helps: {text}." for text in quiet)
    if len(subjects) == 2:
        conclusion += (
            " The noise is unknown, as there is one reference: pass several, trained in the same "
            "way from other seeds, as reference=[...]."
        )
    conclusion = recipe.once(conclusion)
    if stopped := [row.norm for row in rows if row.stopped]:
        conclusion += (
            f" The search in {', '.join(stopped)} was stopped after {max_seconds:g} seconds: more "
            "of max_seconds brings its bounds closer."
        )
    if leading:
        conclusion += (
            " All of this is about the leading part of the module, beside which the rest is "
            f"{rests[0]}{_of_references(rests[1:])}; beyond l2 no theorem is known for it."
        )
    seconds = time.monotonic() - started
    return WhichNorm(tuple(rows), best, conclusion, subject.linear, seconds, evidence)


def _several(reference: Reference | Sequence[Reference] | None) -> Sequence[Reference]:
    """Return the references, one or several or none."""
    if reference is None:
        return []
    if isinstance(reference, (nn.Module, Mapping)):  # a list of modules may be one: nn.Sequential
        return [reference]
    if not reference:
        raise ValueError("reference has no module: pass at least one, or leave it out")
    return reference


def _of_references(said: Sequence[str]) -> str:
    """Say the same of the references, in brackets; nothing without one."""
    if not said:
        return ""
    return f" (of the reference{'s' if said[1:] else ''} {', '.join(said)})"


def _reference(
    reference: Reference,
    module: nn.Module,
    inputs: Any,
    labels: ArrayLike,
    subject: Subject,
) -> Subject:
    """Put the reference's values into a copy of the module, and check that it can be measured."""
    state = as_module(reference).state_dict() if isinstance(reference, nn.Module) else reference
    # What a forward pass left behind (a pruned weight, a cached activation) has no deep copy.
    parts = (value for part in module.modules() for value in vars(part).values())
    left = {id(v): v.detach() for v in parts if isinstance(v, Tensor) and not v.is_leaf}
    other = copy.deepcopy(module, left)
    try:
        other.load_state_dict(state)
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
        part = " in its leading part" if found.itself.min_margin > 0 else ""
        raise SeparationError(
            f"the reference has samples on the wrong side{part} (smallest margin "
            f"{found.min_margin:.3g}), so it has no gap: pass a later state of its training"
        )
    return found


def _twins(
    gradients: MarginGradients, norms: Mapping[str, ParameterNorm]
) -> dict[str, tuple[str, ...]]:
    """Find norms that are the same of parameters of these shapes: spectral and l2 of a vector."""
    drawn = gradients.parameters(drawn_like(gradients.theta))
    sizes = {name: norm.value(drawn) for name, norm in norms.items()}
    return {
        a: tuple(b for b in sizes if b != a and math.isclose(sizes[a], sizes[b])) for a in sizes
    }


def _rows(
    subjects: Sequence[Subject], norms: Mapping[str, ParameterNorm], deadline: Deadline
) -> list[NormRow]:
    """Measure a module, and references if there are any, in each norm."""
    rows, left = list[NormRow](), len(norms) * len(subjects)
    for name, norm in norms.items():
        gaps, margins = list[GapBounds](), list[float]()
        for subject in subjects:
            gaps.append(_bounds(subject, norm, deadline.sooner(1.0 / left)))
            margins.append(subject.normalised_margin(norm))
            left -= 1
        row = NormRow(name, gaps[0], margins[0])
        if gaps[1:]:
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
    spread = max(ratios) / min(ratios) if len(ratios) > 1 else math.nan
    return replace(row, reference_gap=smallest, reference_margin=mean, spread=spread)


def _bounds(subject: Subject, norm: ParameterNorm, deadline: Deadline) -> GapBounds:
    """Bound the KKT gap in a norm, by the certified optimum where the module has one."""
    program = subject.at_margin_1(norm)
    known = in_function_space(program, deadline.left) if subject.linear else None
    if known is not None and known.certificate is not None:
        lower, upper = known.certificate.lower, known.certificate.upper
        return GapBounds(kkt_gap(upper, known.value), kkt_gap(lower, known.value), deadline.passed)
    best = best_multipliers(program, deadline=deadline)
    return GapBounds(best.gap_lower, best.gap, best.method == "stopped")


def _in_question(rows: Sequence[NormRow], asked: str) -> NormRow:
    """Return the row of a norm, or else of the one that is likeliest to be named."""
    likeliest = max(
        rows, key=lambda row: row.factor if row.reference_gap is not None else -row.gap.upper
    )
    return next((row for row in rows if row.norm == asked), likeliest)


def _what_would_tell(
    rows: Sequence[NormRow],
    row: NormRow,
    own: str,
    evidence: Evidence,
    subject: Subject,
    call: str,
) -> str:
    """Say how far the norm in question is, and what would have it named."""
    others = [other for other in rows if other is not row]
    wanted = [f"at most {percent(FAR, space=' ')}"] if row.gap.upper > FAR else []
    if any(row.gap.upper > ANOTHER * other.gap.lower for other in others):
        wanted.append("at most half of any other")
    theirs = ", the optimizer's own norm," if row.norm == own else ""
    named = "the norm of its limit" if evidence == "margin" else "named"
    before = "train on as before" + ", and name the optimizer by optimizer=" * (not own)
    said = (
        f" {row.norm}{theirs} would be {named} once its gap ({row.gap}) is {' and '.join(wanted)}: "
        f"{f'train on by `{call}`' if theirs else before}."
    )
    if evidence == "margin":
        return said
    if row.reference_gap is None:
        if theirs and row.norm in recipe.GRADIENT_DESCENTS:
            return f"{said} No reference by gradient descent tells it sooner: it goes there, too."
        return (
            f"{said} A reference tells sooner: pass reference=start, a copy.deepcopy(module) from "
            "before the training, trained by gradient descent to the same smallest margin, "
            f"`{_to_its_margin(subject, 'start')}`."
        )
    gap = (1.0 - FALLEN) * row.reference_gap.lower
    if gap <= FAR:
        return f"{said} This reference tells nothing: it is near a limit in {row.norm} itself."
    wanted = []
    if not row.rose:
        least, now = number(row.noise, 3), number(row.factor, 3)
        wanted.append(f"its margin is above {least} times the reference's (now {now} times)")
    if row.gap.upper >= gap:
        wanted.append(f"its gap is below {percent(gap, space=' ')}")
    if any(other.favoured is not False for other in others):
        wanted.append("no other norm has a larger margin and a smaller gap than there")
    return f"{said} Beside this reference it would be once {' and '.join(wanted)}."


def _to_its_margin(subject: Subject, name: str) -> str:
    """Write what trains a module by gradient descent to the smallest margin of another.

    Whether it gets there is what the call returns: another network may never do.
    """
    call = subject.training_call("LimitConfig(steps=30)").replace("module", name, 1)
    reached = number(subject.itself.min_margin, 3)
    return f"any({call}.history[-1].min_margin >= {reached} for _ in range(100))"


def _as_far(subjects: Sequence[Subject], evidence: Evidence) -> str:
    """Say where a reference was trained less far than the module, by the smallest margins."""
    ours, theirs = subjects[0].itself.min_margin, _reached(subjects[1:])
    if evidence == "margin" or not theirs or ours <= AS_FAR * min(theirs):
        return ""
    return (
        " A reference tells more if it is trained as far (its smallest margin is "
        f"{number(min(theirs), 3)}): `{_to_its_margin(subjects[0], 'reference')}`."
    )


def _reached(references: Sequence[Subject]) -> list[float]:
    """Smallest margins of the references."""
    return [reference.itself.min_margin for reference in references]


# A norm that is named and why, or None and why none is.
Finding = tuple[NormRow | None, str]


def _conclude(
    rows: Sequence[NormRow],
    twins: Mapping[str, tuple[str, ...]],
    own: str,
    subjects: Sequence[Subject],
) -> tuple[str | None, Evidence, str]:
    """Name the norm whose margin was maximised, or say why none can be named."""
    others = {
        best.norm: [row for row in rows if row is not best and row.norm not in twins[best.norm]]
        for best in rows
    }
    found: dict[Evidence, Finding] = {"limit": _near_a_limit(rows, others, subjects[0].linear)}
    if rows[0].reference_gap is not None:
        found["margin and gap"] = _favoured(rows, others)
        found["margin"] = _preferred(rows, others, subjects)
    reasons = dict[str, None]()
    for evidence, (best, why) in found.items():
        rivals = [] if best is None or evidence == "limit" else others[best.norm]
        if best is not None and (left := _undecided(best, rivals, own, subjects[0].degree)):
            best, why = None, left
        reasons[why] = None
        if best is not None:
            same = f" (here the same as {', '.join(twins[best.norm])})" if twins[best.norm] else ""
            theirs = ", the optimizer's own norm" if own else ""
            if own and own not in (best.norm, *twins[best.norm]):
                theirs = f", not the optimizer's own norm, {own}"
            return best.norm, evidence, f"{NAMED[evidence]} {best.norm}{same}{theirs}: {why}."
    return None, "none", f"It cannot be told: {', and '.join(filter(None, reasons))}."


def _undecided(best: NormRow, rivals: Sequence[NormRow], own: str, degree: float) -> str:
    """Say why a reference does not speak against some norm; empty where it does against all."""
    for row in rivals:
        gap, theirs = row.reference_gap, "the optimizer's own norm, " * (row.norm == own)
        assert gap is not None
        full = best.factor * (1.0 - gap.lower) ** degree > 1.0
        if (full and not row.fell) or (theirs and gap.upper < row.gap.lower):
            return (
                f"the margin is {number(best.factor, 3)} times that of the reference in "
                f"{best.norm}, which does not speak against {row.norm}: {theirs}"
                f"{number(row.factor, 3)} times, of a reference whose gap there is {gap}"
            )
    return ""


def _near_a_limit(
    rows: Sequence[NormRow], others: Mapping[str, Sequence[NormRow]], linear: bool
) -> Finding:
    """Find the norm in which alone the gap is near 0."""
    best = min(rows, key=lambda row: row.gap.upper)
    if best.gap.upper > FAR:
        return None, "no gap is near 0, and larger ones do not compare across norms"
    rivals = others[best.norm]
    if also := [row.norm for row in rivals if best.gap.upper > ANOTHER * row.gap.lower]:
        return None, (
            f"the gap is near 0 in {best.norm}, but as far as the bounds say it may be so in "
            f"{', '.join(also)}, too"
        )
    share = best.gap.share[0] if linear else best.gap.upper
    what = "margin is at least {} of the maximum" if linear else "KKT gap is at most {}"
    nearer = ", and clearly nearer than in any other norm" if rivals else ""
    return best, f"there the {what.format(percent(share, space=' '))}, near the limit{nearer}"


def _favoured(rows: Sequence[NormRow], others: Mapping[str, Sequence[NormRow]]) -> Finding:
    """Find the norm in which alone the margin rose beside the reference and the gap fell."""
    most = max(rows, key=lambda row: row.factor)
    if overlapping := [row.norm for row in rows if row.favoured is None]:
        return None, (
            f"in {', '.join(overlapping)} the margin rose, but the bounds on the gap overlap those "
            "of the reference"
        )
    if not any(row.rose for row in rows):
        return None, (
            f"in no norm is the margin above the reference's by more than the noise (most in "
            f"{most.norm}, {number(most.factor, 3)} times, of {number(most.noise, 3)} that count)"
        )
    favoured = [row for row in rows if row.favoured]
    if not favoured:
        return None, "compared with the reference in no norm both the margin rose and the gap fell"
    first = favoured[0]
    if any(row in others[first.norm] for row in favoured):
        return None, (
            "compared with the reference the margin rose and the gap fell in "
            f"{', '.join(row.norm for row in favoured)} alike; the margin most in {most.norm}, "
            f"{number(most.factor, 3)} times"
        )
    only = ", in no other norm both" if others[first.norm] else ""
    return first, (
        f"compared with the reference its margin is {number(first.factor, 3)} times as large and "
        f"its gap smaller{only}"
    )


def _preferred(
    rows: Sequence[NormRow], others: Mapping[str, Sequence[NormRow]], subjects: Sequence[Subject]
) -> Finding:
    """Find the norm in which the margin rose and in all others fell or rose far less."""
    most = max(rows, key=lambda row: row.factor)
    rivals = others[most.norm]
    traded = bool(rivals) and all(row.fell for row in rivals)
    # A factor within the noise may be as large as that.
    noise = 1.0 if math.isnan(most.spread) else max((row.spread for row in rivals), default=1.0)
    rest = max((row.factor * noise for row in rivals), default=math.inf)
    dwarfed = most.factor ** (1.0 / DWARFS) >= max(rest, NEXT_TO_1 ** subjects[0].degree)
    if not most.rose or not (traded or dwarfed):
        return None, ""
    ours, theirs = subjects[0].itself.min_margin, _reached(subjects[1:])
    if AS_FAR * ours < max(theirs):
        return None, (
            f"beside the reference the margin is by far the largest in {most.norm}, but so it may "
            "have been in an earlier state of the reference: stop it at the same smallest margin, "
            f"{number(ours, 3)}"
        )
    lost = ", ".join(f"{row.norm} {number(row.factor, 3)}" for row in rivals)
    return most, (
        f"its margin there is {number(most.factor, 3)} times that of the reference, and "
        f"{'below it' if traded else 'far less'} in every other norm ({lost}), with smallest "
        f"margins of {number(ours, 3)} here and {', '.join(number(m, 3) for m in theirs)} there. "
        "This certifies no "
        f"limit: the KKT gap is {most.gap} here and {most.reference_gap} there"
    )
