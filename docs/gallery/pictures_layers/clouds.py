"""
The inputs after every layer
============================

``plot_clouds`` draws the cloud after every layer in its two principal directions.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_clouds

rng = np.random.default_rng(0)
widths = [10, *10 * [30], 1]
layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
found = rs.layers(rs.Network(layers), rng.normal(size=(300, 10)), rng=0)
plot_clouds(found, figure=plt.figure(figsize=(10.0, 6.5), layout="constrained"))
