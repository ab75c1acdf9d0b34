"""
The activation patterns that a ReLU network learns
==================================================

The gates of a ReLU network change during training. Fixed at any step they define an SVM (SVM-LC);
its distance from the network shows when the gates have settled.
"""

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import GatedReLUSVC, ReLUClassifier
from implicit_bias.datasets import load_digits, split

data = split(load_digits(), train_size=600)
X, y = data.train.X, data.train.y
steps = (0, 10, 30, 100, 300, 1000, 3200)
network = ReLUClassifier(n_units=20, random_state=0, checkpoints=steps).fit(X, y)

errors, disagreements = [], []
for step in steps:
    svm = GatedReLUSVC(gates=network.checkpoints_[step], on_failure="raise").fit(X, y)
    predicted = svm.predict(data.validation.X)
    errors.append(100 * np.mean(predicted != data.validation.y))
    disagreements.append(100 * np.mean(predicted != network.predict(data.validation.X)))

figure, axis = plt.subplots(figsize=(5.5, 3.5))
axis.plot(steps, errors, "o-", label="error of SVM-LC")
axis.plot(steps, disagreements, "s-", label="disagreement with the network at its end")
error = 100 * np.mean(network.predict(data.validation.X) != data.validation.y)
axis.axhline(error, color="0.5", linestyle=":", label="error of the network at its end")
axis.set(xscale="symlog", xlim=(-0.3, 6000), ylabel="% of validation samples")
axis.set_xlabel("step whose gates are frozen")
axis.legend()
figure.tight_layout()
