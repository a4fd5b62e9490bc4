"""
Local templates of the outputs
==============================

``plot_templates`` draws the exact local linear map of each output: red raises it, blue lowers it.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.lens.bridge import LocalMap
from reluscope.plot import plot_templates

digits = rs.example("digits")
x = digits.law.sample(1, rng=0)[0]
maps = digits.network.affine(digits.network.pattern(x))
chosen = tuple(np.argsort(-digits.network(x))[:3].tolist())
templates = maps.C[list(chosen)].reshape(3, 8, 8, 1)
found = LocalMap(x.reshape(8, 8, 1), digits.network(x)[list(chosen)], chosen, templates, maps.d[list(chosen)], 0.0)
plot_templates(found, figure=plt.figure(figsize=(9.0, 5.0), layout="constrained"))
