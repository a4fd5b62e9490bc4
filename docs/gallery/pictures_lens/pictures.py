"""
Images in a grid
================

``plot_pictures`` draws images, each under its title.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from reluscope.plot import plot_pictures

digits = load_digits()
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_pictures(digits.images[:10, :, :, None] / 16.0, titles=[str(d) for d in digits.target[:10]], ax=ax)
