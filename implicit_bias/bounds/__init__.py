"""Certified bounds on the optimum, from any coefficients and any dual variables.

==================  ========================================================================
file                what
==================  ========================================================================
certificate.py      both bounds of an answer in float64, and how a solve ended
exact.py            the same in rational numbers
separability.py     proofs that nothing separates the samples
regularised.py      bounds of regularised losses
run_certificate.py  bounds of a training run, from its own gradients
==================  ========================================================================
"""
