"""Infinitely wide ReLU networks: what training reaches of the certified maximum margin.

Source: Chizat, Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained
with the logistic loss" (COLT 2020).
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Infinite width

Chizat and Bach, ["Implicit bias of gradient descent for wide two-layer neural networks trained with
the logistic loss"](https://arxiv.org/abs/2002.04486) (2020): when both layers of an infinitely wide
ReLU network are trained and the flow converges, it ends at the largest margin under the variation
norm. That maximum is a convex problem over all neurons, solved and certified by
`implicit_bias.infinite_width`; so what a network of finite width and finite time reaches is
a share of a known number.

The data are the published ones, clusters with random labels, but in the plane, d = 3 with the
constant, where the exact maximum exists for every draw. Margins are measured at the published
steps, draws and widths (50,000, 20, and 8 to 1,024 units), the published illustration at its
300,000 steps. Each command takes minutes of one free core, and keeps every setting as it is
finished; `--quick` takes seconds. The rules of the verdicts were written before the tables of these
sizes, but for those of narrow networks, of the missing unit and of convex reformulations. This page
is written by `python -m benchmarks infinite_width page` from the tables in
`benchmarks/results/infinite_width`."""

STUDY = Study(
    name="infinite_width",
    head=HEAD,
    experiments=(
        Entry(name="certified", title="How exactly the maximum is known", cost="minutes"),
        Entry(
            name="margin_reached",
            title="How much of the maximum margin gradient descent reaches",
            cost="minutes",
        ),
        Entry(name="local_minima", title="Where narrow networks end", cost="minutes"),
        Entry(name="live_and_frozen", title="Frozen gates and live ones", cost="minutes"),
        Entry(name="escape", title="Which unit a network lacks", cost="a minute"),
        Entry(name="neurons", title="How many neurons the optimum needs", cost="minutes"),
        Entry(name="plane", title="What each norm makes of the same points", cost="minutes"),
        Entry(
            name="convex_reformulations",
            title="Grading finite regularisation",
            cost="minutes",
        ),
    ),
)
