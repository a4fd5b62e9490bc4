"""
Persistence of sublevel sets
============================

``plot_persistence`` draws a bar for each topological feature of ``{y <= t}``, from birth to death.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_persistence

found = rs.persistence(rs.example("cocircles").network, (-1.5, 1.5))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_persistence(found, ax=ax)
