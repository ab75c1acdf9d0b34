"""How far a homogeneous module is from the limits of its training, in any norm.

`diagnose`, `which_norm` and `Recorder` are each followed by the files that they are made of.

=================  =========================================================================
file               what
=================  =========================================================================
diagnose.py        `diagnose`: all that is measured of a module, in one call
result.py          `Diagnosis`: its numbers, what these say, its page and pictures
findings.py        `Finding`: a code, a number, what to do
words.toml         what each finding says: every sentence of this package
checks.py          what makes the numbers mean less, or what they are about
training.py        what stands between the training and the limit that is measured
loss_tail.py       whether training on a loss maximizes the margin
box.py             the limit with weight decay: how far a module is from it
box_trace.py       `BoxTrace`: the same along any training loop, from its own gradients
margin_trace.py    `MarginTrace`: bounds on the margin along a loop, from its own gradients
layers.py          the gap layer by layer
function_space.py  limits that are norms of the predictor itself
escape.py          whether one more unit lowers the norm
regime.py          lazy or rich: how far a training has left its start
which_norm.py      in which norm a training maximized the margin: the table
norm_evidence.py   what follows from the table: the norm that is named, or why none is
recorder.py        `Recorder`: margins and gaps along any training loop
checkpoints.py     the states that a finished training has saved
known_limit.py     the angle with a limit that is known
=================  =========================================================================
"""

from implicit_bias.diagnosis.diagnose import diagnose
from implicit_bias.diagnosis.escape import Escape
from implicit_bias.diagnosis.findings import Code, DiagnosisWarning, Finding, GapBounds
from implicit_bias.diagnosis.function_space import FunctionSpace
from implicit_bias.diagnosis.layers import Layer
from implicit_bias.diagnosis.norm_evidence import NormRow
from implicit_bias.diagnosis.regime import Regime
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.diagnosis.which_norm import WhichNorm, which_norm
