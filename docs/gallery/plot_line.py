"""
A network along a line
======================

The exact piecewise-linear function on a segment, and where it bends.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_function

net = rs.example("cocircles").network
path = rs.along(net, [-1.5, -1.0], [1.5, 1.2])
figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
plot_function(path, ax)
print(f"{len(path.breaks(0)) - 1} regions between the two points")
