"""How far any homogeneous module is from where its training can end, in any geometry.

=================  =========================================================================
file               what
=================  =========================================================================
diagnose.py        `diagnose`: all that is measured of a module, in one call
result.py          `Diagnosis`: its numbers, its verdict in a sentence, its picture
loss_tail.py       whether training on a loss maximises the margin
recipe.py          how the module was trained, and what stands between it and the limit
traps.py           traps that can be mended, of which users are warned
layers.py          the gap layer by layer
function_space.py  limits that are norms of the predictor itself
escape.py          whether one more unit lowers the norm
which_norm.py      in which norm a training maximised the margin
recorder.py        `Recorder`: margins and gaps along any training loop
=================  =========================================================================
"""

from implicit_bias.diagnosis.diagnose import diagnose
from implicit_bias.diagnosis.escape import Escape
from implicit_bias.diagnosis.function_space import FunctionSpace
from implicit_bias.diagnosis.layers import Layer
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.diagnosis.traps import DiagnosisWarning
from implicit_bias.diagnosis.which_norm import GapBounds, NormRow, WhichNorm, which_norm
