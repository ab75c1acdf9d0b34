"""How training goes on towards infinite time."""
