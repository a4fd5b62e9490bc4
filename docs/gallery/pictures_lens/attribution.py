"""
What each token adds
====================

``plot_attribution`` draws one number for each position as bars, or a picture.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.attribution import Attribution
from reluscope.plot import plot_attribution

values = np.array([0.1, -0.4, 1.2, 0.3])
found = Attribution("exact", values, 1.2, 0.0, 0.0, 0.0, 0, "exact")
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_attribution(found, labels=["the", "cat", "sat", "down"], ax=ax)
