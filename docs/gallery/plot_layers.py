"""
What depth does to geometry
===========================

A random network of 24 layers: angles between inputs shrink, ranks collapse.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_layers

rng = np.random.default_rng(0)
widths = [20] + 24 * [40]
layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
net = rs.Network([*layers, (rng.normal(size=(1, 40)) / np.sqrt(40), np.zeros(1))])
found = rs.layers(net, rng.normal(size=(1000, 20)), rng=0)
print(found)

# %%
plot_layers(found, plt.figure(figsize=(13, 6.5), layout="constrained"))
