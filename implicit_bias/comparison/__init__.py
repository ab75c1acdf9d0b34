"""Comparisons of fitted classifiers: numbers, tables and verdicts.

`compare` (evaluate.py) asks each model (models.py) and returns a `Comparison` (comparison.py) of
`ModelResult`, `MarginResult` and `PairResult` (results.py). verdict.py decides what the numbers
show, and words.toml has the sentences. Pages and figures are in `implicit_bias.report`.
"""

from implicit_bias.comparison.comparison import Comparison
from implicit_bias.comparison.evaluate import compare
from implicit_bias.comparison.models import Predicts, is_interrupted
from implicit_bias.comparison.results import MarginResult, ModelResult, PairResult, first_svm
