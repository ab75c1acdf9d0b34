"""Protocols of published experiments: their draws, in their order, and their training."""
