"""Experiments: from a setting (data, architecture, seeds, protocol) to fitted models."""
