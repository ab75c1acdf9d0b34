"""Parities: what linear methods cannot learn, and gradient descent on two layers does.

    IMPLICIT_BIAS_DATA=... python benchmarks/daniely2020/parity_experiments.py strips
    python benchmarks/daniely2020/parity_experiments.py learning         # or first-step, bound
    python benchmarks/daniely2020/parity_experiments.py page             # README.md, all pictures

Each command takes a minute or two on one core, or seconds with ``--quick``; see
`implicit_bias.report.gallery` for what it keeps, and `implicit_bias.theory.sparse_parities` for
the mathematics.

Source: Daniely and Malach (2020), theorems 2 and 3, and section 5.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.daniely2020 import parity_bound, parity_first_step, parity_learning, parity_strips
from implicit_bias.report.gallery import Gallery

HEAD = """\
# Parities

Daniely and Malach, "Learning Parities with Neural Networks" (2020). The label is the parity of k of
n bits, k odd; half of the inputs are uniform, in the other half the k relevant bits are equal (the
distribution D_A of `implicit_bias.theory.sparse_parities.ParityDistribution`). No linear method of
fixed features and bounded norm learns it, and gradient descent on two layers does.

`implicit_bias/parities.py` has the mathematics: D_A, strips of digits, the lower bound for linear
methods with its proof, the algorithm of theorem 3, and its first gradient, exact and in the limit
of many bits. D_A, the bounded features, ReLU6, the hinge loss and a first step of its own step size
and regularisation are the source's. The constants of the bound, the initial weights and the step
sizes are ours: those of its theorems we have not compared with. Its claims are given in our words,
without its numbers; how the networks of section 5 were trained, and how large they were, we have
not repeated either.

This page is written by `python benchmarks/daniely2020/parity_experiments.py page` from the tables
in `benchmarks/results/daniely2020`; each command has a `--quick` version of seconds."""

GALLERY = Gallery(
    script=Path(__file__),
    head=HEAD,
    experiments=(
        parity_strips.EXPERIMENT,
        parity_learning.EXPERIMENT,
        parity_first_step.EXPERIMENT,
        parity_bound.EXPERIMENT,
    ),
)
app = GALLERY.app()

if __name__ == "__main__":
    app()
