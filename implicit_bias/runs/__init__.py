"""Runs: from a configuration (data, architecture, seeds, training) to fitted models and results.

====================  ======================================================================
file                  what
====================  ======================================================================
configuration.py      everything that a comparison depends on; the command line's options
models.py             the data and the fitted models of a configuration
comparison_folder.py  the report of a comparison, in a folder of its own
beside_svm.py         a network trained towards infinite time beside the SVM that it goes to
sweep.py              a grid of configurations, computed in parallel, and kept in a file each
====================  ======================================================================
"""
