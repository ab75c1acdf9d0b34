"""Parities: what linear methods cannot learn, and gradient descent on two layers does.

Source: Daniely and Malach (2020), theorems 2 and 3, and section 5.
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Parities

Daniely and Malach, "Learning Parities with Neural Networks" (2020). The label is the parity of k of
n bits, k odd; half of the inputs are uniform, in the other half the k relevant bits are equal (the
distribution D_A of `implicit_bias.theory.sparse_parities.ParityDistribution`). No linear method of
fixed features and bounded norm learns it, and gradient descent on two layers does.

`implicit_bias/theory/sparse_parities.py` has the mathematics: D_A, the lower bound for linear
methods with its proof, and the first gradient of the algorithm of theorem 3, exact and in the limit
of many bits; the algorithm is in `network.py` and strips of digits in `digit_strips.py`, here. D_A,
the bounded features, ReLU6, the hinge loss and a first step of its own step size and regularisation
are the source's. The constants of the bound, the initial weights and the step sizes are ours: those
of its theorems we have not compared with. Its claims are given in our words, without its numbers;
how the networks of section 5 were trained, and how large they were, we have not repeated either.

This page is written by `python -m benchmarks daniely2020 page` from the tables
in `benchmarks/results/daniely2020`; each command has a `--quick` version of seconds."""

STUDY = Study(
    name="daniely2020",
    head=HEAD,
    experiments=(
        Entry(
            name="strips", title="Strips of digits: the parity of their sum", cost="a minute or two"
        ),
        Entry(name="learning", title="Learning sparse parities on D_A", cost="a minute or two"),
        Entry(
            name="first_step",
            title="The first step: its gradient on A and off A",
            cost="a minute or two",
        ),
        Entry(name="bound", title="The lower bound beside linear methods", cost="a minute or two"),
    ),
)
