"""
Frames along the time axis
==========================

``plot_frame_strip`` puts the left edge of each frame at its own time.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens import Recording
from reluscope.plot import plot_frame_strip

rng = np.random.default_rng(0)
steps, heads, memory = 60, ("0.0", "0.1", "1.0", "1.1"), 16
score = rng.normal(size=(steps, 4, memory)) + 3.0 * np.cos(np.arange(memory) / (2.0 + np.arange(4)[:, None]))
weights = np.exp(score) / np.exp(score).sum(axis=2, keepdims=True)
outputs = np.cumsum(rng.normal(size=(steps, 4, 5)), axis=0)
recording = Recording(weights, heads, "memory", outputs)
frames = np.zeros((steps, 24, 24, 3))
for t in range(steps):
    frames[t, 8:16, (t // 3) : (t // 3) + 6] = (1.0, 0.6, 0.2)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_frame_strip(frames, ax=ax)
