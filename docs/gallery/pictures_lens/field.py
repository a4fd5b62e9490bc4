"""
A receptive field and its gradient
==================================

``plot_field`` draws the gradient of a unit at each pixel, with its nominal field as a box.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.receptive import EffectiveField, ReceptiveField
from reluscope.plot import plot_field

field = ReceptiveField("conv3", "Conv", (15, 15), (4.0, 4.0), (-7.0, -7.0), False, (), (), (32, 32))
row, column = np.indices((32, 32))
heat = np.exp(-((row - 16) ** 2 + (column - 16) ** 2) / 18.0) * ((abs(row - 16) < 8) & (abs(column - 16) < 8))
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_field(EffectiveField(field, 4, 4, heat, 1.0, 0.0), ax=ax)
