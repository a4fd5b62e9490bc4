"""
A controller in its loop
========================

How likely is it that a controlled system leaves its safe set within five steps? The states after each step are
piecewise affine in the first state, so this is an event of one network, and its probability is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope import activations

# %%
# A double integrator (position and velocity) with a saturated linear controller, `u = clip(-k x, -1, 1)`.

A, B = np.array([[1.0, 0.3], [0.0, 1.0]]), np.array([[0.045], [0.3]])
controller = rs.Network([([[-1.0, -1.5]], None, activations.clip(-1.0, 1.0)), ([[1.0]], None)])
law = rs.Gaussian([1.0, 0.5], [[0.1, 0.0], [0.0, 0.1]])
linear = rs.closed_loop(controller, A, B, 5, names=["position", "velocity"])
leaves = " or ".join(f"position_{t} > 2" for t in range(1, 6))
print("P(some step is beyond 2) =", rs.probability(linear, law, leaves))

# %%
# A hybrid plant: behind a wall at 1.8 a spring pushes back. It is a network from (position, velocity, control) to the
# next state, with one ReLU for the wall.

wall = rs.Network(
    [
        (
            np.vstack([np.eye(3), [[1.0, 0.0, 0.0]]]),
            [0.0, 0.0, 0.0, -1.8],
            [activations.identity()] * 3 + [activations.relu()],
        ),
        (np.hstack([A, B, [[0.0], [-2.0]]]), None),
    ]
)
hybrid = rs.closed_loop(controller, wall, None, 5, names=["position", "velocity"])
print("P(some step is beyond 2), with the wall =", rs.probability(hybrid, law, leaves))

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.4), sharey=True, layout="constrained")
X = law.sample(40, 0)
for ax, loop, title in zip(axes, (linear, hybrid), ("linear", "with a wall"), strict=True):
    states = np.concatenate([X[:, None, :], loop(X).reshape(len(X), 5, 2)], axis=1)
    ax.plot(states[:, :, 0].T, color="0.4", lw=0.7)
    ax.axhline(2.0, color="C3", lw=1)
    ax.set(title=title, xlabel="step", ylabel="position")
