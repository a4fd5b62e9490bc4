"""
A network from its answers
==========================

The weights of a 5-8-6-1 network, up to the order and scale of its units, from values alone.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs

rng = np.random.default_rng(1)
widths = [5, 8, 6, 1]
net = rs.Network([(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.5 * rng.normal(size=m)) for n, m in pairwise(widths)])
found = rs.recover(rs.Oracle(net), (-2.0, 2.0), rng=0)
print(found)

# %%
X = rng.uniform(-2, 2, (2000, 5))
figure, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
ax.semilogy(net(X)[:, 0], np.abs(found.network(X) - net(X))[:, 0] + 1e-17, ".", markersize=3)
ax.set_xlabel("output of the black box")
ax.set_ylabel("error of the recovered network")
