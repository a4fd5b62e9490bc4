"""
Regions coloured by probability
===============================

``plot_regions`` draws the regions of a network with two inputs as exact polygons.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_regions

moons = rs.example("moons")
regions = rs.regions(moons.network, law=moons.law)
sd = np.sqrt(moons.law.variance)
view = (moons.law.mean - 3 * sd, moons.law.mean + 3 * sd)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_regions(regions, colour="mass", masses=regions.masses(moons.law), view=view, ax=ax)
