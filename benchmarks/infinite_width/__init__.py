"""Infinitely wide ReLU networks: what training reaches of the certified maximum."""
