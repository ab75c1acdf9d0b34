"""Names of version 0.2 that keep working; `implicit_bias.infinite_width` is where they live.

The theory of a paper is in the folder of its study, under ``benchmarks/``.
"""
