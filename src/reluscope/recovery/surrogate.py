"""Surrogate: a piecewise-affine function given by its regions and their linear models, from queries."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real_array
from reluscope._files import as_path
from reluscope._npy import read_npz
from reluscope._tables import Tabular
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits, started

_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Surrogate(Tabular):
    """Convex regions `A x <= b` of a box with a linear model `y = C x + d` on each.

    Region k, counted from 0, has the rows `start[k]:start[k + 1]` of `A` (unit rows) and `b`. `C` (regions, outputs,
    inputs), `d` (regions, outputs), `interior` (regions, inputs). Where two overlap (a part of the box with one
    linear model that is not convex is covered by several) they agree.

    Attributes
    ----------
    lower, upper : (inputs,) arrays
        The box.
    A, b, start : arrays
    C, d, interior : arrays
    """

    lower: FloatArray
    upper: FloatArray
    A: FloatArray
    b: FloatArray
    start: npt.NDArray[np.intp]
    C: FloatArray
    d: FloatArray
    interior: FloatArray

    def __len__(self) -> int:
        return len(self.C)

    def find(self, X: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """The region that holds each row, the deepest where several do, -1 where none does.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        (n,) array of int
        """
        X = self._rows(X)
        region = np.full(len(X), -1, dtype=np.intp)
        if not len(self):
            return region
        step = max(1, _CHUNK // max(len(self.b), 1))
        for i in range(0, len(X), step):
            slack = self.b - X[i : i + step] @ self.A.T
            least = np.minimum.reduceat(slack, self.start[:-1], axis=1)
            best = least.argmax(axis=1)
            inside = least[np.arange(len(best)), best] >= -1e-9 * np.abs(self.upper - self.lower).max()
            region[i : i + step] = np.where(inside, best, -1)
        return region

    def __call__(self, X: npt.ArrayLike) -> FloatArray:
        """Outputs, shape (n, outputs); nan where no region holds the row."""
        X = self._rows(X)
        region = self.find(X)
        out = np.full((len(X), self.d.shape[1]), np.nan)
        here = region >= 0
        out[here] = np.einsum("kmi,ki->km", self.C[region[here]], X[here]) + self.d[region[here]]
        return out

    def half_spaces(self, k: int) -> tuple[FloatArray, FloatArray]:
        """`(A, b)` of region k.

        Parameters
        ----------
        k : int

        Returns
        -------
        A, b : (facets, inputs) and (facets,) arrays
        """
        k = integer(k, "k", low=0, high=len(self.start) - 2)
        rows = slice(self.start[k], self.start[k + 1])
        return self.A[rows], self.b[rows]

    def unwrap(self, X: npt.ArrayLike) -> dict[str, Any]:
        """The local linear models of some data: one row per region that holds any, most populated first.

        Columns: region, number of rows, and the coefficients and intercept of each output.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        dict of columns
        """
        region = self.find(X)
        regions, count = np.unique(region[region >= 0], return_counts=True)
        order = np.argsort(-count, kind="stable")
        columns: dict[str, Any] = {"region": regions[order], "rows": count[order]}
        for o in range(self.d.shape[1]):
            columns |= {f"C{o}_{i}": self.C[regions[order], o, i] for i in range(self.C.shape[2])}
            columns[f"d{o}"] = self.d[regions[order], o]
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, one row per region: interior point, coefficients, intercepts, number of facets."""
        columns: dict[str, Any] = {"region": np.arange(len(self)), "facets": np.diff(self.start)}
        columns |= {f"x{i}": self.interior[:, i] for i in range(self.interior.shape[1])}
        for o in range(self.d.shape[1]):
            columns |= {f"C{o}_{i}": self.C[:, o, i] for i in range(self.C.shape[2])}
            columns[f"d{o}"] = self.d[:, o]
        return columns

    def save(self, path: str | PathLike[str]) -> None:
        """Write to an `.npz` file; `Surrogate.load` reads it back.

        Parameters
        ----------
        path : path

        Raises
        ------
        InputError
            If it does not end in `.npz`.
        """
        from reluscope.formats.arrays import write_npz

        path = as_path(path)
        if path.suffix != ".npz":
            raise InputError(f"path: surrogates are saved as .npz files, got {path.name!r}")
        write_npz({name: getattr(self, name) for name in _FIELDS}, path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Surrogate:
        """Read a surrogate written by `save`. The file is untrusted: shapes are checked.

        Parameters
        ----------
        path : path
        limits : Limits
            What the file may make us read or build.

        Returns
        -------
        Surrogate

        Raises
        ------
        InputError
            If the file is not one of a surrogate.
        """
        arrays, what = read_npz(path, started(limits)), Path(path).name
        if set(_FIELDS) - set(arrays):
            raise InputError(f"{what} is not a file of a surrogate: it lacks {', '.join(set(_FIELDS) - set(arrays))}")
        given = {name: real_array(arrays[name], f"{name} of {what}") for name in _FIELDS}
        start = given["start"].astype(np.intp)
        regions, n = given["interior"].shape if given["interior"].ndim == 2 else (-1, -1)
        fits = (
            given["C"].ndim == 3
            and given["b"].ndim == 1
            and given["C"].shape[::2] == (regions, n)
            and given["d"].shape == given["C"].shape[:2]
            and given["A"].shape == (len(given["b"]), n)
            and given["lower"].shape == given["upper"].shape == (n,)
            and start.shape == (regions + 1,)
            and start[0] == 0
            and start[-1] == len(given["b"])
            and bool((np.diff(start) > 0).all())
        )
        if not fits:
            raise InputError(f"{what} is not a file of a surrogate, or it is damaged: shapes do not fit together")
        rest = [given[name] for name in ("C", "d", "interior")]
        return cls(given["lower"], given["upper"], given["A"], given["b"], start, *rest)

    def __repr__(self) -> str:
        n, m = len(self.lower), self.d.shape[1]
        return f"Surrogate({len(self):,} linear models, R^{n} -> R^{m})"

    def _rows(self, X: npt.ArrayLike) -> FloatArray:
        X = real_array(X, "X", ndim=2)
        if X.shape[1] != len(self.lower):
            raise InputError(f"X must have {len(self.lower)} columns, got shape {X.shape}")
        return X


_FIELDS = ("lower", "upper", "A", "b", "start", "C", "d", "interior")
