"""
All heads in a grid
===================

``plot_heads`` draws every head, one row for each layer.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens import Recording
from reluscope.plot import plot_heads

rng = np.random.default_rng(0)
steps, heads, memory = 60, ("0.0", "0.1", "1.0", "1.1"), 16
score = rng.normal(size=(steps, 4, memory)) + 3.0 * np.cos(np.arange(memory) / (2.0 + np.arange(4)[:, None]))
weights = np.exp(score) / np.exp(score).sum(axis=2, keepdims=True)
outputs = np.cumsum(rng.normal(size=(steps, 4, 5)), axis=0)
recording = Recording(weights, heads, "memory", outputs)
plot_heads(recording, figure=plt.figure(figsize=(9.0, 5.0), layout="constrained"))
