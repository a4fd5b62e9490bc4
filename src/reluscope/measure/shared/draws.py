"""Where lines and points are drawn: uniform numbers (scrambled Sobol or independent) turned into lines under a law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.measure.exact import interval_mass
from reluscope.measure.polytope import DIGITS, DirectionTable, direction_table, fast_quantile, scramble, trailing_ones
from reluscope.measure.shared.line_sums import NORMAL, RADIAL, UNIFORM

if TYPE_CHECKING:
    from reluscope.inputs import Component

REACH = 38.5
"""Standard normal lines are cut here: less than 1e-323 of their mass is beyond."""

MOST_POINTS = 1 << 30
"""Points of one scrambled Sobol sequence."""

_SURE_BITS = 18

MOST_SOBOL = 21201
"""Dimensions of SciPy's table of direction numbers."""


@lru_cache(maxsize=8)
def _table(dimensions: int, bits: int) -> DirectionTable:
    """`direction_table`, without the seconds that it takes to walk to the points that show the last numbers."""
    qmc = late("scipy.stats", "qmc")

    known = direction_table(dimensions, min(bits, _SURE_BITS))
    # SciPy keeps the numbers in an attribute of no guaranteed name: used where it agrees with what the points show.
    kept = getattr(qmc.Sobol(dimensions, scramble=False, bits=30), "_sv", None)
    if isinstance(kept, np.ndarray) and kept.ndim == 2 and kept.shape[1] >= bits:
        table = kept[:, :bits].astype(np.uint64) << np.uint64(DIGITS - 30)
        if np.array_equal(table[:, : known.shape[1]], known):
            return table
    return direction_table(dimensions, bits)


@kernel
def _fill(directions: Any, point: Any, index: int, out: Any) -> None:
    """Sobol points from a place on, `point` being the first of them."""
    unit = 1.0 / 2.0**DIGITS
    for i in range(out.shape[0]):
        j = trailing_ones(index + i)
        for k in range(out.shape[1]):
            out[i, k] = (np.float64(point[k]) + 0.5) * unit
            point[k] ^= directions[k, j]


_BLOCK = 64
_SHIFT = np.uint64(DIGITS - 32)


@kernel
def _fill_bits(directions: Any, point: Any, index: int, out: Any, begin: int, end: int) -> None:
    """The leading 32 digits of Sobol points from a place on in columns begin..end, `point` being the first of them.

    Blocks of 64 points that start at a multiple of 64 differ by the exclusive or with their first point only.
    """
    pattern = np.empty(_BLOCK, np.uint32)
    index -= begin
    for k in range(out.shape[0]):
        x = point[k]
        pattern[0] = 0
        for i in range(1, _BLOCK):
            pattern[i] = pattern[i - 1] ^ np.uint32(directions[k, trailing_ones(i - 1)] >> _SHIFT)
        i = begin
        while i < end:
            if (index + i) % _BLOCK == 0 and i + _BLOCK <= end:
                first = np.uint32(x >> _SHIFT)
                for w in range(_BLOCK):
                    out[k, i + w] = first ^ pattern[w]
                x ^= directions[k, 5]  # all 63 steps together: the Gray code of 63 is bit 5 alone
                i += _BLOCK
                x ^= directions[k, trailing_ones(index + i - 1)]
            else:
                out[k, i] = np.uint32(x >> _SHIFT)
                x ^= directions[k, trailing_ones(index + i)]
                i += 1


@kernel
def _normalise(u: Any) -> None:
    """Uniform numbers to standard normal ones, in place; none beyond 8.3."""
    for i in range(u.size):
        p = u[i]
        small = min(p, 1.0 - p)
        z = fast_quantile(small if small > 5.6e-17 else 5.6e-17)
        u[i] = z if p > 0.5 else -z


def normals(uniforms: FloatArray) -> FloatArray:
    """Uniform numbers to standard normal ones, elementwise; overwrites its argument."""
    _normalise(uniforms.reshape(-1))
    return uniforms


Place = tuple[int, int]
"""A scramble, and an index in its sequence of points."""


class SobolDraws:
    """Scrambled Sobol points (linear scramble and digital shift) for groups of n points each, drawn in order.

    `per_scramble` consecutive groups are consecutive blocks of one sequence; the next ones have the next scramble.
    """

    def __init__(
        self, dimensions: int, groups: int, n: int, rng: np.random.Generator, *, per_scramble: int = 1
    ) -> None:
        if dimensions > MOST_SOBOL:
            raise InputError(
                f"Sobol points have at most {MOST_SOBOL} dimensions, but the network sees {dimensions}; "
                'use interval="finite-sample"'
            )
        self.dimensions = dimensions
        self._per_scramble = per_scramble
        scrambles = -(-groups // per_scramble)
        if n * per_scramble > MOST_POINTS:
            raise InputError(
                f"lines must be at most {MOST_POINTS:,} to a scramble, got {n * per_scramble:,}; "
                'use fewer lines, more replicates or interval="finite-sample"'
            )
        bits = next(b for b in (14, 18, 22, 26, 30) if 1 << b >= n * per_scramble)
        self._directions = np.empty((scrambles, dimensions, bits), np.uint64)
        self._first = np.empty((scrambles, dimensions), np.uint64)
        self._index = [0] * scrambles
        if dimensions:
            table = _table(dimensions, bits)
            states = rng.integers(0, 2**64, (scrambles, 1), dtype=np.uint64)
            for i in range(scrambles):
                scramble(table, dimensions, bits, states[i], self._directions[i], self._first[i])

    def place(self, group: int, n: int) -> Place:
        """Where the next n points of a group are; they count as drawn, and whoever has the place can write them."""
        which = group // self._per_scramble
        index = self._index[which]
        self._index[which] += n
        return which, index

    def write(self, place: Place, out: FloatArray) -> None:
        """Write the points of a place into `out`, (n, dimensions), inside (0, 1)."""
        if self.dimensions:
            _fill(self._directions[place[0]], self._point(place), place[1], out)

    def write_bits(self, place: Place, out: Any, begin: int, end: int) -> None:
        """Write the leading 32 digits of the points of a place into `out[:, begin:end]`, (dimensions, n)."""
        if self.dimensions:
            _fill_bits(self._directions[place[0]], self._point(place), place[1], out, begin, end)

    def fill(self, group: int, out: FloatArray) -> None:
        """Write the next points of one group into `out`."""
        self.write(self.place(group, len(out)), out)

    def fill_bits(self, group: int, out: Any, begin: int, end: int) -> None:
        """Write the leading 32 digits of the next points of one group into `out[:, begin:end]`."""
        self.write_bits(self.place(group, end - begin), out, begin, end)

    def _point(self, place: Place) -> npt.NDArray[np.uint64]:
        """The point at a place: the first one, and the direction numbers of the Gray code of its index."""
        which, index = place
        gray = index ^ (index >> 1)
        bits = [j for j in range(gray.bit_length()) if gray >> j & 1]
        return np.bitwise_xor.reduce(self._directions[which][:, bits], axis=1, initial=0) ^ self._first[which]


class IndependentDraws:
    """Independent uniform numbers, in the same manner."""

    def __init__(self, dimensions: int, rng: np.random.Generator) -> None:
        self.dimensions = dimensions
        self._rng = rng

    def fill(self, group: int, out: FloatArray) -> None:
        """Write independent uniform numbers into `out`."""
        out[:] = self._rng.random(out.shape)

    def fill_bits(self, group: int, out: Any, begin: int, end: int) -> None:
        """Write independent bits into `out[:, begin:end]`."""
        out[:, begin:end] = self._rng.integers(0, 1 << 32, (len(out), end - begin), dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class Batch:
    """Lines `base + t direction`, the range of t, and the law of t (see `reluscope.measure.shared.line_sums`)."""

    base: FloatArray
    direction: FloatArray
    low: FloatArray
    high: FloatArray
    scale: FloatArray
    law: int


class Source(Protocol):
    """Draws lines or points of one component of a law."""

    name: str
    dimensions: int
    """Uniform numbers that a line takes."""
    point_dimensions: int
    turn: FloatArray | None
    """Where points are `turn @ z` with standard normal z: that matrix."""
    cut: float
    """Probability beyond the ends of the lines."""
    draws_more: bool
    """Whether lines and points take other random numbers than the uniform ones they are given."""

    def lines(self, uniforms: FloatArray, rng: np.random.Generator) -> Batch:
        """One line per row of uniform numbers."""
        ...

    def points(self, uniforms: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One point per row of uniform numbers."""
        ...


class GaussianLines:
    """Parallel lines under N(0, I_r): the coordinates across the direction are drawn, the one along it is integrated.

    `frame` is orthonormal, (r, r), its first column the direction; the others come in the order of the Sobol
    dimensions, so the ones that matter most should come first. Lines end at a distance `reach`; what is beyond is
    shared out in proportion.
    """

    draws_more = False

    def __init__(self, frame: FloatArray, name: str, reach: float = REACH) -> None:
        self.name = name
        self._frame, self._reach = frame, reach
        self._scale = 1.0 / float(interval_mass(-reach, reach))
        self.cut = 2.0 * float(interval_mass(reach, np.inf))
        self.point_dimensions = len(frame)
        self.dimensions = len(frame) - 1
        self.direction = np.ascontiguousarray(frame[:, :1].T)
        self._across = np.ascontiguousarray(frame[:, 1:].T)
        self.turn: FloatArray | None = frame

    def lines(self, uniforms: FloatArray, rng: np.random.Generator) -> Batch:
        """Lines with N(0, I) offsets across the direction."""
        n = len(uniforms)
        base = normals(uniforms) @ self._across if self.dimensions else np.zeros((n, 1))
        low = np.full(n, -self._reach)
        return Batch(base, self.direction, low, -low, np.full(n, self._scale), NORMAL)

    def within(self, reach: float) -> GaussianLines:
        """The same lines, shorter."""
        return GaussianLines(self._frame, self.name, reach)

    def points(self, uniforms: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Points from N(0, I)."""
        assert self.turn is not None
        return normals(uniforms) @ self.turn.T


class RadialLines:
    """Lines through the origin under N(0, I_r), their directions uniform on the sphere."""

    name = "radial"
    cut = 0.0
    draws_more = False

    def __init__(self, frame: FloatArray) -> None:
        self.dimensions = self.point_dimensions = len(frame)
        self.turn: FloatArray | None = frame
        self._all = np.ascontiguousarray(frame.T)

    def lines(self, uniforms: FloatArray, rng: np.random.Generator) -> Batch:
        """Lines through 0."""
        z = normals(uniforms) @ self._all
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        n = len(z)
        low = np.full(n, -REACH)
        return Batch(np.zeros_like(z), z, low, -low, np.ones(n), RADIAL)

    def points(self, uniforms: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Points from N(0, I)."""
        return normals(uniforms) @ self._all


class BoxLines:
    """Lines along one axis of a box, under a uniform law or independent truncated normals."""

    cut = 0.0
    draws_more = False

    def __init__(self, component: Component, axis: int) -> None:
        assert component.lower is not None and component.upper is not None
        self.name = f"axis {axis}"
        self.axis = axis
        self.lower, self.upper = component.lower, component.upper
        self.uniform = component.kind == "uniform"
        self.point_dimensions = len(self.lower)
        self.dimensions = self.point_dimensions - 1
        self.turn: FloatArray | None = None
        self._others = np.delete(np.arange(self.point_dimensions), axis)
        self._low, self._high = np.clip([self.lower[axis], self.upper[axis]], *_ends(self.uniform))
        mass = self._high - self._low if self.uniform else float(interval_mass(self._low, self._high))
        self._scale = 1.0 / mass

    def lines(self, uniforms: FloatArray, rng: np.random.Generator) -> Batch:
        """Lines with the other inputs drawn from their laws."""
        n = len(uniforms)
        base = np.zeros((n, self.point_dimensions))
        base[:, self._others] = self._quantiles(uniforms, self._others)
        direction = np.zeros((1, self.point_dimensions))
        direction[0, self.axis] = 1.0
        law = UNIFORM if self.uniform else NORMAL
        return Batch(
            base, direction, np.full(n, self._low), np.full(n, self._high), np.full(n, self._scale), law
        )  # fmt: skip

    def points(self, uniforms: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Points from the law."""
        return self._quantiles(uniforms, np.arange(self.point_dimensions))

    def _quantiles(self, uniforms: FloatArray, which: npt.NDArray[np.intp]) -> FloatArray:
        low, high = self.lower[which], self.upper[which]
        if self.uniform:
            return np.asarray(low + (high - low) * uniforms)
        from reluscope.inputs import restricted_normals

        return restricted_normals(low, high, uniforms)


class ChordLines:
    """Lines through exact draws of a Gaussian restricted to `A u <= b`: given the line, t is a restricted normal.

    E f(u) = E E[f(u) | the line through u along the direction], so lines through draws of the law itself need no
    weights. The draws are independent: `uniforms` only says how many.
    """

    cut = 0.0
    draws_more = True

    def __init__(self, component: Component, direction: FloatArray) -> None:
        assert component.rows is not None
        self.name = "chords"
        self.dimensions = self.point_dimensions = 0
        self.turn: FloatArray | None = None
        self.direction = direction[None]
        self._component = component
        self._A, self._b = component.rows

    def lines(self, uniforms: FloatArray, rng: np.random.Generator) -> Batch:
        """The chords through draws of the law, t = 0 at the foot of the origin."""
        u = self.points(uniforms, rng)
        d = self.direction[0]
        base = u - (u @ d)[:, None] * d
        slack, along = self._b - base @ self._A.T, self._A @ d
        with np.errstate(divide="ignore", invalid="ignore"):
            hits = slack / along
        low = np.where(along < 0, hits, -np.inf).max(axis=1, initial=-REACH)
        high = np.where(along > 0, hits, np.inf).min(axis=1, initial=REACH)
        low, high = np.minimum(low, u @ d), np.maximum(high, u @ d)  # a draw on the boundary is inside
        mass = np.asarray(interval_mass(low, high))
        with np.errstate(divide="ignore"):
            scale = np.where(mass > 0, 1.0 / mass, 0.0)
        return Batch(base, self.direction, low, high, scale, NORMAL)

    def points(self, uniforms: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Independent draws of the law."""
        return self._component.draws(len(uniforms), rng)


def _ends(uniform: bool) -> tuple[float, float]:
    return (-np.inf, np.inf) if uniform else (-REACH, REACH)
