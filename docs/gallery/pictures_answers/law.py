"""
A law in the plane
==================

``plot_law`` draws the components of a law of two inputs, with its draws.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_law

law = rs.example("moons").law
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_law(law, points=law.sample(300, rng=0), ax=ax)
