"""Minimum-norm interpolation for regression, certified.

==============  =======================================================================
file            what
==============  =======================================================================
interpolate.py  `min_norm`, and the result
problem.py      the interpolation problem: features, values, norm
equations.py    independent equations; proofs that others follow, or contradict them
methods.py      the linear system: closed forms, and CVXPY
certificate.py  bounds on the smallest norm, with all rounding
==============  =======================================================================
"""

from implicit_bias.interpolation.equations import Inconsistency
from implicit_bias.interpolation.interpolate import Interpolant, InterpolationStatus, min_norm
