"""Where a law lives: finite boxes that hold all of its mass as far as double precision can tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe
from reluscope.errors import InputError

FAR = 38.5
"""Standard deviations beyond which a Gaussian has mass below 1e-320, less than the smallest normal double."""


def far_box(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A finite box that carries the mass of N(0, I) given `lower <= u <= upper`, sides possibly infinite."""
    return np.maximum(lower, np.minimum(-FAR, upper - FAR)), np.minimum(upper, np.maximum(FAR, lower + FAR))


def support_box(law: Any, n_inputs: int) -> tuple[FloatArray, FloatArray]:
    """A finite box in x that holds the law: its own box, or the means plus and minus `FAR` standard deviations.

    Coordinates without spread get a thin box around their value.
    """
    from reluscope.inputs import Gaussian, GaussianMixture, Law, Particles, Truncated, Uniform

    if not isinstance(law, Law):
        raise InputError(f"law must be an input law such as Gaussian or Uniform, got {describe(law)}")
    if law.n != n_inputs:
        raise InputError(f"the law has {law.n} inputs but the network takes {n_inputs}")
    if isinstance(law, Uniform):
        lower, upper = law.lower, law.upper
    elif isinstance(law, Particles):
        lower, upper = law.points.min(axis=0), law.points.max(axis=0)
    elif isinstance(law, Truncated):
        sd = np.where(law.gaussian.sd > 0, law.gaussian.sd, 1.0)
        a, b = far_box((law.lower - law.gaussian.mean) / sd, (law.upper - law.gaussian.mean) / sd)
        lower, upper = (
            np.maximum(law.lower, law.gaussian.mean + sd * a),
            np.minimum(law.upper, law.gaussian.mean + sd * b),
        )
    elif isinstance(law, (Gaussian, GaussianMixture)):
        parts: list[Any] = [g for weight, g in law.components if weight > 0]
        lower = np.min([g.mean - FAR * g.sd for g in parts], axis=0)
        upper = np.max([g.mean + FAR * g.sd for g in parts], axis=0)
    else:
        raise InputError(f"law must be one of the laws of reluscope.inputs, got {describe(law)}")
    flat = lower >= upper
    margin = np.where(flat, 1e-6 * (1 + np.abs(lower)), 0.0)
    return lower - margin, upper + margin
