"""
Which linear models, how likely, how steep
==========================================

Under a random input the linear model that a network applies is random too. Here are its distribution, and that of its
slope, under a law (the distribution of the inputs).
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_masses, plot_spectrum

moons = rs.example("moons")
found = rs.linear_models(moons.network, moons.law)
print(found.top(5))
print("entropy in bits:", found.entropy)

# %%
# Bars are exact; a hundred thousand draws stand beside them.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.0), layout="constrained")
plot_masses(found, left, patterns=moons.network.pattern(moons.law.sample(100_000, rng=0)))
plot_spectrum(rs.spectrum(moons.network, moons.law), right)
