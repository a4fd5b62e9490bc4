"""
The polyhedral complex and a decision boundary
==============================================

Where the units of each layer switch: lines for the first layer, bent lines for later ones. The set where the output is
zero, the decision boundary, is cut out of the same regions.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_complex

net = rs.example("moons").network
found = rs.polyhedral_complex(net, box=(-2, 3))
print(found)
boundary = found.level_set()
print(boundary, "in", boundary.components(), "part(s)")

# %%
figure, ax = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
plot_complex(found, ax, boundary=boundary)
