"""The part of the network that is known so far, as features of the (unit-box) input.

After k layers the features are `z_k = (relu(h_k), carried)`: the units found, and copies of earlier features. Carrying
the previous features along makes the signs of the units a choice instead of a secret, because

    relu(-h) = relu(h) - h,      h affine in the previous features.

So the next layer is affine in `z_k` whatever signs were chosen, and signs are settled afterwards (`signs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.threads import look


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer `z = act(W z_prev + b)`: ReLU where `bends`, identity elsewhere (the carried features).

    `silent` lists weights (unit, feature) that the unit's surface does not reveal: wherever the feature is active, the
    unit is on. Their values are placeholders that keep it on; what is missing, `delta * feature`, is affine and shows
    up in the carried features until the signs are settled. `slope` is that of the units below 0 (leaky ReLU). `linear`
    counts the carried features of a settled stage: linear functions of the features before, with weights of their own.
    """

    weight: FloatArray
    bias: FloatArray
    bends: npt.NDArray[np.bool_]
    silent: tuple[tuple[int, int], ...] = ()
    slope: float = 0.0
    linear: int = 0

    @property
    def n_units(self) -> int:
        """Number of ReLU units; they come first."""
        return int(self.bends.sum())

    @property
    def n_free(self) -> int:
        """Number of rows that are parameters: units and linear features, not copies."""
        return self.n_units + self.linear

    def of(self, z: FloatArray) -> FloatArray:
        """What the stage makes of features `z` (n, features)."""
        units, carried = self.n_units, len(self.bias) - self.n_units
        plain = carried == z.shape[1] and np.array_equal(self.weight[units:], np.eye(carried))
        if not plain or self.bias[units:].any():
            h = z @ self.weight.T + self.bias
            return np.where(self.bends & (h < 0), self.slope * h, h)
        h = z @ self.weight[:units].T + self.bias[:units]
        return np.concatenate([np.where(h < 0, self.slope * h, h), z], axis=1)

    @property
    def carries(self) -> bool:
        """Whether earlier features pass through."""
        return not self.bends.all()


class Local(NamedTuple):
    """Features at some points and their derivatives: `z` (n, features), `J` (n, features, inputs)."""

    z: FloatArray
    J: FloatArray


@dataclass(frozen=True, eq=False)
class Trunk:
    """Known layers, first to last, on `n_inputs` inputs."""

    n_inputs: int
    stages: tuple[Stage, ...] = ()

    @property
    def width(self) -> int:
        """Number of features after the last stage."""
        return len(self.stages[-1].bias) if self.stages else self.n_inputs

    def features(self, U: FloatArray) -> FloatArray:
        """`z` at the rows of U, shape (n, width)."""
        look()
        z = U
        for stage in self.stages:
            z = stage.of(z)
        return z

    def local(self, U: FloatArray) -> Local:
        """Features and their derivatives at the rows of U."""
        look()
        z, J = U, np.broadcast_to(np.eye(self.n_inputs), (len(U), self.n_inputs, self.n_inputs))
        for stage in self.stages:
            h = z @ stage.weight.T + stage.bias
            factor = np.where(stage.bends & (h < 0), stage.slope, 1.0)
            z = factor * h
            J = factor[:, :, None] * (stage.weight @ J)
        return Local(z, J)

    def grown(self, rows: FloatArray, silent: tuple[tuple[int, int], ...] = ()) -> Trunk:
        """One more stage: ReLU units `rows` (units, width + 1, the last column the bias), everything else carried."""
        units, width = len(rows), self.width
        weight = np.concatenate([rows[:, :-1], np.eye(width)])
        bias = np.concatenate([rows[:, -1], np.zeros(width)])
        return Trunk(self.n_inputs, (*self.stages, Stage(weight, bias, np.arange(units + width) < units, silent)))

    def with_last(self, stage: Stage) -> Trunk:
        """The same with another last stage."""
        return Trunk(self.n_inputs, (*self.stages[:-1], stage))
