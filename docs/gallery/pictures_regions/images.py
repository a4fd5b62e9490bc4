"""
What a layer makes of a box
===========================

``plot_images`` draws the image of every region after a layer, on two of its units.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_images

net = rs.example("moons").network
images = rs.reachable(net, (-1.5, 2.5))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_images(images[0], units=(0, 1), ax=ax)
