"""Ground floor: files that are whole or not there at all, and tensors with a header."""
