"""
Kernels in colour
=================

``plot_kernels`` draws kernels of three input channels in colour; zero is grey.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.plot import plot_kernels

rng = np.random.default_rng(0)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_kernels(rng.normal(size=(12, 3, 5, 5)), title="twelve kernels", ax=ax)
