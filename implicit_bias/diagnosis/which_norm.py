r"""In which norm did a training maximize the margin, by what can be compared across norms.

A table has a row for each norm: bounds on the KKT gap, the normalized margin, and both of reference
trainings if there are any. What follows from these numbers is in `norm_evidence`.

Where the margins are linear in all parameters, sqrt(1 - gap) is the margin over the maximum.

Source: Lyu and Li (2020); Tsilivis, Vardi, Kempe (2024).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.threads import one_thread_if_small
from implicit_bias.base.wording import number, text_table
from implicit_bias.diagnosis.checkpoints import State, at_state
from implicit_bias.diagnosis.checks import check, what_is_measured
from implicit_bias.diagnosis.findings import Code, Finding, GapBounds, warn
from implicit_bias.diagnosis.loss_tail import judge_loss
from implicit_bias.diagnosis.norm_evidence import Evidence, NormRow, NormTable
from implicit_bias.diagnosis.training import of_training
from implicit_bias.modules.evaluate import as_module, drawn_like, evaluating
from implicit_bias.modules.loading import collected
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.multipliers import best_multipliers
from implicit_bias.modules.optimizers import measured_norm
from implicit_bias.modules.subject import SeparationError, Subject, margins_of
from implicit_bias.norms.tensors import GivenNorm, ParameterNorm, as_parameter_norm, one_or_several


@dataclass(frozen=True)
class WhichNorm:
    """What `which_norm` found.

    Attributes
    ----------
    rows : tuple of NormRow
        A row a norm.
    best : str or None
        The norm whose margin the training maximized, or preferred to the others; None where that
        does not follow.
    evidence : {"limit", "margin and gap", "margin", "none"}
        The rule of `norm_evidence` that names it. "limit": its gap is near 0, and that of no other
        norm is. "margin and gap": beside the references its margin is larger and its gap smaller,
        in no other norm both are so, and margins in other norms are smaller. "margin": its margin
        is larger than that of the references, and in every other norm smaller, which certifies no
        limit. "none": no norm is named.
    findings : tuple of Finding
        Why a norm is named, or none; then what else was found of the module, its training and its
        references.
    optimizer_norm : str
        The norm of the optimizer; empty without one.
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
    optimizer_norm: str
    seconds: float

    @property
    def conclusion(self) -> str:
        """Why a norm is named; or why none is, and what to do."""
        first = self.findings[0]
        return f"{first.found} {first.cure}".rstrip()

    def __str__(self) -> str:
        lines = [self.conclusion]
        for finding in self.findings:
            text = " ".join(str(finding).split())  # without line breaks
            # The table marks each search that was stopped, and this line says what the mark means.
            if finding.code is Code.STOPPED:
                lines.append(f"(stopped): {text}")
            elif finding.code is Code.LINEAR_MODULE:
                lines.append(text)
        table = text_table(*self._table())
        return f"{table}\n\n" + "\n".join(lines)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells; columns of references only where there are some."""
        headings = ["norm", "KKT gap", "margin"]
        if self.rows[0].reference_gap is not None:
            headings += ["KKT gap of the nearest reference", "margin / the references'", "spread"]
        table = list[list[str]]()
        for row in self.rows:
            name = row.norm
            if name == self.optimizer_norm:
                name = f"{name} (the optimizer's)"
            cells = [name, str(row.gap), number(row.margin)]
            if row.reference_gap is not None:
                spread = number(row.spread, 3)
                if math.isnan(row.spread):
                    spread = "needs two references"
                cells += [str(row.reference_gap), number(row.factor, 3), spread]
            table.append(cells)
        return headings, table


def which_norm(
    module: nn.Module,
    inputs: tuple[Tensor | ArrayLike, ...] | Tensor | ArrayLike | Iterable[Any],
    labels: ArrayLike | Tensor | None = None,
    *,
    optimizer: object = None,
    loss: object = None,
    reference: State | Sequence[State] | None = None,
    norms: Sequence[GivenNorm] | GivenNorm | None = None,
    max_seconds: float | None = None,
    leading: bool = False,
) -> WhichNorm:
    """Name the norm in which a training maximized the margin, if the numbers name one.

    Raw gaps of different norms do not compare, except near 0 (see the page "Reading gaps across
    norms"). What does is put in a table: bounds on the KKT gap, and beside it the same of a
    reference training.

    Parameters
    ----------
    module : nn.Module
        As in `diagnose`.
    inputs : Tensor, array_like (a frame, say), tuple of them, or loader
        The module's argument or arguments, each with the samples as first axis; or a loader of
        batches (x, y).
    labels : array_like of shape (N,) or (N, 1), optional
        As in `diagnose`; left out beside a loader.
    optimizer : torch.optim.Optimizer, its class or its name, or several optimizers, optional
        What trained it: its own norm joins the table.
    loss : str, MarginLoss or callable, optional
        What was minimized, as in `diagnose`.
    reference : nn.Module or state dict, or a list or tuple of them, optional
        The same architecture, trained otherwise: a ``copy.deepcopy`` of the module from before its
        training, by plain gradient descent, stopped at the same smallest margin, or a state
        recorded early in the training, as soon as all samples are right. Its `state_dict()` does.
        It shows a change far from the limit, too. Several of them, trained in one way from other
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
        Whether to measure the leading-order part of the module, and of the reference, as `diagnose`
        does.

    Returns
    -------
    WhichNorm

    Raises
    ------
    HomogeneityError, SeparationError
        As `diagnose`; of the reference, too.
    ValueError, TypeError
        As `diagnose`; no norm, or one twice; an empty list of references, or one of another
        architecture.
    TimeoutError
        As `diagnose`.

    Warns
    -----
    DiagnosisWarning
        What makes the numbers mean less, as `diagnose` does.

    Notes
    -----
    Without a reference a norm is named only where a gap is near 0. Plain training hardly gets
    there, as gradients vanish with the loss. Continue with the same optimizer on the logarithm of
    the loss; Adam also needs a rate that falls and a negligible eps. (`train_to_limit` in a norm
    says nothing of this: its steps are not those of the optimizer.)

    Of modules that are linear in all parameters sqrt(1 - gap) is the margin over the maximum
    margin, and ``diagnose(..., norm=...).function_space`` has the certified excess.

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
    inputs, labels = collected(inputs, labels)
    if norms is None:
        norms = ("l2", "linf", "spectral")
    asked = one_or_several(norms)
    geometries = {norm.name: norm for norm in map(as_parameter_norm, asked)}
    if not asked or len(geometries) < len(asked):
        raise ValueError(f"norms must name at least one, and none twice, got {asked}")
    measured = measured_norm(module, None, optimizer)
    optimizer_norm = ""
    if optimizer is not None:
        optimizer_norm = measured.norm.name
        # A norm that was asked for by this name is the same one: the row is not there twice.
        geometries.setdefault(optimizer_norm, measured.norm)
    references = _as_references(reference)
    with evaluating(module) as (module, modes), one_thread_if_small(module, inputs):
        # The module is checked; of a reference, whose inputs are the same, its margins are.
        subject, doubts = check(
            module,
            inputs,
            labels,
            modes,
            optimizer,
            norms=geometries.values(),
            leading=leading,
            deadline=deadline,
        )
        judged = judge_loss(loss, subject.function.classes)
        subjects = [subject]
        for each in references:
            margins = margins_of(at_state(module, each, "reference"), inputs, labels)
            subjects.append(_reference(margins, subject, deadline))
        # What follows the searches takes about as long as the checks did.
        deadline = deadline.leaving(time.monotonic() - started)
        table = NormTable(
            rows=_rows(subjects, geometries, deadline),
            reached=[each.module_itself.min_margin for each in subjects],
            degree=subject.degree,
        )
        conclusion = table.conclude()
        # What is said of the leading-order part depends on the norm: that which is named, or else
        # the first.
        about = geometries[conclusion.best or table.rows[0].norm]
        findings = [conclusion.why, *table.caveats()]
        if subject.linear:
            findings.append(Finding(Code.LINEAR_MODULE))
        findings += of_training(subject, measured, optimizer, loss, judged)
        findings += what_is_measured(subject, about)
        findings += doubts
    warn(findings, stacklevel=2)
    return WhichNorm(
        rows=tuple(table.rows),
        best=conclusion.best,
        evidence=conclusion.evidence,
        findings=tuple(findings),
        optimizer_norm=optimizer_norm,
        seconds=time.monotonic() - started,
    )


def _as_references(reference: State | Sequence[State] | None) -> Sequence[State]:
    """Return the references, one or several or none."""
    if reference is None:
        return []
    if isinstance(reference, (nn.Module, Mapping)):  # a module may be a sequence: nn.Sequential
        return [reference]
    given: object = reference
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f"reference is a {type(given).__name__}: pass a module of the same architecture, "
            "its state dict, or a list of them"
        )
    if not reference:
        raise ValueError("reference has no module: pass at least one, or leave it out")
    return reference


def _reference(margins: Margins, subject: Subject, deadline: Deadline) -> Subject:
    """Check that a reference can be measured as the module is."""
    # With the module's own parameters and degree: other ones would make another norm.
    found = Subject.of(
        margins,
        subject.function.shapes,
        subject.degree,
        leading=subject.whole is not None,
        deadline=deadline,
    )
    if found.min_margin > 0:
        return found
    where = ""
    if found.module_itself.min_margin > 0:
        where = " in its leading-order part"
    raise SeparationError(
        f"the reference misclassifies samples{where} (smallest margin "
        f"{found.min_margin:.3g}), so it has no KKT gap: pass a later state of its training"
    )


def _rows(
    subjects: Sequence[Subject], norms: Mapping[str, ParameterNorm], deadline: Deadline
) -> list[NormRow]:
    """Measure a module, and references if there are any, in each norm."""
    # Norms that agree at random parameters are the same, and do not compete.
    function = subjects[0].function
    drawn = function.parameters(drawn_like(function.theta))
    sizes = {name: norm.value(drawn) for name, norm in norms.items()}

    # Each search may take an equal part of the time that is left.
    rows = list[NormRow]()
    left = len(norms) * len(subjects)
    for name, norm in norms.items():
        gaps = list[GapBounds]()
        margins = list[float]()
        for subject in subjects:
            # Time that one search leaves is shared by those after it.
            gaps.append(_gap_bounds(subject, norm, deadline.sooner(1.0 / left)))
            margins.append(subject.normalised_margin(norm))
            left -= 1
        same = [
            other for other in sizes if other != name and math.isclose(sizes[other], sizes[name])
        ]
        nearest = None
        mean = math.nan
        spread = math.nan
        # Of several references the smallest gap counts, and the mean of the margins.
        if len(subjects) > 1:
            nearest = GapBounds(
                min(gap.lower for gap in gaps[1:]),
                min(gap.upper for gap in gaps[1:]),
                stopped=any(gap.stopped for gap in gaps[1:]),
            )
            mean = statistics.geometric_mean(margins[1:])
        if len(subjects) > 2:
            spread = max(margins[1:]) / min(margins[1:])
        rows.append(NormRow(name, gaps[0], margins[0], nearest, mean, spread, tuple(same)))
    return rows


def _gap_bounds(subject: Subject, norm: ParameterNorm, deadline: Deadline) -> GapBounds:
    """Bound the KKT gap in a norm."""
    program = subject.at_margin_1(norm)
    best = best_multipliers(program, deadline=deadline)
    return GapBounds(best.gap_lower, best.gap, best.method == "stopped")
