"""
What brings the answer back
===========================

``plot_patching`` draws the share of a difference that each part brings back when its value is put into the other input.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.interventions import Patching
from reluscope.plot import plot_patching

rng = np.random.default_rng(0)
rows, columns = ("block 0", "block 1", "block 2"), ("the", "cat", "sat", "down")
found = Patching(rows, columns, rng.uniform(-0.2, 1.0, size=(3, 4)), 3.1, -0.4, "corrupted")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_patching(found, ax=ax)
