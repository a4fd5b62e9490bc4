"""
Which parts matter
==================

``plot_ablation`` draws how far the output moves when each part is removed, largest first.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.ablation import Ablation
from reluscope.plot import plot_ablation

rng = np.random.default_rng(0)
parts = tuple(f"{layer}.{head}" for layer in range(3) for head in range(4))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_ablation(Ablation(parts, rng.gamma(0.5, 0.2, size=(12, 20))), ax=ax)
