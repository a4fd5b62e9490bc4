"""
Local models as lines
=====================

``plot_local_lines`` draws, for two inputs, the line on which the local model of each large region is zero.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

import reluscope as rs
from reluscope.plot import plot_local_lines

X, y = make_circles(600, noise=0.1, random_state=0)
net = rs.example("cocircles").network
labels = np.array(net.schema.classes)[y]
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_local_lines(rs.unwrap(net, X, labels), ax=ax)
