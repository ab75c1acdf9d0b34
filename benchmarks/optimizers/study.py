"""Where does your optimizer go? Margins of what each optimizer trains, over certified maxima."""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# Where does your optimizer go?

Training without end maximises a margin, and the optimizer sets the norm: gradient descent l2, sign
descent and Adam l_inf, Muon the spectral norm, coordinate descent and boosting l1, mirror descent
l_p. Each claim has its conditions. Here every optimizer is held against the certified maximum
margin in every norm, so that a share of 98 % means 98 % of a known number.

This page is written by `python -m benchmarks optimizers page` from the tables in
`benchmarks/results/optimizers`; a run that is stopped goes on, and `--quick` takes seconds.

Claims of the same literature that are not tested here: mini-batches of many classes (Li, Tang, Zou
2026), Muon with weight decay (Chen, Li, Liu 2025), AdaGrad, whose limit depends on its start and
steps (Qian, Qian 2019), accelerated steps in general norms (Wang, Abernethy et al. 2023), and KKT
points that are no local optima (Vardi, Shamir, Srebro 2022), for which `diagnose` has a test of its
own (one more ReLU unit)."""

STUDY = Study(
    name="optimizers",
    head=HEAD,
    experiments=(
        Entry(name="linear", title="Linear predictors, many classes", cost="half an hour"),
        Entry(name="boosting", title="Boosting: the l1 margin of stumps", cost="a minute"),
        Entry(name="mirror", title="Mirror descent: l_p", cost="minutes"),
        Entry(name="weight_decay", title="AdamW: a box, not a margin", cost="a minute"),
        Entry(name="single_samples", title="Adam, one sample at a time", cost="a minute"),
        Entry(name="networks", title="Two-layer networks", cost="minutes"),
        Entry(name="speed", title="How fast the margin grows", cost="minutes"),
        Entry(name="rescaling", title="Progressive rescaling", cost="seconds"),
    ),
)
