"""
Fewer regions by a penalty
==========================

``plot_l1_path`` draws the number of regions with data, and the test score, against an L1 penalty.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_l1_path

data = load_diabetes()
path = rs.l1_path(data.data, data.target, [0.0, 0.001, 0.01, 0.1], hidden=(16,), epochs=100, rng=0)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_l1_path(path, ax=ax)
