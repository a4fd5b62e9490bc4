"""Arrays of numbers that say what they are: the array form of `reluscope.answer.Answer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.answer import Answer


@dataclass(frozen=True, eq=False, repr=False)
class Values:
    """Numbers with brackets: `value`, `lower`, `upper` of one shape, and what the brackets are (see `answer`).

    With `guarantee="confidence"` each bracket holds on its own with probability `level`. `numpy.asarray(values)` is
    `value`.
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    guarantee: str
    level: float | None = None
    method: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the three arrays."""
        return self.value.shape

    def __len__(self) -> int:
        return len(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.value, dtype=dtype) if copy else np.asarray(self.value, dtype=dtype)

    def __float__(self) -> float:
        return float(self.value)

    def __getitem__(self, index: Any) -> Values | Answer:
        """A part of the numbers; a single one comes as an `Answer`."""
        parts = [np.asarray(a[index]) for a in (self.value, self.lower, self.upper)]
        if parts[0].ndim:
            return Values(parts[0], parts[1], parts[2], self.guarantee, self.level, self.method)
        value, lower, upper = (float(p) for p in parts)
        return Answer(value, lower, upper, self.guarantee, self.level, self.method)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, arrays as lists."""
        return {
            "value": self.value.tolist(),
            "lower": self.lower.tolist(),
            "upper": self.upper.tolist(),
            "guarantee": self.guarantee,
            "level": self.level,
            "method": self.method,
        }

    def __repr__(self) -> str:
        kind = self.guarantee if self.level is None else f"{self.guarantee} {100 * self.level:g} % each"
        with np.printoptions(precision=6, threshold=8, edgeitems=3):
            shown = np.array2string(self.value, separator=", ", prefix="Values(")
        width = float(np.max(self.upper - self.lower, initial=0.0))
        return f"Values({shown}, brackets up to {width:.2g} wide, {kind})"
