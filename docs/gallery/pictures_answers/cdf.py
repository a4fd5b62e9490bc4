"""
The distribution function of an output
======================================

``plot_cdf`` draws P(y ≤ t) with its band and its jumps.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_cdf

moons = rs.example("moons")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_cdf(rs.outputs(moons.network, moons.law), draws=moons.network(moons.law.sample(20_000, rng=0))[:, 0], ax=ax)
