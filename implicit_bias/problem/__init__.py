"""The margin problem: data, gates, norm, and its constraints as rows.

==================  ========================================================================
file                what
==================  ========================================================================
margin_problem.py   `MarginProblem`, and `max_margin` without gates
gating.py           gates: random or learned hyperplanes, and what else is fixed in training
rows.py             constraints as rows, one a sample or one a pair of sample and rival
masked_gram.py      the masked Gram matrix, on which every method rests
margins.py          margins of many classes
==================  ========================================================================
"""

from implicit_bias.problem.margin_problem import (
    BLOCK,
    LARGEST_C,
    SMALLEST_C,
    SMALLEST_NORM,
    Architecture,
    HasHiddenLayer,
    MarginProblem,
    are_few,
    check_problem,
    decision,
    feature_norms,
    for_products,
    gated_linear,
    max_margin,
    zero_features,
)
