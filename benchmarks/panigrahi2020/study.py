"""How the activation decides how fast a wide network of two layers learns.

Source: Panigrahi, Shetty, Goyal (ICLR 2020), theorem 4.3, equation (3), and their figure 1.
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# The activation Gram matrix

Panigrahi, Shetty and Goyal, "Effect of Activation Functions on the Training of Overparametrized
Neural Nets" (ICLR 2020): a wide network of two layers learns as fast as the eigenvalues of one
matrix allow, G_ij = <x_i, x_j> mean_k phi'(<w_k, x_i>) phi'(<w_k, x_j>), and the activation phi
decides how small they are. It is this package's masked Gram matrix with the gates phi'.
[`gradient_gram.py`](../../implicit_bias/theory/gradient_gram.py) has the mathematics.

Each experiment is one command, and `--quick` runs it small, in seconds. This page is written by
`python -m benchmarks panigrahi2020 page` from the tables in
`benchmarks/results/panigrahi2020`. Spectra need MNIST and `cifar10-subset.npz` (1,000 training
images a class) in the folder `IMPLICIT_BIAS_DATA`."""

STUDY = Study(
    name="panigrahi2020",
    head=HEAD,
    experiments=(
        Entry(name="spectra", title="Spectra: circle, MNIST, CIFAR-10", cost="less than a minute"),
        Entry(name="zeros", title="Zero eigenvalues of polynomial activations", cost="seconds"),
        Entry(name="decay", title="Decay of the smallest eigenvalue", cost="seconds"),
        Entry(name="training", title="Training curves against the spectrum", cost="a minute"),
        Entry(name="depth", title="Depth", cost="seconds"),
    ),
)
