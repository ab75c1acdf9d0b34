"""What all else rests on: checks, words, counts, rounding, and files that are written whole."""
