"""Figures of a report, drawn from a comparison or a training."""
