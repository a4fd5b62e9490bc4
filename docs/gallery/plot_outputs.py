"""
The law of an output
====================

A cdf with its jumps, exactly, beside a million Monte Carlo draws. The jumps are atoms: regions on which the network
is constant have positive probability. The law is the distribution of the inputs.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_cdf, plot_pdf

moons = rs.example("moons")
out = rs.outputs(moons.network, moons.law)
print(out.mean, out.quantile([0.01, 0.5, 0.99]))
print(out.atoms())

# %%
draws = moons.network(moons.law.sample(1_000_000, rng=0))[:, 0]
figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 6.4), sharex=True, layout="constrained")
plot_cdf(out, top, draws=draws)
plot_pdf(out, bottom, draws=draws)
t = np.linspace(-12, 12, 401)
sampled = np.searchsorted(np.sort(draws), t, side="right") / len(draws)
print(f"largest difference of the cdf: {np.abs(out.cdf(t).value - sampled).max():.1e}")
