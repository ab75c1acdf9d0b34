"""Parities: what linear methods cannot learn, and gradient descent on two layers does.

Source: Daniely and Malach (2020).
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Parities

Daniely and Malach, "Learning Parities with Neural Networks" (2020). The label is the parity of k of
n bits, k odd; half of the inputs are uniform, in the other half the k relevant bits are equal (the
distribution D_A). No linear method of fixed features learns it for every choice of the k bits,
unless the number of features or the norm is exponential in k (theorem 2, for k <= n/16);
gradient descent on a network of two layers does, for widths, steps and numbers of bits that are
large enough (theorem 3). On strips of digits of MNIST, labelled with the parity of their sum, the
same shows (section 6).

The mathematics: [`parities.py`](../../implicit_bias/datasets/parities.py) (D_A and the derived
bound), [`linear_methods.py`](linear_methods.py) (theorem 2),
[`parity_first_step.py`](parity_first_step.py) (the start, lemmas 5 to 11),
[`parity_separation.py`](parity_separation.py) (lemma 12),
[`parity_descent.py`](parity_descent.py) (theorem 3, corollary 4, theorem 13, lemmas 14 to 16);
[`network.py`](network.py) has the descent and [`models.py`](models.py) the four models of section
6.

This page is written by `python -m benchmarks daniely2020 page` from the tables
in `benchmarks/results/daniely2020`; each command has a `--quick` version of seconds."""

STUDY = Study(
    name="daniely2020",
    head=HEAD,
    own_page=True,
    experiments=tuple(
        Entry(name=name, title=title, cost=cost)
        for name, title, cost in (
            ("strips", "Section 6: the parity of the sum of a strip of digits", "half an hour"),
            ("norm_needed", "Theorem 2: the norm that a linear method needs", "seconds"),
            ("bound", "A sharper bound beside linear methods", "a minute or two"),
            ("guarantee", "Theorem 3 and corollary 4 in numbers", "seconds"),
            ("first_step", "Lemmas 5 to 9: the first step", "half a minute"),
            ("separation", "Lemmas 11 and 12: a second layer that separates", "a minute"),
            ("later_steps", "Theorem 3: the later steps, and lemmas 14 to 16", "a minute"),
            ("learning", "The same from samples, beside other methods", "a few minutes"),
        )
    ),
)
