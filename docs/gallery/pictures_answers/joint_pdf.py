"""
The joint density of two outputs
================================

``plot_joint_pdf`` draws the density of two outputs together.
"""

import matplotlib.pyplot as plt

import reluscope as rs
from reluscope.plot import plot_joint_pdf

net = rs.Network([([[1.0, 0.5], [-1.0, 1.0]], [0.1, 0.2]), ([[1.0, 1.0], [0.5, -1.0]], [0.0, 0.1])])
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_joint_pdf(rs.outputs(net, rs.Gaussian([0.0, 0.0])), ax=ax)
