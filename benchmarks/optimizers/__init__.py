"""Where optimizers go: the margin, in every norm, of what each of them trains."""
