"""Refinement: all parameters at once, by Gauss-Newton on values.

Recovered rows are good to 1e-8 or better, so nearly every sample already lies in the right cell, where the output is a
polynomial of the parameters. A few steps of damped least squares on plain values then reach the rounding of the oracle,
which no difference quotient can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reluscope._check import FloatArray
from reluscope.recovery.trunk import Trunk
from reluscope.threads import look

_NUMBERS = 1 << 21
"""Derivatives held at a time: 16 MB."""


_FAINT = 1e-7
"""Parameters that show less than so (relative to the one that shows most) take smaller steps: else rounding moves them
far, and with them every unit that they switch."""


@dataclass(frozen=True, eq=False)
class Model:
    """A complete model in unit-box coordinates: a trunk and output rows (outputs, features + 1)."""

    trunk: Trunk
    rows: FloatArray

    def __call__(self, U: FloatArray) -> FloatArray:
        """Outputs at rows of the unit box."""
        return self.trunk.features(U) @ self.rows[:, :-1].T + self.rows[:, -1]

    @property
    def n_parameters(self) -> int:
        """Weights and biases of the ReLU units and of the outputs."""
        units = sum(stage.n_free * (stage.weight.shape[1] + 1) for stage in self.trunk.stages)
        return int(units + self.rows.size)


def refine(model: Model, U: FloatArray, Y: FloatArray, steps: int = 12) -> tuple[Model, FloatArray]:
    """The model after a few steps, and its residuals at the samples, shape (n, outputs).

    Steps are kept only while the root mean square residual falls. Memory: parameters squared.
    """
    best, residual = model, Y - model(U)
    error = float(np.sqrt((residual**2).mean()))
    damping = 1e-12
    stalled = 0
    for _ in range(steps):
        G, pull = _normal_equations(best, U, residual)
        size = np.sqrt(G.diagonal())
        size = np.maximum(size, _FAINT * size.max() or 1.0)
        G /= size[:, None] * size
        G[np.diag_indices_from(G)] += damping * len(U)
        try:
            step = np.linalg.solve(G, pull / size) / size
        except np.linalg.LinAlgError:
            damping *= 100
            continue
        trial = _moved(best, step)
        trial_residual = Y - trial(U)
        trial_error = float(np.sqrt((trial_residual**2).mean()))
        if trial_error < error:
            stalled = stalled + 1 if trial_error > 0.7 * error else 0
            best, residual, error = trial, trial_residual, trial_error
            damping = max(damping * 0.1, 1e-14)
        else:
            damping, stalled = damping * 100, stalled + 1
        if stalled >= 2 or error == 0 or damping > 1e-2:
            break
    return best, residual


def _normal_equations(model: Model, U: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`J^T J` and `J^T residual`, the derivatives taken of some samples at a time."""
    size = model.n_parameters
    G, pull = np.zeros((size, size)), np.zeros(size)
    most = max(1, _NUMBERS // (size * len(model.rows)))
    for i in range(0, len(U), most):
        look()
        J = _jacobian(model, U[i : i + most])
        G += J.T @ J
        pull += J.T @ residual[i : i + most].reshape(-1)
    return G, pull


def _jacobian(model: Model, U: FloatArray) -> FloatArray:
    """Derivatives of the outputs by all parameters, shape (samples * outputs, parameters)."""
    stages = model.trunk.stages
    inputs, on = [U], []
    for stage in stages:
        h = inputs[-1] @ stage.weight.T + stage.bias
        on.append(np.where(stage.bends & (h < 0), stage.slope, 1.0))
        inputs.append(on[-1] * h)
    n, m = len(U), len(model.rows)
    blocks: list[FloatArray] = []
    last = np.zeros((n, m, m, model.rows.shape[1]))
    with_bias = np.concatenate([inputs[-1], np.ones((n, 1))], axis=1)
    for o in range(m):
        last[:, o, o] = with_bias
    blocks.append(last.reshape(n * m, -1))
    g = np.broadcast_to(model.rows[:, :-1], (n, m, model.rows.shape[1] - 1))
    for k in range(len(stages) - 1, -1, -1):
        stage = stages[k]
        g = g * on[k][:, None, :]
        z = np.concatenate([inputs[k], np.ones((n, 1))], axis=1)
        units = stage.n_free
        blocks.append((g[:, :, :units, None] * z[:, None, None, :]).reshape(n * m, -1))
        g = g @ stage.weight
    return np.concatenate(blocks[::-1], axis=1)


def _moved(model: Model, step: FloatArray) -> Model:
    """The model with the step added to its parameters, in the order of `_jacobian`."""
    stages, at = [], 0
    for stage in model.trunk.stages:
        k, width = stage.n_free, stage.weight.shape[1]
        part = step[at : at + k * (width + 1)].reshape(k, width + 1)
        at += part.size
        weight, bias = stage.weight.copy(), stage.bias.copy()
        weight[:k] += part[:, :-1]
        bias[:k] += part[:, -1]
        stages.append(replace(stage, weight=weight, bias=bias, silent=()))
    return Model(Trunk(model.trunk.n_inputs, tuple(stages)), model.rows + step[at:].reshape(model.rows.shape))
