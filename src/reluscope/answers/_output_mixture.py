"""The output's law region by region: the parts of the mixture of Proposition 2, equations (16)-(17) of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real_array
from reluscope.answer import Answers
from reluscope.answers._output_regions import FLAT, ComponentRegions, OutputRegions, Points
from reluscope.errors import InputError
from reluscope.network import Pattern

_LEAST_MASS = 1e-290
"""Conditional moments of a cell with less mass than this have no digits left."""

_OFF = 1e-9
"""Points farther than this share of their size from an affine subspace are not on it."""


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """The output's distribution region by region: one row per region of mass above 1e-290, heaviest first.

    Where `one_to_one`, the output given its region is the Gaussian of equation (17), `N(location, scale)` with
    `location = C mu + d` and `scale = C S C'`, restricted to the image of the region (`half_spaces`). Elsewhere it is
    the marginal of a Gaussian restricted in more directions than the outputs show.

    Attributes
    ----------
    mass : Answers
        Shape (n,).
    component : (n,) array
        The component of the input law.
    pattern : (n, units) array
    mean, cov : (n, outputs) and (n, outputs, outputs) arrays
        Moments of the output given the region.
    rank : (n,) array
        Dimension of the output's image of the region. Where it is less than the number of outputs the row has no joint
        density: it lives on an affine subspace of that dimension (a point for rank 0), where `density` is its density.
    location, scale : (n, outputs) and (n, outputs, outputs) arrays
        Mean and covariance of the Gaussian before truncation; nan for uniform laws, which have none.
    one_to_one : (n,) array of bool
        Whether the linear model is one-to-one in the directions the network sees, so that the part is a truncated
        Gaussian and no marginal of one.
    """

    mass: Answers
    component: npt.NDArray[np.int64]
    pattern: Pattern
    mean: FloatArray
    cov: FloatArray
    rank: npt.NDArray[np.int64]
    location: FloatArray
    scale: FloatArray
    one_to_one: npt.NDArray[np.bool_]
    _parts: tuple[ComponentRegions | Points, ...]
    _place: npt.NDArray[np.int64]
    """Of each row: which of `_parts`, and the row there."""

    def __len__(self) -> int:
        return len(self.mass)

    @property
    def degenerate(self) -> npt.NDArray[np.bool_]:
        """Which rows have no joint density, (n,)."""
        return self.rank < self.mean.shape[1]

    @property
    def degenerate_mass(self) -> float:
        """Total mass of the rows without a joint density."""
        return float(self.mass.value[self.degenerate].sum())

    def subspace(self, i: int) -> tuple[FloatArray, FloatArray]:
        """The affine subspace that row i lives on: a point (outputs,), and an orthonormal basis (outputs, rank).

        Parameters
        ----------
        i : int

        Returns
        -------
        (point, basis)
        """
        part, row = self._part(i)
        if isinstance(part, Points):
            return part.y[row], np.zeros((part.y.shape[1], 0))
        left = np.linalg.svd(part.C[row], full_matrices=False)[0]
        return part.d[row], left[:, : int(self.rank[i])]

    def vertices(self, i: int) -> FloatArray:
        """Vertices of the image of region i, to which the part is truncated: the convex hull of rows (k, outputs).

        A Gaussian law is cut at 38.5 standard deviations, beyond which no mass is left in float64. Images of regions
        under maps that are not one-to-one have more points here than vertices.

        Parameters
        ----------
        i : int

        Returns
        -------
        (k, outputs) array
        """
        part, row = self._part(i)
        if isinstance(part, Points):
            return part.y[row : row + 1].copy()
        points = np.asarray(part.cells.vertices(row)).reshape(-1, part.dimension)
        return points @ part.C[row].T + part.d[row]

    def half_spaces(self, i: int) -> tuple[FloatArray, FloatArray]:
        """The image of region i, to which the part is truncated, as inequalities `A y <= b`; see `vertices`.

        Parameters
        ----------
        i : int

        Returns
        -------
        (A, b)
            Shapes (rows, outputs) and (rows,); a subspace is given by pairs of opposite rows.
        """
        from reluscope.cells.reachable import hull_rows

        points = self.vertices(i)
        return hull_rows(points, float(np.abs(points).max(initial=0.0)))

    def density(self, i: int, y: npt.ArrayLike) -> Answers:
        """Density of row i at y, with respect to volume in its `subspace`; it integrates to the row's mass.

        Zero off the subspace. A row of rank 0 is an atom: its "density" is its mass, at the atom.

        Parameters
        ----------
        i : int
        y : (..., outputs)

        Returns
        -------
        Answers
            Of shape (...).

        Raises
        ------
        InputError
            If y does not fit, or the law has two directions or more beyond those the outputs show (uniform laws in
            four and more inputs).
        """
        part, row = self._part(i)
        m = self.mean.shape[1]
        points = real_array(y, "y")
        if points.ndim == 0 or points.shape[-1] != m:
            raise InputError(f"y must have {m} numbers in its last axis, one for each output, got shape {points.shape}")
        flat = points.reshape(-1, m)
        centre, basis = self.subspace(i)
        inside = (flat - centre) @ basis
        away = np.abs(flat - centre - inside @ basis.T).max(axis=1)
        on = away <= _OFF * (np.abs(flat).max(axis=1, initial=0.0) + np.abs(centre).max(initial=0.0))
        value, lower, upper = np.zeros((3, len(flat)))
        if basis.shape[1] == 0:
            ends = self.mass.value[i], self.mass.lower[i], self.mass.upper[i]
            value[on], lower[on], upper[on] = ends
        elif on.any():
            assert isinstance(part, ComponentRegions)
            C = (basis.T @ part.C[row])[None]
            zero = np.zeros((1, basis.shape[1]))
            value[on], lower[on], upper[on] = part.density(np.array([row]), C, zero, inside[on])
        shaped = [a.reshape(points.shape[:-1]) for a in (value, lower, upper)]
        return Answers(shaped[0], shaped[1], shaped[2], self.mass.guarantee, None, self.mass.method)

    def __repr__(self) -> str:
        return (
            f"Mixture({len(self):,} regions, total mass {self.mass.value.sum():.12g}, "
            f"{self.degenerate_mass:.6g} of it without a joint density)"
        )

    def _part(self, i: int) -> tuple[ComponentRegions | Points, int]:
        which, row = self._place[integer(i, "i", low=-len(self), high=len(self) - 1)]
        return self._parts[which], int(row)


def mixture_of(regions: OutputRegions, guarantee: str, method: str) -> Mixture:
    """All regions and points of an output's law, heaviest first."""
    parts: tuple[ComponentRegions | Points, ...] = (*regions.components, *regions.points)
    rows = [_region_rows(p) if isinstance(p, ComponentRegions) else _point_rows(p) for p in parts]
    columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
    mass, error = columns[:2]
    place = np.concatenate(
        [np.column_stack([np.full(len(r[0]), k), np.arange(len(r[0]))]) for k, r in enumerate(rows)]
    ).astype(np.int64)
    order = np.argsort(-mass, kind="stable")
    order = order[mass[order] > _LEAST_MASS]
    mass, error = mass[order], error[order]
    ends = np.maximum(mass - error, 0.0), np.minimum(mass + error, 1.0)
    masses = Answers(mass, *ends, guarantee, None, method)
    component, pattern, mean, cov, rank, location, scale, one_to_one = (c[order] for c in columns[2:])
    return Mixture(
        masses, component, pattern, mean, cov, rank, location, scale, one_to_one, parts, place[order]
    )  # fmt: skip


def _region_rows(regions: ComponentRegions) -> tuple[Any, ...]:
    first, second = regions.moments
    safe = np.where(regions.mass > 0, regions.mass, 1.0)
    centre = first / safe[:, None]
    spread = second / safe[:, None, None] - centre[:, :, None] * centre[:, None, :]
    mean = np.einsum("noi,ni->no", regions.C, centre) + regions.d
    cov = np.einsum("noi,nij,npj->nop", regions.C, spread, regions.C, optimize=True)
    rank = np.linalg.matrix_rank(regions.C, rtol=FLAT).astype(np.int64)
    component = np.full(len(mean), regions.component, np.int64)
    location, scale = regions.d, np.einsum("noi,npi->nop", regions.C, regions.C)
    if not regions.gaussian:
        location, scale = np.full_like(location, np.nan), np.full_like(scale, np.nan)
    one_to_one = rank == regions.dimension
    return regions.mass, regions.error, component, regions.pattern, mean, cov, rank, location, scale, one_to_one


def _point_rows(points: Points) -> tuple[Any, ...]:
    n, m = points.y.shape
    component, rank, none = np.full(n, points.component, np.int64), np.zeros(n, np.int64), np.zeros((n, m, m))
    return points.mass, points.error, component, points.pattern, points.y, none, rank, points.y, none, np.ones(n, bool)
