"""Minimum-norm interpolation for regression, certified.

=================  =======================================================================
file               what
=================  =======================================================================
interpolate.py     `min_norm`, and the result
problem.py         the interpolation problem: features, values, norm
equations.py       independent equations; proofs that others follow, or contradict them
system.py          the linear system that a method gets
methods.py         which method solves which norm; closed forms
interior_point.py  the interior point's loop: predictor and corrector, alpha free in sign
group_path.py      its central path for sums over groups of Euclidean and nuclear norms
entry_path.py      that for l_p and its sums over groups
spectral_path.py   that for sums over groups of spectral norms
certificate.py     bounds on the smallest norm, with all rounding
=================  =======================================================================
"""

from implicit_bias.interpolation.equations import Inconsistency
from implicit_bias.interpolation.interpolate import Interpolant, InterpolationStatus, min_norm
