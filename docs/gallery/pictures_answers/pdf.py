"""
The density of an output
========================

``plot_pdf`` draws the density; values taken with positive probability are named in the title.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_pdf

moons = rs.example("moons")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_pdf(rs.outputs(moons.network, moons.law), ax=ax)
