"""Names of version 0.2 that keep working; `implicit_bias.infinite_width` is where they live."""
