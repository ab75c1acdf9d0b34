"""Constraints as rows: which of them are the worst."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_bias.base.validation import Array
from implicit_bias.problem.rows import worst_rows


def loop_worst_rows(margins: Array, samples: list[int], below: float, count: int) -> list[int]:
    """First one row a sample, from the smallest margin on, then the others."""
    order = sorted(range(len(margins)), key=lambda p: (margins[p], p))
    order = [p for p in order if margins[p] < below]
    seen: set[int] = set()
    first = [p for p in order if not (samples[p] in seen or seen.add(samples[p]))]  # type: ignore[func-returns-value]
    return sorted([*first, *(p for p in order if p not in first)][:count])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 4)), min_size=1, max_size=25),
    below=st.sampled_from([np.inf, 2.0, -1.0, -9.0]),
    count=st.integers(0, 30),
)
def test_worst_rows_are_those_of_a_loop(
    rows: list[tuple[int, int]], below: float, count: int
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    samples = [row[0] for row in rows]
    margins = np.array([np.inf if row[1] == 4 else float(row[1]) for row in rows])
    found = worst_rows(margins, np.array(samples), below, count)
    assert found.tolist() == loop_worst_rows(margins, samples, below, count)
