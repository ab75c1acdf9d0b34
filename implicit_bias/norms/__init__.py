r"""Norms of coefficients, each with its dual: all that the two bounds of a certificate need.

upper = Omega(zeta) / smallest margin,   lower = sum(alpha) / Omega_*(V(alpha))

A norm has ``value(coef)``, Omega, and ``dual(V)``, Omega_* = max of <zeta, V> over Omega(zeta) = 1.

==============  =============================  ==============  ===================================
norm            Omega(zeta)                    Omega_*(V)      training that maximizes its margin
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
MaxOverGroups   max_g of a norm                sum_g of its    steepest descent in it
                                               dual
==============  =============================  ==============  ===================================

`blocks.OverBlocks` and `tensors.ComposedNorm` are such compositions for the tensors of a module:
the largest spectral norm of any of them is the norm of Muon.

Coefficients have shape (K, M, D), classes by gates by features. Norms of singular values take an
array as the matrix of its first axis by all others: K x MD, or an array (K, D) itself. All other
norms ignore the shape, but for their groups.

Two classes have one row, K = 1, on which all norms of singular values are the Euclidean norm. But
callers get their coefficients without the first axis, (M, D). ``problem.norm.value(solution.coef)``
is right for these, as problems of two classes replace norms of singular values by `L2`
(`as_norm_of_one_row`). A norm that is not a problem's takes (M, D) as a matrix of M rows, as it
cannot tell it from (K, D): pass ``coef[None]``.

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
    as_norm_of_one_row,
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
