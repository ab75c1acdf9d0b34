"""Parities: what Daniely and Malach (2020) say, and what we measure."""
