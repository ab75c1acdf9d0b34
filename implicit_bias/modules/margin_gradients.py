"""The former name of `margins`."""

from implicit_bias.modules.margins import NO_PARAMETER, differentiated
from implicit_bias.modules.margins import Margins as MarginGradients

__all__ = ["NO_PARAMETER", "MarginGradients", "differentiated"]
