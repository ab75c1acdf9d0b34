"""The native solver beside other solvers, in the layout of benchopt; growth; diagnosis."""
