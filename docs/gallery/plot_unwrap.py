"""
The linear models that apply to data
====================================

A network on two noisy circles, taken apart into the linear models that apply to the rows of a data set.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

import reluscope as rs
from reluscope.plot import plot_importance, plot_models_2d

X, y = make_circles(2000, noise=0.1, random_state=0)
net = rs.example("cocircles").network
labels = np.array(net.schema.classes)[y]  # "outer circle" is 0, "inner circle" is 1
u = rs.unwrap(net, X, labels, feature_names=["left-right", "down-up"])
print(u)
print(u.explain(0))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plot_models_2d(u, left)
plot_importance(u, right)
