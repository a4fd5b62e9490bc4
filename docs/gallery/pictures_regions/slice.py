"""
A plane through three inputs
============================

``plot_slice`` draws the regions on a plane in a space of more dimensions, here through three images of digits.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_slice

digits = rs.example("digits")
plane = rs.slice(digits.network, digits.law.sample(3, rng=1))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_slice(plane, ax=ax)
