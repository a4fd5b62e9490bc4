"""
Attributions side by side
=========================

``plot_attributions`` draws several attributions of one image over the image.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.attribution import Attribution
from reluscope.plot import plot_attributions

row, column = np.indices((24, 24))
image = np.repeat((np.hypot(row - 12, column - 12) < 7).astype(float)[:, :, None], 3, axis=2)
edge = np.exp(-((np.hypot(row - 12, column - 12) - 7) ** 2))[:, :, None] * np.sign(row - 12)[:, :, None]
found = [
    Attribution(method, scale * np.repeat(edge, 3, axis=2), 1.0, 0.0, 0.0, 0.0, 0, "estimate")
    for method, scale in (("gradient_times_input", 1.0), ("occlusion", -0.5))
]
plot_attributions(found, image, figure=plt.figure(figsize=(9.0, 4.0), layout="constrained"))
