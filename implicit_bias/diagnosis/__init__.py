"""How far any homogeneous module is from where its training can end, in any geometry."""

from implicit_bias.diagnosis.diagnose import diagnose
from implicit_bias.diagnosis.escape import Escape
from implicit_bias.diagnosis.function_space import FunctionSpace
from implicit_bias.diagnosis.layers import Layer
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.diagnosis.traps import DiagnosisWarning
from implicit_bias.diagnosis.which_norm import GapBounds, NormRow, WhichNorm, which_norm
