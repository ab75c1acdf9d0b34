"""Benchmarks and studies: speed, and what papers claim beside what we measure."""
