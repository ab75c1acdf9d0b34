"""How the activation decides how fast a wide network of two layers learns.

    IMPLICIT_BIAS_DATA=... python benchmarks/panigrahi2020/activation_gram_experiments.py spectra
    python benchmarks/panigrahi2020/activation_gram_experiments.py zeros  # decay, training, depth
    python benchmarks/panigrahi2020/activation_gram_experiments.py page   # README.md, all pictures

Each command takes less than a minute on one core, or seconds with ``--quick``; see
`implicit_bias.report.gallery` for what it keeps, and `implicit_bias.theory.gradient_gram` for the
mathematics and the symbols.

Source: Panigrahi, Shetty, Goyal (ICLR 2020), theorem 4.3, equation (3), and their figure 1.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.panigrahi2020 import gram_decay, gram_depth, gram_spectra, gram_training, gram_zeros
from implicit_bias.report.gallery import Gallery

HEAD = """\
# The activation Gram matrix

Panigrahi, Shetty and Goyal, "Effect of Activation Functions on the Training of Overparametrized
Neural Nets" (ICLR 2020): a wide network of two layers learns as fast as the eigenvalues of one
matrix allow, G_ij = <x_i, x_j> mean_k phi'(<w_k, x_i>) phi'(<w_k, x_j>), and the activation phi
decides how small they are. It is this package's masked Gram matrix with the gates phi'.
[`implicit_bias/activation_gram.py`](../../implicit_bias/activation_gram.py) has the mathematics.

Each experiment is one command, and `--quick` runs it small, in seconds. This page is written by
`python benchmarks/panigrahi2020/activation_gram_experiments.py page` from the tables in
`benchmarks/results/panigrahi2020`. Spectra need MNIST and `cifar10-subset.npz` (1,000 training
images a class) in the folder `IMPLICIT_BIAS_DATA`."""

GALLERY = Gallery(
    script=Path(__file__),
    head=HEAD,
    experiments=(
        gram_spectra.EXPERIMENT,
        gram_zeros.EXPERIMENT,
        gram_decay.EXPERIMENT,
        gram_training.EXPERIMENT,
        gram_depth.EXPERIMENT,
    ),
)
app = GALLERY.app()

if __name__ == "__main__":
    app()
