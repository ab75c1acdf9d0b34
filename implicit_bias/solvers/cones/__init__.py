"""The cones of norms along the central path of the interior point, one file a family.

=============  ===========================================================================
file           what
=============  ===========================================================================
cone.py        what the interior point asks of a cone, and the variables of its iterates
groups.py      sums of Euclidean norms over groups, in the rows or in the features
classes.py     what cones of the matrix of all classes' coefficients share
nuclear.py     the nuclear norm, or a sum of them over groups of gates
spectral.py    the spectral norm
entries.py     l_p of the entries, or its sum over groups
matrices.py    factors and scalings of symmetric matrices
=============  ===========================================================================
"""

from implicit_bias.norms import Spectral, entries_of
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.cones.classes import ClassCone, FreeRadiusCone
from implicit_bias.solvers.cones.cone import (
    Cone,
    ConePoint,
    Direction,
    FeatureCone,
    Iterate,
)
from implicit_bias.solvers.cones.entries import EntryCone
from implicit_bias.solvers.cones.groups import FeatureGroupCone, GroupCone
from implicit_bias.solvers.cones.matrices import cholesky, factor, relative_eigenvalues, symmetric
from implicit_bias.solvers.cones.nuclear import NuclearCone
from implicit_bias.solvers.cones.spectral import SpectralCone


def class_cone(problem: MarginProblem) -> type[EntryCone | SpectralCone | NuclearCone]:
    """Return the cone of a norm that is no sum of Euclidean norms."""
    if entries_of(problem.norm) is not None:
        return EntryCone
    if problem.norm == Spectral():
        return SpectralCone
    return NuclearCone
