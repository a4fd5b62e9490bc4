"""
The activity of every unit
==========================

``plot_heat`` draws units (rows) by layers (columns).
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_heat

rng = np.random.default_rng(0)
widths = [10, *10 * [30], 1]
layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
found = rs.layers(rs.Network(layers), rng.normal(size=(300, 10)), rng=0)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_heat(found, ax=ax)
