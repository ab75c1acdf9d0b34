"""
Train a network to its limit
============================

Ordinary training stops when the loss is small; then the norm is far above the minimum norm that
separates the samples. Steps on the logarithm of the loss continue until they almost agree.
"""

from functools import partial

import matplotlib.pyplot as plt

from implicit_bias import GLNSVC, GLNClassifier, LimitConfig, certify_network, train_to_limit
from implicit_bias.datasets import load_digits, split

data = split(load_digits(), train_size=300)
X, y = data.train.X, data.train.y
svm = GLNSVC(n_units=10, random_state=1, on_failure="raise").fit(X, y)
optimum = svm.solution_.certificate.upper

trainer = partial(train_to_limit, config=LimitConfig(steps=1500))
limit = GLNClassifier(n_units=10, random_state=1).fit_by(X, y, trainer)
found = certify_network(limit.network_, X, y)
print(f"within {found.certificate.gap:.2%} of the limit, by the network's own multipliers")

separates = [point for point in limit.history() if point.min_margin > 0]
steps = [point.step for point in separates]
excess = [100 * (1 / point.normalised_margin / optimum - 1) for point in separates]
figure, axis = plt.subplots(figsize=(5.5, 3.5))
axis.loglog(steps, excess)
axis.set(xlabel="step", ylabel="norm above the certified optimum, %")
figure.tight_layout()
