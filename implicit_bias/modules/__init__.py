"""A torch module, measured: its margins, their gradients, and multipliers.

===================  =======================================================================
file                 what
===================  =======================================================================
modules.py           modules evaluated at other values, and put back as they were
lent_threads.py      one thread where the passes of a module are short
margin_gradients.py  gradients of margins, as Gram matrices
homogeneity.py       the degree, or the part of a module that breaks it
leading.py           the part that leads where parameters are large
multipliers.py       the best multipliers in a norm
optimizers.py        the norm of optimizers, from their parameter groups
subject.py           a module with samples: the one check, and the one way to measure
stationarity.py      how far a module is from a KKT point; certificates of networks
===================  =======================================================================
"""
