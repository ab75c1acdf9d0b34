"""The margin problem: data, gates, norm, and its two parts, features and constraints.

==================  ========================================================================
file                what
==================  ========================================================================
margin_problem.py   `MarginProblem`, and `max_margin` without gates
features.py         products with the features of samples, z(x_n) (x) x_n, never formed
constraints.py      one constraint per pair of a sample and a rival class
gating.py           gates: random or learned hyperplanes, and what else is fixed in training
attention.py        attention as token selection
euclidean.py        sums of Euclidean norms over groups of anything, as groups of gates
masked_gram.py      the masked Gram matrix, on which every method rests
margins.py          margins of many classes
==================  ========================================================================
"""

from implicit_bias.problem.attention import attention_margin
from implicit_bias.problem.constraints import Constraints
from implicit_bias.problem.features import BLOCK, Features, decision, sparse_is_faster
from implicit_bias.problem.margin_problem import (
    SMALLEST_FEATURE_NORM,
    Architecture,
    C_in_words,
    HasHiddenLayer,
    MarginProblem,
    check_C,
    check_classes,
    check_problem,
    max_margin,
)
