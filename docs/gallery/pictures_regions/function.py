"""
The output along a segment
==========================

``plot_function`` draws one output along a segment, with its break points.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_function

net = rs.example("cocircles").network
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_function(rs.along(net, [-1.5, -1.0], [1.5, 1.2]), ax=ax)
