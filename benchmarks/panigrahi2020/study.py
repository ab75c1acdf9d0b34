"""How the activation decides how fast a wide network of two layers learns.

Source: Panigrahi, Shetty, Goyal (ICLR 2020), all statements and both figures.
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Activation Gram matrices

Panigrahi, Shetty and Goyal, "Effect of Activation Functions on the Training of Overparametrized
Neural Nets" (ICLR 2020): a wide network of two layers learns as fast as the eigenvalues of one
matrix allow, G_ij = <x_i, x_j> (1/m) sum_k a_k^2 phi'(<w_k, x_i>) phi'(<w_k, x_j>), the first
layer's part of its neural tangent kernel, and the activation phi decides how small they are. It is
this package's masked Gram matrix with the gates a_k phi'.
[`gradient_gram.py`](../../implicit_bias/kernels/gradient_gram.py) has the mathematics,
[`gram_bounds.py`](gram_bounds.py) what the paper proves,
[`dual_kernels.py`](../../implicit_bias/kernels/dual_kernels.py) dual activations.

Each experiment is one command, and `--quick` runs it small, in seconds. This page is written by
`python -m benchmarks panigrahi2020 page` from the tables in `benchmarks/results/panigrahi2020`. The
paper prints no table of numbers: its figures are compared in words. Spectra need MNIST, and the
last two experiments `cifar10-subset.npz` (1,000 training images a class), in the folder
`IMPLICIT_BIAS_DATA`."""

STUDY = Study(
    name="panigrahi2020",
    head=HEAD,
    own_page=True,
    experiments=(
        Entry(name="spectra", title="Spectra", cost="a minute"),
        Entry(name="lower_bounds", title="Lower bounds and the trace", cost="half a minute"),
        Entry(name="zeros", title="Polynomials", cost="seconds"),
        Entry(name="smooth", title="Smooth activations in few dimensions", cost="a minute"),
        Entry(name="coefficients", title="Hermite and Chebyshev coefficients", cost="seconds"),
        Entry(name="smoothed", title="Smoothed data in many dimensions", cost="seconds"),
        Entry(name="depth", title="Depth", cost="seconds"),
        Entry(name="extensions", title="Readouts, classes and starts", cost="seconds"),
        Entry(name="training", title="Training curves", cost="minutes"),
        Entry(name="cifar", title="CIFAR-10: distances and spectra", cost="10 minutes"),
        Entry(name="cifar_training", title="CIFAR-10: training", cost="10 minutes"),
    ),
)
