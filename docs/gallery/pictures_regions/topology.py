"""
The shape of a decision
=======================

``plot_topology`` draws a set that a network marks off, with its Betti numbers: parts, holes.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_topology

found = rs.topology(rs.example("cocircles").network, box=(-1.6, 1.6), of="superlevel")
figure, ax = plt.subplots(figsize=(5.0, 4.4), layout="constrained")
plot_topology(found, ax=ax)
