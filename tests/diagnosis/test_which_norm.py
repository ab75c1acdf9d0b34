"""In which norm a margin was maximised: solved limits are found, and what cannot be told is not."""

import copy
import math
import warnings
from functools import partial
from itertools import product as product_of

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import implicit_bias as ib
from diagnosis.asking import codes, finding
from diagnosis.test_diagnose import classes, network
from example_modules import known, of, own_labels, scale_weights
from implicit_bias.diagnosis import Code, GapBounds, NormRow
from implicit_bias.diagnosis.which_norm import conclude
from implicit_bias.norms import L2

X, Y = classes()
INPUTS = torch.tensor(X)
NORMS = ("l2", "linf", "spectral")


def solved(norm: str) -> nn.Module:
    return of(ib.solve(ib.max_margin(X, Y, norm), tol=1e-10).coef[:, 0])


@pytest.mark.every(3)
@pytest.mark.parametrize("norm", NORMS)
def test_solved_limits_of_linear_modules_are_found(norm: str) -> None:
    """The share of the maximum is 1 in the own norm; in the others it is that of the solutions."""
    found = ib.which_norm(solved(norm), INPUTS, Y)
    assert found.linear
    assert (found.best, found.evidence) == (norm, "limit")
    assert codes(found)[0] is Code.LIMIT
    (W,) = (p.detach().numpy() for p in solved(norm).parameters())
    for row in found.rows:
        problem = ib.max_margin(X, Y, row.norm)
        optimum = ib.solve(problem).certificate
        size = problem.norm.value(W) if problem.norm is not None else np.linalg.norm(W)
        low, high = row.gap.share
        assert low * (1 - 1e-9) <= optimum.upper / size
        assert optimum.lower / size <= high * (1 + 1e-9)
        assert low == pytest.approx(high, abs=1e-5)
        assert (low > 1 - 1e-4) == (row.norm == norm)


def between() -> tuple[nn.Module, nn.Module]:
    """Pose a linear module near no limit, and one nearer to that of linf, farther from l2."""
    limit = {norm: next(solved(norm).parameters()).detach().numpy() for norm in ("l2", "linf")}
    away = np.random.default_rng(1).normal(size=limit["l2"].shape)
    sizes = {norm: np.linalg.norm(W) for norm, W in limit.items()}
    away *= 0.6 * sizes["l2"] / np.linalg.norm(away)
    flat = limit["linf"] * sizes["l2"] / sizes["linf"]
    return of(limit["l2"] + away), of(flat + 0.8 * away)


def test_far_from_all_limits_only_a_reference_tells() -> None:
    start, towards = between()
    asked = partial(ib.which_norm, towards, INPUTS, Y, norms=("l2", "linf"))
    alone = asked()
    assert (alone.best, codes(alone)[0]) == (None, Code.NO_GAP_NEAR_ZERO)
    reached = alone.findings[0].details["reached"]
    assert reached == pytest.approx(ib.diagnose(towards, INPUTS, Y).min_margin)
    # A reference by gradient descent goes where a training by gradient descent goes itself.
    assert codes(asked(optimizer="sgd"))[0] is Code.GRADIENT_DESCENT_IS_FAR
    again = asked(reference=towards.state_dict())
    assert (again.best, codes(again)[0]) == (None, Code.WITHIN_NOISE)  # nothing changed
    assert [row.factor for row in again.rows] == pytest.approx([1.0, 1.0])
    assert Code.REFERENCE_IS_BEHIND not in codes(again)
    larger = scale_weights(copy.deepcopy(towards), 1.9)
    less = ib.which_norm(larger, INPUTS, Y, norms=("l2", "linf"), reference=towards)
    assert finding(less, Code.REFERENCE_IS_BEHIND).value == pytest.approx(reached)
    assert Code.REFERENCE_IS_BEHIND not in codes(asked(reference=larger))
    beside = asked(reference=start)
    favoured = [row.norm for row in beside.rows if row.favoured]
    assert beside.best == (favoured[0] if len(favoured) == 1 else None)
    for row in beside.rows:
        # of a linear module the margin changes by the same factor as its share of the maximum
        shares = row.gap.share[0], known(row.reference_gap).share[0]
        assert row.factor == pytest.approx(shares[0] / shares[1], rel=1e-4)


def test_a_margin_that_rose_at_the_cost_of_all_others_is_evidence_without_a_limit() -> None:
    def asked(
        module: nn.Module, reference: nn.Module, *norms: str, optimizer: str | None = None
    ) -> ib.WhichNorm:
        return ib.which_norm(
            module,
            torch.ones(1, 1),
            [1],
            norms=norms or NORMS[:2],
            reference=reference,
            optimizer=optimizer,
        )

    spread, single = product([1, 1, 1, 0.2], [0.2, 1, 1, 1]), product([1, 0, 0, 0], [1, 0, 0, 0])
    found = asked(spread, single)
    assert [row.factor for row in found.rows] == pytest.approx([2.4 / 6.08 / 0.5, 2.4])
    assert not found.rows[1].favoured  # as the reference is at a KKT point
    assert (found.best, found.evidence) == ("linf", "margin")
    assert finding(found, Code.MARGIN).value == pytest.approx(2.4)
    # Nothing speaks against a norm in which the reference is near a limit, nor against that of a
    # known optimizer.
    near, wide = product([1, 0.41, 0, 0], [1, 0, 0, 0]), product([1, 1, 1, 0.5], [0.5, 1, 1, 1])
    for undecided in (asked(wide, near), asked(spread, single, optimizer="sgd")):
        assert undecided.evidence == "none"
        assert finding(undecided, Code.RIVAL).names == ("l2",)
    # Not without another norm that was given up, nor where the reference was trained farther.
    assert asked(spread, single, "linf").evidence == "none"
    farther = asked(spread, scale_weights(single, 2.0))
    assert (farther.best, codes(farther)[0]) == (None, Code.REFERENCE_IS_AHEAD)
    # Twice the same parameters are no preference, nor is a smaller margin in all norms.
    assert codes(asked(spread, spread))[0] is Code.WITHIN_NOISE


def product(u: list[float], v: list[float]) -> nn.Module:
    """Build <u, v>, of margins <u, v> / (|u|^2 + |v|^2) in l2 and <u, v> / max^2 in linf."""
    return of(np.array(u)[:, None], np.array(v)[None])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "module", "reference"),
    [
        ("linf", ([1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]), ([1, 0.922, *[0] * 4], [1, *[0] * 5])),
        (None, ([1, 1, 1, 0.2], [0.2, 1, 1, 1]), ([1, 2, 0, 0], [1, 0, 0, 0])),
    ],
)
def test_a_margin_that_rose_far_beyond_all_others_is_evidence_in_any_norm(
    best: str | None, module: tuple[list[float], ...], reference: tuple[list[float], ...]
) -> None:
    """Both margins rise, both gaps fall: by 300 % against 14 %, and by 137 against 860 %."""
    made, other, x = product(*module), product(*reference), torch.ones(1, 1)
    found = ib.which_norm(made, x, [1], norms=("l2", "linf"), reference=other)
    assert all(row.favoured for row in found.rows)
    assert (found.best, found.evidence) == (best, "margin" if best else "none")
    assert (Code.MARGIN in codes(found)) == (best is not None)
    scale_weights(other, 3.0)
    assert ib.which_norm(made, x, [1], norms=("l2", "linf"), reference=other).best is None


# --- several references -------------------------------------------------------------------------

LOW, MIDDLE, HIGH = (GapBounds(gap, gap, stopped=False) for gap in (0.2, 0.5, 0.9))
WIDE = GapBounds(0.2, 0.9, stopped=False)


def favoured_by_definition(row: NormRow) -> bool | None:
    """Try all gaps that the bounds allow, of the module and of the nearest reference."""
    factor = row.margin / row.reference_margin
    risen = factor >= 1.1 and (math.isnan(row.spread) or factor > row.spread)
    if row.reference_gap is None or not risen:
        return False
    below = {
        gap < 0.95 * theirs
        for gap in (row.gap.lower, row.gap.upper)
        for theirs in (row.reference_gap.lower, row.reference_gap.upper)
    }
    return below.pop() if len(below) == 1 else None


@pytest.mark.parametrize("ours", [LOW, MIDDLE, HIGH, WIDE])
def test_the_truth_table_of_favoured(ours: GapBounds) -> None:
    factors = [0.5, 1.0, 1.01, 1.0999, 1.1, 1.2, 1.3, 1.3001, 2.0, 2.5]
    spreads = [math.nan, 1.0, 1.05, 1.3, 2.0]
    for theirs, factor, spread in product_of([None, LOW, MIDDLE, HIGH, WIDE], factors, spreads):
        row = NormRow("linf", ours, factor, theirs, 1.0, spread)
        assert row.favoured is favoured_by_definition(row), row


@pytest.mark.parametrize(
    ("ours", "theirs", "favoured"),
    [
        # (gap, gap of the reference), each from its lower to its upper bound
        ((0.40, 0.47), (0.50, 0.60), True),
        ((0.40, 0.48), (0.50, 0.60), None),  # 0.48 is not below 95 % of 0.50
        ((0.40, 0.475), (0.50, 0.60), None),  # neither is 0.475 itself
        ((0.56, 0.90), (0.50, 0.60), None),
        ((0.57, 0.90), (0.50, 0.60), False),  # 0.57 is not below 95 % of 0.60
        ((0.10, 0.20), (0.00, 0.00), False),
        ((0.00, 0.00), (0.00, 0.10), None),
        ((0.00, 0.00), (0.01, 0.10), True),
    ],
)
def test_bounds_of_gaps_must_not_overlap(
    ours: tuple[float, float], theirs: tuple[float, float], favoured: bool | None
) -> None:
    gap, reference = (GapBounds(*bounds, stopped=False) for bounds in (ours, theirs))
    assert NormRow("l2", gap, 2.0, reference, 1.0, 1.5).favoured is favoured


@pytest.mark.parametrize(
    ("factor", "spread", "rose", "fell"),
    [
        (1.1, math.nan, True, False),
        (1.0999, math.nan, False, False),
        (1.1, 1.05, True, False),
        (1.2, 1.2, False, False),
        (1.2001, 1.2, True, False),
        (1 / 1.0999, math.nan, False, False),
        (1 / 1.1001, math.nan, False, True),
        (0.8, 1.25, False, False),
        (0.8, 1.2, False, True),
    ],
)
def test_a_factor_counts_from_1_1_on_and_above_the_spread(
    factor: float, spread: float, rose: bool, fell: bool
) -> None:
    row = NormRow("l2", MIDDLE, factor, MIDDLE, 1.0, spread)
    assert (row.rose, row.fell) == (rose, fell)
    assert row.noise == max(1.1, 1.1 if math.isnan(spread) else spread)


def test_rows_of_several_references_are_those_of_each() -> None:
    """Their smallest gap, the geometric mean of their margins, and how much these differ."""
    start, towards = between()
    references = [start, of(1.3 * next(start.parameters()).detach().numpy()), solved("l2")]
    asked = partial(ib.which_norm, towards, INPUTS, Y, norms=("l2", "linf"))
    together = asked(reference=references)
    alone = [asked(reference=each) for each in references]
    for k, row in enumerate(together.rows):
        each = [found.rows[k] for found in alone]
        margins = [other.reference_margin for other in each]
        assert row.reference_margin == pytest.approx(math.prod(margins) ** (1 / 3))
        assert row.spread == pytest.approx(max(margins) / min(margins))
        assert all(math.isnan(other.spread) for other in each)
        uppers = [known(other.reference_gap).upper for other in each]
        assert known(row.reference_gap).upper == pytest.approx(min(uppers))
    assert Code.ONE_REFERENCE not in codes(together)
    assert all(Code.ONE_REFERENCE in codes(found) for found in alone)


def test_no_norm_is_named_within_the_noise() -> None:
    """A margin in linf of 2.4 times the references', which differ by a factor of 1.2, or of 3."""
    spread, x = product([1, 1, 1, 0.2], [0.2, 1, 1, 1]), torch.ones(1, 1)

    def asked(*firsts: float) -> ib.WhichNorm:
        """Beside references of margin 1 in linf, or `first` of it, and nearly the same in l2."""
        references = [product([1, 0, 0, 0], [first, 0, 0, 0]) for first in firsts]
        return ib.which_norm(spread, x, [1], norms=("l2", "linf"), reference=references)

    assert (asked(1.0).best, asked(1.0).evidence) == ("linf", "margin")
    assert (asked(1.0, 0.85).best, asked(1.0, 0.85).evidence) == ("linf", "margin")
    assert asked(1.0, 0.3).best is None  # a spread of 3.3


def test_lists_of_references_are_checked() -> None:
    module = solved("l2")
    with pytest.raises(ValueError, match="reference"):
        ib.which_norm(module, INPUTS, Y, reference=[])
    with pytest.raises(ValueError, match="architecture"):
        ib.which_norm(module, INPUTS, Y, reference=[module, nn.Linear(2, 2)])
    assert ib.which_norm(module, INPUTS, Y, reference=(module, module.state_dict())).rows


def test_norms_that_are_the_same_here_do_not_compete() -> None:
    y = np.where(Y == 0, 1.0, -1.0)
    module = of(ib.solve(ib.max_margin(X, y), tol=1e-10).coef)
    found = ib.which_norm(module, INPUTS, y)
    assert found.best in ("l2", "spectral")
    assert {row.norm: row.same for row in found.rows} == {
        "l2": ("spectral",),
        "linf": (),
        "spectral": ("l2",),
    }


def test_the_optimizers_own_norm_joins() -> None:
    found = ib.which_norm(solved("l2"), INPUTS, Y, norms=["l2"], optimizer="adam")
    assert [row.norm for row in found.rows] == ["l2", "linf"]
    assert (found.best, found.own) == ("l2", "linf")
    module = network(3)
    groups = [{"params": [p], "lr": 0.1 * k} for k, p in enumerate(module.parameters(), 1)]
    labels, optimizer = own_labels(module, INPUTS), torch.optim.Adam(groups, eps=0.0)
    found = ib.which_norm(module, INPUTS, labels, norms=["l2"], optimizer=optimizer)
    assert found.own == "weighted linf"
    assert [row.norm for row in found.rows] == ["l2", found.own]


def test_what_stops_a_training_is_found_here_too() -> None:
    """Weight decay, steps that an epsilon ends, rounding errors in the gradients."""
    module = solved("linf")
    decayed = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    with pytest.warns(ib.DiagnosisWarning, match="weight decay"):
        found = ib.which_norm(module, INPUTS, Y, optimizer=decayed)
    assert finding(found, Code.WEIGHT_DECAY).value == pytest.approx(0.1)
    assert found.best == "linf"
    _, module = between()
    optimizer = torch.optim.Adam(module.parameters(), eps=1e9)
    with pytest.warns(ib.DiagnosisWarning, match="eps"):
        found = ib.which_norm(module, INPUTS, Y, norms=["l2"], optimizer=optimizer)
    assert Code.EPSILON in codes(found)
    scale_weights(module, 1e3)
    found = ib.which_norm(module, INPUTS, Y, norms=["l2"])
    assert Code.GRADIENT_OF_ROUNDING_ERRORS in codes(found)


def test_a_stopped_search_says_so_and_its_bounds_hold() -> None:
    module = network(3)
    labels = own_labels(module, INPUTS)
    free = ib.which_norm(module, INPUTS, labels, norms=NORMS[:2])
    hurried = ib.which_norm(module, INPUTS, labels, norms=NORMS[:2], max_seconds=1e-6)
    assert Code.STOPPED in codes(hurried)
    assert Code.STOPPED not in codes(free)
    for row, exact in zip(hurried.rows, free.rows, strict=True):
        assert row.stopped
        assert 0 <= row.gap.lower <= exact.gap.upper + 1e-9
        assert exact.gap.lower <= row.gap.upper + 1e-9
        assert row.gap.upper <= 1


def test_it_is_shown_as_a_table_and_one_line() -> None:
    for found in (
        ib.which_norm(solved("l2"), INPUTS, Y, reference=solved("linf")),
        ib.which_norm(between()[1], INPUTS, Y),
    ):
        table, line = str(found).split("\n\n")
        assert len(table.splitlines()) == 1 + len(found.rows)
        assert line == found.conclusion
        assert len(line.splitlines()) == 1
        assert found._repr_html_().count("<tr>") == 1 + len(found.rows)


# --- conclusions from tables ---------------------------------------------------------------------


def row(norm: str, gap: float, factor: float, theirs: float, width: float = 0.0) -> NormRow:
    """Build a row from the upper ends of its gaps, whose bounds are so far apart."""
    gaps = [GapBounds(each * (1.0 - width), each) for each in (gap, theirs)]
    return NormRow(norm, gaps[0], factor, gaps[1], 1.0)


@pytest.mark.parametrize(
    ("rows", "best", "code"),
    [
        ([row("l2", 0.1, 1.0, 0.9), row("linf", 0.3, 1.0, 0.9)], "l2", Code.LIMIT),
        # 0.1 is not at most half of 0.19; beside the reference nothing tells either
        ([row("l2", 0.1, 1.0, 0.9), row("linf", 0.19, 1.0, 0.9)], None, Code.WITHIN_NOISE),
        ([row("l2", 0.5, 1.2, 0.9), row("linf", 0.9, 0.8, 0.9)], "l2", Code.MARGIN_AND_GAP),
        ([row("l2", 0.5, 1.2, 0.9), row("linf", 0.5, 1.2, 0.9)], None, Code.SEVERAL_FAVOURED),
        ([row("l2", 0.9, 1.2, 0.9), row("linf", 0.9, 1.2, 0.9)], None, Code.MARGIN_WITHOUT_GAP),
        ([row("l2", 0.5, 1.2, 0.6, 0.5), row("linf", 0.9, 1.05, 0.9)], None, Code.BOUNDS_OVERLAP),
        ([row("l2", 0.9, 2.0, 0.9), row("linf", 0.9, 0.5, 0.9)], "l2", Code.MARGIN),
        # the reference is near a limit in linf, where its margin could hardly rise
        ([row("l2", 0.5, 1.2, 0.9), row("linf", 0.5, 1.0, 0.1)], None, Code.RIVAL),
    ],
)
def test_conclusions_by_hand(rows: list[NormRow], best: str | None, code: Code) -> None:
    for order in (rows, rows[::-1]):
        named, evidence, why = conclude(order, "", [1.0, 1.0], 1.0)
        assert (named, why.code) == (best, code)
        assert (evidence == "none") == (best is None)


GAPS = (0.05, 0.08, 0.5)


def test_conclusions_without_a_reference() -> None:
    near, also, far = (NormRow("abc"[k], GapBounds(gap, gap), 1.0) for k, gap in enumerate(GAPS))
    assert conclude([near, far], "", [1.0], 1.0)[:2] == ("a", "limit")
    assert conclude([near, also], "", [1.0], 1.0)[2].code is Code.SEVERAL_NEAR_ZERO
    assert conclude([far], "", [1.0], 1.0)[2].code is Code.NO_GAP_NEAR_ZERO
    assert conclude([far], "l2", [1.0], 1.0)[2].code is Code.GRADIENT_DESCENT_IS_FAR


# --- what is asked -------------------------------------------------------------------------------


def test_what_is_wrong_is_named() -> None:
    module = solved("l2")
    assert ib.which_norm(module, INPUTS, Y, norms=L2()).rows[0].norm == "l2"
    for norms in ((), ("l2", "l2"), "l7", {"wieght": "l1", "": "l2"}):
        with pytest.raises(ValueError, match="norm"):
            ib.which_norm(module, INPUTS, Y, norms=norms)
    assert len(ib.which_norm(module, INPUTS, Y, norms=None).rows) == len(NORMS)
    with pytest.raises(ValueError, match="max_seconds"):
        ib.which_norm(module, INPUTS, Y, max_seconds=0)
    with pytest.raises(ValueError, match="architecture"):
        ib.which_norm(module, INPUTS, Y, reference=nn.Linear(2, 2))
    (W,) = module.parameters()
    with pytest.raises(ib.SeparationError, match="reference"):
        ib.which_norm(module, INPUTS, Y, reference=of(-W.detach().numpy()))


def test_a_module_that_keeps_its_activation_has_a_reference() -> None:
    module = nn.Linear(5, 3, bias=False)
    labels = own_labels(module, INPUTS.float())
    module.register_forward_hook(lambda part, _, output: setattr(part, "seen", output))
    module(INPUTS.float())  # leaves what has a gradient, and no deep copy
    found = ib.which_norm(module, INPUTS, labels, norms="l2", reference=module.state_dict())
    assert found.rows[0].factor == pytest.approx(1)


def test_the_module_is_left_as_it_is() -> None:
    module = network(3).float().train()
    labels = own_labels(module, INPUTS.float())
    before = copy.deepcopy(module.state_dict())
    with warnings.catch_warnings(action="error"):
        ib.which_norm(module, INPUTS, labels, norms="l2", reference=before)
    assert module.training
    for name, value in module.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name])


@pytest.mark.filterwarnings("ignore::implicit_bias.DiagnosisWarning")
def test_dropout_draws_nothing_of_the_callers() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(network(3), nn.Dropout(0.5))
    labels, before = own_labels(module.eval(), INPUTS), torch.get_rng_state()
    ib.which_norm(module.train(), INPUTS, labels, leading=True, max_seconds=1.0)
    assert torch.equal(torch.get_rng_state(), before)


# --- what the page "Reading gaps across norms" states -------------------------------------------


def gaps_of(w: NDArray[np.float64]) -> tuple[float, float]:
    """Gaps in l2 and linf, as the page states them, of w >= 0 on the one sample (1, ..., 1)."""
    P, total = len(w), w.sum()
    return 1 - total**2 / (P * (w @ w)), 1 - (total / (P * w.max())) ** 2


def outlier(P: int, size: float) -> NDArray[np.float64]:
    return np.append(np.ones(P - 1), size)


@pytest.mark.parametrize("w", [outlier(300, 10.0), outlier(300, 1.0), np.arange(300.0)])
def test_the_same_limit_has_these_gaps(w: NDArray[np.float64]) -> None:
    found = ib.which_norm(of(w[None]), torch.ones(1, len(w)), [1], norms=("l2", "linf"))
    for row, gap in zip(found.rows, gaps_of(w), strict=True):
        assert row.gap.lower - 1e-9 <= gap <= row.gap.upper + 1e-9
        assert row.gap.upper == pytest.approx(gap, abs=1e-5)


def test_gaps_of_solved_limits_in_the_norms_of_others() -> None:
    """0 in the own norm alone; elsewhere within 1 - 1 / P, and a gap in l2 bounds the angle."""
    gaps = {}
    for own in ("l2", "linf"):
        rows = ib.which_norm(solved(own), INPUTS, Y, norms=("l2", "linf")).rows
        gaps[own] = {row.norm: row.gap for row in rows}
    P = X.shape[1] * len(set(Y))
    for own, other in (("l2", "linf"), ("linf", "l2")):
        assert gaps[own][own].upper < 1e-4 < gaps[own][other].lower
        assert gaps[own][other].upper <= 1 - 1 / P
    (a,), (b,) = ([p.detach() for p in solved(norm).parameters()] for norm in ("l2", "linf"))
    cosine = float((a * b).sum() / (a.norm() * b.norm()))
    assert cosine >= gaps["linf"]["l2"].share[0] - 1e-9
