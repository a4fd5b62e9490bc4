"""
The most probable linear models
===============================

``plot_masses`` draws their probabilities as bars, with intervals.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_masses

moons = rs.example("moons")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_masses(rs.linear_models(moons.network, moons.law), ax=ax)
