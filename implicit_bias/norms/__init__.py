r"""Norms of coefficients, each with its dual: all that the two bounds of a certificate need.

upper = Omega(zeta) / smallest margin,   lower = sum(alpha) / Omega_*(V(alpha))

A norm has ``value(coef)``, Omega, and ``dual(V)``, Omega_* = max of <zeta, V> over Omega(zeta) = 1.

==============  =============================  ==============  ===================================
norm            Omega(zeta)                    Omega_*(V)      training that maximises its margin
==============  =============================  ==============  ===================================
L1              sum |zeta_j|                   LInf            coordinate descent, boosting
L2              root of the sum of squares     L2              gradient descent
LInf            max |zeta_j|                   L1              sign descent, Adam
Lp(p)           p-th root of sum |zeta_j|^p    Lp(p/(p-1))     steepest descent in it; mirror
                                                               descent with the p-th power
GroupL2         sum_g of L2 over groups of     max_g of L2     group lasso over features
                features
GroupNorm       sum_g ||zeta_g|| over groups   max_g ||V_g||   gradient descent on gated networks
                of gate columns
Spectral        largest singular value         Nuclear         spectral descent, Muon
Nuclear         sum of singular values         Spectral        nuclear steepest descent
Schatten(p)     l_p norm of singular values    Schatten(q)     steepest descent in it
SumOverGroups   sum_g of a norm                max_g of its    gated networks of several outputs
                                               dual            (nuclear)
MaxOverGroups   max_g of a norm                sum_g of its    Muon, over the layers
                                               dual
==============  =============================  ==============  ===================================

Coefficients have shape (K, M, D), classes by gates by features, or (M, D) with two classes, which
spectral and nuclear norms see as (1, M, D): they are those of the matrix K x MD. An array (K, D)
without gates is that matrix already. All other norms ignore the shape, but for their groups.

A custom norm needs ``value(coef)`` and ``dual(V)`` alone (`HasValueAndDual`) for a
certificate. With an expression in CVXPY (`HasAtom`) it has a solver, too.

Bounds (`Norm.value_bound`, `Norm.dual_bounds`) are rigorous upper bounds, with all rounding
included: each file has those of its norms.

============  ==================================================================
file          what
============  ==================================================================
norm.py       the protocol of all norms: value, dual, maximiser, atom
entries.py    l_p
matrices.py   norms of singular values
groups.py     norms of groups of gate columns or features, and one over them
blocks.py     norms of consecutive blocks of coefficients, and one over them
tensors.py    norms of a module's parameters, tensors by name
named.py      norms by name, custom norms, and what solvers may use
============  ==================================================================
"""

from implicit_bias.norms.entries import L1, L2, LInf, Lp
from implicit_bias.norms.groups import GroupL2, GroupNorm, MaxOverGroups, SumOverGroups, as_groups
from implicit_bias.norms.matrices import Nuclear, OfSingularValues, Schatten, Spectral, as_matrix
from implicit_bias.norms.named import (
    NAMES,
    OwnNorm,
    as_norm,
    entries_of,
    is_of_singular_values,
    nuclear_groups,
)
from implicit_bias.norms.norm import (
    RANK_TOLERANCE,
    HasAtom,
    HasValueAndDual,
    Norm,
    NormName,
    Partition,
)
