"""Two-layer networks of infinite width: the maximum margin under the variation norm, certified.

====================  ======================================================================
file                  what
====================  ======================================================================
problem.py            the problem, its bounds, and proofs that no network separates the data
arrangement.py        the oracle: exact maxima over the cells of a hyperplane arrangement
sphere_search.py      local search and bounds where the cells are too many
column_generation.py  primal, dual, symbols; `max_margin` of two classes or more
grade.py              `certify` of a network of finite width
====================  ======================================================================

The scikit-learn estimator is `implicit_bias.InfiniteWidthSVC`.
"""

from implicit_bias.infinite_width.column_generation import InfiniteWidthSolution, max_margin
from implicit_bias.infinite_width.grade import NetworkGrade, certify
from implicit_bias.infinite_width.problem import Activation, InfiniteWidthProblem
