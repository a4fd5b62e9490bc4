"""
The regions of a classifier
===========================

Every region of the built-in moons network that its law (the distribution of the inputs) can reach, coloured by the
output and by probability.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_regions

moons = rs.example("moons")
net, law = moons.network, moons.law
regions = rs.regions(net, law=law)
masses = regions.masses(law)
print(regions)
print(f"{len(regions)} regions; their masses sum to {np.asarray(masses.value).sum():.15f} ({masses.guarantee})")

# %%
# The law's box is wide, because it holds all of the probability; ``view`` shows the middle of it.

sd = np.sqrt(law.variance)
view = (law.mean - 3 * sd, law.mean + 3 * sd)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
plot_regions(regions, left, colour="output", view=view)
plot_regions(regions, right, colour="mass", masses=masses.value, view=view)
