"""
Dimension of the regions' images
================================

``plot_dimensions`` draws active units and ranks of the local Jacobian.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_dimensions

rng = np.random.default_rng(0)
widths = [10, *10 * [30], 1]
layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
found = rs.layers(rs.Network(layers), rng.normal(size=(300, 10)), rng=0)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_dimensions(found, ax=ax)
