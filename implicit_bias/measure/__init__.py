"""A torch module, measured: its margins, their gradients, and multipliers.

===================  =======================================================================
file                 what
===================  =======================================================================
modules.py           modules evaluated at other values, and put back as they were
margin_gradients.py  gradients of margins, as Gram matrices
multipliers.py       the best multipliers in a norm
stationarity.py      how far a module is from a KKT point
===================  =======================================================================
"""
