"""
Regions, rows and coefficients
==============================

``plot_models_2d`` draws the regions of a network with two inputs, the rows, and the coefficients as arrows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

import reluscope as rs
from reluscope.plot import plot_models_2d

X, y = make_circles(600, noise=0.1, random_state=0)
net = rs.example("cocircles").network
labels = np.array(net.schema.classes)[y]
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_models_2d(rs.unwrap(net, X, labels), ax=ax)
