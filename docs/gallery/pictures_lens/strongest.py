"""
Where a layer responds most
===========================

``plot_strongest`` draws the receptive fields of the strongest activations as heat over the image.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.channels import Strongest
from reluscope.lens.receptive import ReceptiveField
from reluscope.plot import plot_strongest

field = ReceptiveField("conv2", "Conv", (7, 7), (2.0, 2.0), (-3.0, -3.0), False, (), (), (32, 32))
row, column = np.indices((32, 32))
image = np.repeat((np.hypot(row - 12, column - 20) < 6).astype(float)[:, :, None], 3, axis=2)
places = np.array([[0, 6, 10], [1, 4, 9], [0, 7, 11]])
heat = np.zeros((32, 32))
for _, i, j in places:
    top, bottom, left, right = field.box(i, j)
    heat[top:bottom, left:right] += 1.0
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_strongest(Strongest("conv2", np.array([3.0, 2.5, 2.4]), places, heat, field), image, ax=ax)
