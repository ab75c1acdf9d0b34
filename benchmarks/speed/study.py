"""How fast the solvers are: beside their peers, with growing sizes, and along paths."""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Speed

Ratios between programs that run side by side, one after the other; each answer is graded by the
same `certify`. Times depend on the machine and on what else it does, ratios hardly.

This page is written by `python -m benchmarks speed page` from the tables in
`benchmarks/results/speed`, which have all rows. Rows are kept as they come: a run that is stopped
goes on where it was, and a wider limit tries again what a narrower one stopped. `--quick` takes
small problems of the digits; the data of the whole are in the folder `IMPLICIT_BIAS_DATA`."""

STUDY = Study(
    name="speed",
    head=HEAD,
    timed=True,
    experiments=(
        Entry(name="solvers", title="Native solver against its peers", cost="hours"),
        Entry(
            name="scaling", title="Growth: time and memory against N, H and C", cost="ten minutes"
        ),
        Entry(name="paths", title="Paths: what a start saves", cost="a minute"),
        Entry(name="stress", title="Stress: problems that are hard in float64", cost="hours"),
        Entry(
            name="classes",
            title="Many classes under every norm",
            cost="an hour",
            module="many_classes",
        ),
        Entry(name="builtin_sets", title="scikit-learn's built-in sets", cost="ten minutes"),
    ),
)
