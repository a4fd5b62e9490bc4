"""
Channels as tiles
=================

``plot_channels`` draws all channels of a layer, each scaled to its own range.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.plot import plot_channels

row, column = np.indices((16, 16)) / 15.0
turns = np.linspace(0.0, np.pi, 12, endpoint=False)
maps = np.stack([np.maximum(np.sin(9.0 * (row * np.cos(a) + column * np.sin(a))), 0.0) for a in turns])
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_channels(maps, title="twelve channels", ax=ax)
