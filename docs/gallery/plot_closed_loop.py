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
free = rs.probability(linear, law, leaves)
print("P(some step is beyond 2) =", free)

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
held = rs.probability(hybrid, law, leaves)
print("P(some step is beyond 2), with the wall =", held)

# %%
# Two hundred first states and their paths. The wall pushes back only once a path is behind it: few of them turn in
# time.

figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.4), sharey=True, layout="constrained")
X = law.sample(200, 0)
for ax, loop, answer, title in zip(axes, (linear, hybrid), (free, held), ("linear", "with a wall"), strict=True):
    states = np.concatenate([X[:, None, :], loop(X).reshape(len(X), 5, 2)], axis=1)
    out = (states[:, 1:, 0] > 2.0).any(axis=1)
    ax.plot(states[~out, :, 0].T, color="0.6", lw=0.5)
    ax.plot(states[out, :, 0].T, color="C3", lw=1.2)
    ax.axhline(2.0, color="k", lw=1)
    ax.annotate("limit", (0.0, 2.02), va="bottom")
    ax.set(title=f"{title}: {100 * answer.value:.2f} % leave", xlabel="step", ylim=(0.0, 2.3))
axes[0].set_ylabel("position")
axes[1].axhline(1.8, color="C0", lw=1, ls="--")
axes[1].annotate("wall", (5.0, 1.82), color="C0", va="bottom", ha="right")
