"""Illustrations on toy problems: where optimizers converge to, in certified margins."""
