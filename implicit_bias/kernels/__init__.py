"""Kernels of wide networks, finite and infinite, and gradient descent in them.

======================  =====================================================================
file                    what
======================  =====================================================================
gradient_gram.py        activation Gram matrices: finite and infinite
dual_kernels.py         dual activations: arc-cosine kernels and others, by Hermite series
gated_least_squares.py  fixed gates: the kernel of many, its smallest eigenvalue, predicted losses
least_squares.py        least squares of gated features
======================  =====================================================================
"""
