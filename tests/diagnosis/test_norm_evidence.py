"""A norm is named by three rules on a table of gaps and margins, here on tables made by hand."""

import math
from dataclasses import replace
from itertools import product

import pytest

from implicit_bias.diagnosis import Code, GapBounds, NormRow
from implicit_bias.diagnosis.norm_evidence import NormTable

LOW, MIDDLE, HIGH = (GapBounds(gap, gap) for gap in (0.2, 0.5, 0.9))
WIDE = GapBounds(0.2, 0.9)
WIDE_BELOW = GapBounds(0.01, 0.9)


def counts(factor: float, spread: float) -> bool:
    """Whether a factor is 1.1 or more, and above the spread of the references."""
    return factor >= 1.1 and (math.isnan(spread) or factor > spread)


def favoured_by_definition(row: NormRow) -> bool | None:
    """Try all gaps that the bounds allow, of the module and of the nearest reference."""
    if row.reference_gap is None or not counts(row.margin / row.reference_margin, row.spread):
        return False
    below = {
        gap < 0.95 * theirs
        for gap in (row.gap.lower, row.gap.upper)
        for theirs in (row.reference_gap.lower, row.reference_gap.upper)
    }
    return below.pop() if len(below) == 1 else None


# Beside bounds of 0.5 and 0.6 on the reference's gap the first one overlaps and the next does not,
# by 0.475 = 95 % of 0.5; so do the others, by 0.57 = 95 % of 0.6.
NEXT_TO = [
    GapBounds(0.4, 0.475),
    GapBounds(0.4, 0.474),
    GapBounds(0.569, 0.9),
    GapBounds(0.57, 0.9),
]


@pytest.mark.parametrize("ours", [LOW, MIDDLE, HIGH, WIDE, *NEXT_TO])
def test_the_truth_table_of_favoured(ours: GapBounds) -> None:
    above = [1.0, 1.01, 1.0999, 1.1, 1.2, 1.3, 1.3001, 2.0, 2.5]
    factors = [*above, *(1 / factor for factor in above)]
    spreads = [math.nan, 1.0, 1.05, 1.3, 2.0]
    references = [None, LOW, MIDDLE, HIGH, WIDE, GapBounds(0.0, 0.0), GapBounds(0.5, 0.6)]
    for theirs, factor, spread in product(references, factors, spreads):
        row = NormRow("linf", ours, factor, theirs, 1.0, spread)
        assert row.favoured is favoured_by_definition(row), row
        assert row.rose == counts(factor, spread), row
        assert row.fell == counts(1 / factor, spread), row


def beside(norm: str, gap: float, factor: float, theirs: float, width: float = 0.0) -> NormRow:
    """Build a row from the upper ends of its gaps, whose bounds are so far apart."""
    ours, reference = (GapBounds(each * (1.0 - width), each) for each in (gap, theirs))
    return NormRow(norm, ours, factor, reference, 1.0, spread=1.0)


# By norm: the gap, the margin over the reference's, and the reference's gap.
NEAR = {"l2": (0.1, 1.0, 0.9), "linf": (0.21, 1.0, 0.9)}
NOT_CLEARLY = {"l2": (0.1, 1.0, 0.9), "linf": (0.19, 1.0, 0.9)}
BOTH = {"l2": (0.5, 1.2, 0.9), "linf": (0.5, 1.2, 0.9)}
AT_A_COST = {"l2": (0.5, 1.2, 0.9), "linf": (0.9, 0.8, 0.9)}
WITHOUT_COST = {"l2": (0.5, 1.8, 0.9), "linf": (0.9, 1.05, 0.9)}
COST_ELSEWHERE = {**WITHOUT_COST, "l1": (0.9, 0.8, 0.9)}
OTHERS_FELL = {"l2": (0.9, 1.1, 0.9), "linf": (0.9, 0.9, 0.9)}
ONE_ROSE_TOO = {"l2": (0.9, 2.0, 0.9), "linf": (0.9, 0.5, 0.9), "l1": (0.9, 1.15, 0.9)}
# In linf the reference's margin can rise by (1 - 0.1)^(-1/2) only, or by 0.4^(-1/2).
RIVAL = {"l2": (0.5, 1.2, 0.9), "linf": (0.5, 1.0, 0.1)}
NO_RIVAL = {"l2": (0.5, 1.2, 0.9), "linf": (0.9, 1.0, 0.6)}


@pytest.mark.parametrize(
    ("numbers", "best", "code"),
    [
        (NEAR, "l2", Code.LIMIT),
        (NOT_CLEARLY, None, Code.WITHIN_NOISE),
        (BOTH, None, Code.SEVERAL_FAVOURED),
        (AT_A_COST, "l2", Code.MARGIN_AND_GAP),
        (WITHOUT_COST, None, Code.NO_MARGIN_FELL),
        (COST_ELSEWHERE, "l2", Code.MARGIN_AND_GAP),
        (OTHERS_FELL, "l2", Code.MARGIN),
        (ONE_ROSE_TOO, None, Code.WITHIN_NOISE),
        (RIVAL, None, Code.RIVAL),
        (NO_RIVAL, "l2", Code.MARGIN_AND_GAP),
    ],
)
def test_conclusions_by_hand(
    numbers: dict[str, tuple[float, float, float]], best: str | None, code: Code
) -> None:
    rows = [beside(norm, *given) for norm, given in numbers.items()]
    for order in (rows, rows[::-1]):
        found = NormTable(order, [1.0, 1.0], 1.0).conclude()
        assert (found.best, found.why.code) == (best, code)
        assert (found.evidence == "none") == (best is None)


def test_bounds_count_against_a_norm() -> None:
    """Those of the favoured norm that overlap, and a lower one that allows a rival."""
    overlapping = beside("l2", 0.5, 1.2, 0.6, width=0.5)
    found = NormTable([overlapping, beside("linf", 0.9, 1.05, 0.9)], [1.0, 1.0], 1.0).conclude()
    assert found.why.code is Code.BOUNDS_OVERLAP
    perhaps = beside("linf", 0.5, 1.0, 0.3, width=0.9)
    found = NormTable([beside("l2", 0.5, 1.2, 0.9), perhaps], [1.0, 1.0], 1.0).conclude()
    assert found.why.code is Code.RIVAL


def test_the_degree_counts() -> None:
    near_limit = [beside("l2", 0.5, 1.2, 0.9), beside("linf", 0.5, 1.0, 0.1)]
    assert NormTable(near_limit, [1.0, 1.0], 1.0).conclude().best is None
    assert NormTable(near_limit, [1.0, 1.0], 2.0).conclude().best == "l2"  # 1.2 * 0.9^2 < 1


def test_other_trainings_are_trained_as_far() -> None:
    rows = [beside("l2", 0.9, 2.0, 0.9), beside("linf", 0.9, 0.5, 0.9)]
    ahead = NormTable(rows, [1.0, 1.11], 1.0)
    assert ahead.conclude().why.code is Code.REFERENCE_IS_AHEAD
    assert NormTable(rows, [1.0, 1.09], 1.0).conclude().best == "l2"
    assert [each.code for each in ahead.caveats()] == [Code.ONE_REFERENCE]
    behind = NormTable(rows, [1.11, 1.2, 1.0], 1.0)
    assert [(each.code, each.value) for each in behind.caveats()] == [
        (Code.REFERENCE_IS_BEHIND, 1.0)
    ]
    stopped = NormRow("l1", GapBounds(0.2, 0.9, stopped=True), 1.0)
    found = NormTable([*rows, stopped], [1.0], 1.0).caveats()
    assert [each.code for each in found] == [Code.STOPPED]


def test_conclusions_without_a_reference() -> None:
    near, also, far = (
        NormRow(norm, GapBounds(gap, gap), 1.0)
        for norm, gap in (("l2", 0.05), ("linf", 0.08), ("spectral", 0.5))
    )
    for rows, code in (
        ([near, far], Code.LIMIT),
        ([near, also], Code.SEVERAL_NEAR_ZERO),
        ([NormRow("l1", WIDE_BELOW, 1.0), also], Code.SEVERAL_NEAR_ZERO),
        ([replace(near, same=("linf",)), replace(also, same=("l2",))], Code.LIMIT),
        ([far], Code.NO_GAP_NEAR_ZERO),
    ):
        assert NormTable(rows, [1.0], 1.0).conclude().why.code is code
