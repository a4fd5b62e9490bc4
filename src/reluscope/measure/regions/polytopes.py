"""Masses of single polytopes and the domains of components: what enumeration and the laws share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.answer import Answers
from reluscope.cells.domain import clip, starting_cell
from reluscope.errors import InputError
from reluscope.inputs import FAR, far_sides
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.measure.regions.masses import exact, gaussian_masses, weaker

if TYPE_CHECKING:
    from reluscope.inputs import Component


def given(joint: Answers, condition: Answers) -> Answers:
    """`P(cell and box) / P(box)` with the brackets divided the safe way round."""
    levels = [m.level for m in (joint, condition) if m.level is not None]
    late = condition if joint.complete else joint
    with np.errstate(divide="ignore", invalid="ignore"):
        return Answers(
            np.minimum(joint.value / condition.value, 1.0),
            joint.lower / condition.upper,
            np.minimum(np.nan_to_num(joint.upper / condition.lower, nan=1.0, posinf=1.0), 1.0),
            weaker(joint.guarantee, condition.guarantee),
            1.0 - sum(1.0 - x for x in levels) if levels else None,
            note=late.note,
            status=late.status,
        )


def gaussian_mass(A: FloatArray, b: FloatArray, relative: float, level: float, rng: np.random.Generator) -> Answers:
    """Mass of `A u <= b` under N(0, I), by the best measure of the dimension."""
    r = A.shape[1]
    norm = np.linalg.norm(A, axis=1)
    if (b[norm == 0] < 0).any():
        return exact(np.zeros(1), np.zeros(1))
    A, b = A[norm > 0] / norm[norm > 0, None], b[norm > 0] / norm[norm > 0]
    if r == 1:
        sides = b / A[:, 0]
        low = max([-np.inf, *sides[A[:, 0] < 0]])
        high = min([np.inf, *sides[A[:, 0] > 0]])
        if low >= high:
            return exact(np.zeros(1), np.zeros(1))
        from reluscope.measure.exact import interval_mass

        value = np.atleast_1d(interval_mass(low, high))
        return exact(value, 1e-12 * value)
    if r <= MOST_EXACT_DIMENSIONS and len(A) and (b > -FAR).all():
        box = np.full(r, -FAR), np.full(r, FAR)
        try:
            cell = clip(starting_cell(r, box=box), A, b)
        except InputError:  # no interior
            return exact(np.zeros(1), np.full(1, np.finfo(float).tiny))
        return gaussian_masses(cell)
    from reluscope.measure.polytope import METHODS, polytope_masses

    found, draws = polytope_masses(A, b, relative=relative, level=level, rng=rng)
    closed = METHODS[draws.method[0]] == "exact"
    return exact(found.value, 1e-12 * found.value) if closed else found


def component_measure(component: Component) -> float:
    """Measure of the set that holds a component of few dimensions: volume or Gaussian mass of its box, or 1."""
    if component.kind == "gaussian":
        return 1.0
    if component.log_mass is not None:
        whole = float(np.exp(component.log_mass))
    else:
        rng = np.random.default_rng(0)  # not drawn from: the dimension has an exact measure
        whole = float(gaussian_mass(*component.inequalities(), 1e-3, 0.999, rng).value[0])
    if not whole > 0.0:
        raise InputError("the box of the truncated law holds less mass than float64 can tell from zero; widen it")
    return whole


def standard_domain(component: Component) -> dict[str, Any]:
    """Box and half-spaces, in standard coordinates, that hold all mass of a component: arguments of `regions`.

    A component the network does not see (r = 0) is measured as a standard normal in its one dummy input.
    """
    n = component.network.n_inputs
    if component.r == 0:
        return {"box": (np.full(n, -FAR), np.full(n, FAR))}
    if component.kind == "uniform":
        return {"box": (component.lower, component.upper)}
    if component.lower is not None and component.upper is not None:
        return {"box": far_sides(component.lower, component.upper)}
    box = np.full(n, -FAR), np.full(n, FAR)
    return {"box": box} if component.rows is None else {"box": box, "polytope": component.rows}
