"""
Components layer by layer
=========================

``plot_growth`` draws how many truncated Gaussians the exact law has after each layer, and the errors
of moment matching.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_growth

net = rs.example("moons").network
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_growth(rs.invariance.growth(net, rs.Gaussian([0.5, 0.25], 0.5)), ax=ax)
