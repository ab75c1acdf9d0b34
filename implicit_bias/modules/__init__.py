"""A torch module with samples, measured: its margins, their gradients, and the best multipliers.

Files come after those that they import.

=====================  =======================================================================
file                   what
=====================  =======================================================================
evaluate.py            a module and its samples, checked; evaluated and left as it was
loading.py             samples from a loader, batch by batch or all at once
layer_products.py      gradients in the weights of a layer, as sums of outer products
margins.py             margins q and their gradients J, as an operator that never holds J
partial_degrees.py     the degree in some of the parameters alone
forward_watch.py       the functions of torch that a forward pass calls, and where
homogeneity.py         the degree of a module, or an error that names what breaks it
leading.py             the part that leads where parameters are large
tangent_program.py     the tangent problem, and the bounds that multipliers prove
level_method.py        multipliers step by step, for norms that no solver takes
multipliers.py         the best multipliers in a norm, by `solve` on working sets or step by step
kinks.py               the KKT gap with the gradients on all sides of kinks
subject.py             the one check, the degree, and the one way to measure
steps.py               how an optimizer moves each tensor, and its weight decay
optimizers.py          the norm of optimizers, from their parameter groups
past_rates.py          how far weight decay has acted, by the rates of the past steps
single_samples.py      the norm of Adam with one sample at a time
fold.py                batch normalization, folded into the layer before it
stationarity.py        how far a network is from a KKT point in l2; certificates of networks
=====================  =======================================================================
"""
