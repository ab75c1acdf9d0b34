"""Gradient Gram matrices: what Panigrahi, Shetty and Goyal (2020) say, and what we measure."""
