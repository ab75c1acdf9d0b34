"""Runs: from a configuration (data, architecture, seeds, training) to fitted models and results.

====================  ======================================================================
file                  what
====================  ======================================================================
configuration.py      everything that a comparison depends on; the command line's options
models.py             the data and the fitted models of a configuration
comparison_folder.py  a comparison's configuration, models and report in a folder
grading.py            certified bounds on a fitted model, and what they mean
beside_svm.py         a network trained towards infinite time beside the SVM that it goes to
sweep.py              a grid of configurations, computed in parallel, and kept in a file each
====================  ======================================================================
"""
