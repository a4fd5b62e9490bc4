"""
A head beside its frames
========================

``plot_trajectory`` draws one head, the frames, and the maximum over heads on one time axis.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens import Recording
from reluscope.plot import plot_trajectory

rng = np.random.default_rng(0)
steps, heads, memory = 60, ("0.0", "0.1", "1.0", "1.1"), 16
score = rng.normal(size=(steps, 4, memory)) + 3.0 * np.cos(np.arange(memory) / (2.0 + np.arange(4)[:, None]))
weights = np.exp(score) / np.exp(score).sum(axis=2, keepdims=True)
outputs = np.cumsum(rng.normal(size=(steps, 4, 5)), axis=0)
recording = Recording(weights, heads, "memory", outputs)
frames = np.zeros((steps, 24, 24, 3))
for t in range(steps):
    frames[t, 8:16, (t // 3) : (t // 3) + 6] = (1.0, 0.6, 0.2)
plot_trajectory(recording, frames, "1.1", figure=plt.figure(figsize=(9.0, 5.0), layout="constrained"))
