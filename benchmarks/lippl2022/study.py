"""The replication of Lippl, Abbott, Chung (2022): a grid of cells is an experiment.

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

# In the order in which they were computed: what, and how long it takes on one core.
GRIDS = {
    "gln": ("Gated linear networks, as published and corrected: figures 2 to 4", "an hour"),
    "limit": ("Gated linear networks at infinite time beside finite time", "an hour"),
    "relu": ("ReLU networks: figure 5", "ten minutes"),
    "shallow": ("GLNs of one layer, k = 0 to 15", "an hour"),
    "osqp": ("The published SVM-L2 by the published solver", "half an hour"),
    "odd": ("Odd against even digits", "minutes"),
    "loops": ("Digits with a loop against the others", "minutes"),
    "fashion": ("Fashion-MNIST", "minutes"),
    "large": ("5,000 to 48,000 training samples", "ten minutes"),
    "relu-momentum-0": ("ReLU networks without momentum: figure 5", "minutes"),
    "splits": ("Two more splits of the data", "minutes"),
    "limit-wider": ("Infinite time: four contexts, random thresholds, more samples", "an hour"),
    "relu-wide": ("ReLU networks of 500 and 1,000 units: figure 3c", "ten minutes"),
}
# Every released network trained exactly as released, and what rests on them.
EXACT = {
    "exact_networks": ("Every released network, trained with the same random draws", "hours"),
    "exact_explained": ("Why a network is not the released one", "an hour"),
    "exact_agreements": ("The SVMs beside networks trained exactly as released", "hours"),
}
LEARNED, BY_ECOS = "learned_contexts", "solved_by_ecos"
THEORY = {
    "unequal_degrees": ("Theorem 3.1 and contexts of different degrees", "seconds"),
    "assumptions": ("The assumptions of theorem 3.1 along a training", "seconds"),
}
STUDY = Study(
    name="lippl2022",
    head="# Lippl, Abbott, Chung (2022), replicated",
    experiments=(
        *(
            Entry(name=name, title=title, cost=cost, module="grids")
            for name, (title, cost) in GRIDS.items()
        ),
        *(
            Entry(name=name, title=title, cost=cost, module="exact_training")
            for name, (title, cost) in EXACT.items()
        ),
        *(
            Entry(name=name, title=title, cost=cost, module="theory_checks")
            for name, (title, cost) in THEORY.items()
        ),
        Entry(name=LEARNED, title="SVM-LC and the last bit of the network", cost="half an hour"),
        Entry(
            name=BY_ECOS,
            title="SVM-GLN and SVM-RC by ECOS, as released",
            cost="an hour",
        ),
        Entry(
            name="l2_optimality",
            title="Was the released SVM-L2 solved to its end?",
            cost="ten minutes",
        ),
        Entry(name="published", title="The released values, point by point", cost="seconds"),
    ),
    own_page=True,
)
