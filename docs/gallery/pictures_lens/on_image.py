"""
Attention over an image
=======================

``plot_on_image`` draws what each head of a vision transformer attends to, as heat over the image.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens import Recording
from reluscope.plot import plot_on_image

rng = np.random.default_rng(0)
score = rng.normal(size=(17, 4, 17))  # one class token and 4 x 4 patches
weights = np.exp(score) / np.exp(score).sum(axis=2, keepdims=True)
recording = Recording(weights, ("0.0", "0.1", "1.0", "1.1"), "sequence")
row, column = np.indices((32, 32)) / 31.0
plot_on_image(
    recording, np.stack([row, column, 1.0 - row], axis=-1), figure=plt.figure(figsize=(9.0, 5.0), layout="constrained")
)
