"""Where training goes: infinite time, deeper networks, and the contexts that a network learns."""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Infinite time

Lippl, Abbott and Chung (2022) find that trained networks and their SVMs still differ. Is that for
want of time, or of the theory? Here networks are trained towards the limit, by
`implicit_bias.training.limit`, and held against certified optima.

This page is written by `python -m benchmarks infinite_time page` from the tables in
`benchmarks/results/infinite_time`; a run that is stopped goes on, and `--quick` takes seconds."""

STUDY = Study(
    name="infinite_time",
    head=HEAD,
    experiments=(
        Entry(
            name="excess",
            title="Finite time, or other stationary points?",
            cost="ten minutes of one core",
        ),
        Entry(
            name="deep_gln",
            title="What the two-layer norm predicts of deep GLNs",
            cost="minutes of one core",
        ),
        Entry(
            name="contexts",
            title="When has a network finished choosing its contexts?",
            cost="a minute of one core",
        ),
    ),
)
