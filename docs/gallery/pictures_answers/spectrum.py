"""
Singular values of the Jacobian
===============================

``plot_spectrum`` draws the distribution of the local Lipschitz constant.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_spectrum

moons = rs.example("moons")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_spectrum(rs.spectrum(moons.network, moons.law), ax=ax)
