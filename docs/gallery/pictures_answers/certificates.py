"""
Certified rows against noise
============================

``plot_certificates`` draws the share of rows whose decision is certified, against the noise.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_certificates

moons = rs.example("moons")
rows = moons.law.sample(12, rng=0)
found = rs.certify(moons.network, rows, [0.05, 0.1, 0.2], probability=1e-3)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_certificates(found, ax=ax)
