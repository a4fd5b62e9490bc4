"""
How likely is a wrong advisory?
===============================

A collision-avoidance adviser with five noisy inputs: how likely does it say "clear of conflict" with an intruder ahead?
First with a confidence interval, then with a bracket that holds for certain; then as the sensor noise grows.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs

shown = rs.example("controller")
net, law = shown.network, shown.law
event = "argmin == 0"
print(rs.probability(net, law, event, guarantee="confidence", budget="2s", rng=0))
print(rs.probability(net, law, event, guarantee="sound", budget="4s"))
print(rs.witness(net, law, event, rng=0))

# %%
scale = np.array([0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
answers = [
    rs.probability(net, rs.Gaussian(law.mean, law.cov * s**2), event, guarantee="confidence", budget="1s", rng=0)
    for s in scale
]
figure, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
value = np.array([a.value for a in answers])
gaps = [[a.value - a.lower for a in answers], [a.upper - a.value for a in answers]]
ax.errorbar(scale, value, gaps, fmt="o-", capsize=3)
ax.set_xlabel("noise, as a multiple of the sensors' standard deviation")
ax.set_ylabel('P("clear of conflict")')
ax.set_yscale("log")
