"""
The law of an output
====================

A cdf with its jumps, exactly, beside a million Monte Carlo draws. The jumps are atoms: cells on which the network is
constant hold positive probability.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs

moons = rs.example("moons")
out = rs.outputs(moons.network, moons.law)
print(out.mean, out.quantile([0.01, 0.5, 0.99]))
print(out.atoms())

# %%
t = np.linspace(-12, 12, 401)
exact = out.cdf(t)
draws = np.sort(moons.network(moons.law.sample(1_000_000, rng=0))[:, 0])
sampled = np.searchsorted(draws, t, side="right") / len(draws)
figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 5.6), sharex=True, layout="constrained")
top.plot(t, exact.value, label="exact")
top.plot(t[::10], sampled[::10], ".", label="1,000,000 draws")
top.set_ylabel("P(y <= t)")
top.legend()
bottom.plot(t, out.pdf(t).value)
bottom.set_ylabel("density")
bottom.set_xlabel("t")
print(f"largest difference: {np.abs(exact.value - sampled).max():.1e}")
