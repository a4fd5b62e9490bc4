"""
Where the units of each layer switch
====================================

``plot_complex`` draws the edges of the polyhedral complex, coloured by layer, and a decision boundary.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_complex

found = rs.polyhedral_complex(rs.example("moons").network, box=(-2, 3))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_complex(found, boundary=found.level_set(), ax=ax)
