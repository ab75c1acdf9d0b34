"""Certified bounds on the optimum, from any coefficients and any dual variables.

==================  ========================================================================
file                what
==================  ========================================================================
certificate.py      both bounds of an answer in float64, and how a solve ended
upper.py            the bound from coefficients: norm, margins, and their rounding errors
lower.py            the bound from dual variables: V, its dual norm, and their rounding errors
products.py         products of features, plain and precise, with bounds on their rounding errors
balance.py          the equation of an intercept, which dual variables must obey exactly
status.py           statuses and certificates, and what is read off them
separability.py     plain causes why nothing separates the samples, and cures
gordan.py           proofs that nothing does, in rational numbers or by an overlap
overlap.py          proofs that a solution of Gordan's system exists, in float64
integers.py         columns that are dependent up to rounding, in exact integers
run_certificate.py  bounds of a training run, from its own gradients
==================  ========================================================================
"""
