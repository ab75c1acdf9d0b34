"""The name that `implicit_bias.infinite_width.max_margin` had in version 0.2."""

from implicit_bias.infinite_width import max_margin as max_margin
