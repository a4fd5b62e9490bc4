"""
All layers on one page
======================

``plot_layers`` draws eight panels: activity, norms, ranks, widths and dimensions.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_layers

rng = np.random.default_rng(0)
widths = [10, *10 * [30], 1]
layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
found = rs.layers(rs.Network(layers), rng.normal(size=(300, 10)), rng=0)
plot_layers(found, figure=plt.figure(figsize=(13.0, 6.5), layout="constrained"))
