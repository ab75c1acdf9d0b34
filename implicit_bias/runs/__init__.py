"""Runs: from a configuration (data, architecture, seeds, training) to fitted models and results.

====================  ======================================================================
file                  what
====================  ======================================================================
configuration.py      everything that a comparison depends on; the command line's options
data.py               the data of a configuration, split in training and validation samples
models.py             the fitted models of a configuration
beside_svm.py         a network trained towards its limit, beside the SVM that it converges to
comparison_folder.py  the report of a comparison, in a new folder
sweep.py              a grid of configurations, computed in parallel, and kept in a file each
====================  ======================================================================
"""
