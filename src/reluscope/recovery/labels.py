"""`method="labels"`: the facets of the decision boundary, which is what hard labels tell.

Between two points with different labels a boundary point is found by halving. Moved sideways by a little and found
again, it gives the plane of its facet; two more places check that the boundary is flat there. A facet is a plane with
the labels on either side. Fresh boundary points are drawn until all of them lie on known facets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.recovery.oracle import Oracle, QueryLimitError
from reluscope.threads import OutOfTimeError, deadline, look

if TYPE_CHECKING:
    import pandas as pd

_FIRST = 2000
"""Labels asked first; more than an eighth of them different are not labels."""

_BATCH = 128
_CLEAN = 3
"""Boundary points drawn at a time, and how many such draws must lie on known facets."""

_MOST_ROUNDS = 400
_HALVINGS = 48
_SIDE = (1e-3, 1e-5)
"""How far a boundary point is moved sideways to measure its facet, in the box scaled to [-1, 1]: tried in turn."""

_REACH, _SIDE_HALVINGS = 30.0, 40
"""The boundary is looked for again within this many sidesteps, and halvings of that."""

_NUMBERS = 1 << 21
"""Numbers in the rows of one set of sidesteps."""

NEAR = 1e-7
"""A point this near to a facet's plane, in the scaled box, lies on the facet."""


@dataclass(frozen=True, eq=False, repr=False)
class Boundary:
    """Facets of a decision boundary: pieces of planes with one label on either side.

    Attributes
    ----------
    normal : (facets, inputs) array
        Unit length.
    offset : (facets,) array
        The plane is `normal . x = offset`.
    labels : (facets, 2) array
        The labels where `normal . x` is below and above the offset, next to the facet.
    points : (points, inputs) array
        Boundary points that were found.
    facet : (points,) array of int
        The facet of each, -1 where its plane could not be measured.
    """

    normal: FloatArray
    offset: FloatArray
    labels: FloatArray
    points: FloatArray
    facet: npt.NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.offset)

    def __repr__(self) -> str:
        return f"Boundary({len(self)} facets in R^{self.normal.shape[1]}, {len(self.points):,} points)"

    def to_pandas(self) -> pd.DataFrame:
        """One row per facet: labels, number of points met, plane."""
        frame = late("pandas", "DataFrame")
        met = np.bincount(self.facet[self.facet >= 0], minlength=len(self))
        columns: dict[str, Any] = {"below": self.labels[:, 0], "above": self.labels[:, 1], "points": met}
        columns |= {f"n{i}": self.normal[:, i] for i in range(self.normal.shape[1])}
        table: pd.DataFrame = frame(columns | {"offset": self.offset})
        return table


@dataclass(frozen=True, eq=False)
class Found:
    """The boundary and the labels seen; at the last fresh boundary points the largest distance to a facet (in the box
    scaled to [-1, 1]), the share on one, and their number; points whose facet could not be measured; why the search
    ended early."""

    boundary: Boundary
    labels: FloatArray
    largest: float
    share: float
    fresh: int
    unresolved: int
    stopped: str | None

    @property
    def complete(self) -> bool:
        """Whether the last fresh points all lay on known facets, enough of them."""
        return self.stopped is None and self.share == 1.0 and self.fresh >= _CLEAN * _BATCH // 2


def find_boundary(
    oracle: Oracle,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
    budget: Budget,
    report: Callable[[int, str], None],
) -> Found:
    """Search until fresh boundary points show nothing new, or the budget or the oracle's limit is reached."""
    search = _Search(oracle, lower, upper, rng)
    stopped: str | None = None
    try:
        with deadline(lambda: budget.elapsed() > 1.05 * budget.seconds + 0.2):
            search.begin()
            for _ in range(_MOST_ROUNDS if len(search.names) > 1 else 0):
                stopped = budget.spent()
                if stopped is not None or search.clean >= _CLEAN:
                    break
                search.round()
                report(oracle.queries, f"{len(search.offset)} facets")
            else:
                if len(search.names) > 1:
                    stopped = f"{_MOST_ROUNDS * _BATCH:,} boundary points"
    except QueryLimitError as error:
        stopped = str(error)
    except OutOfTimeError:
        stopped = budget.spent() or "out of time"
    return search.result(stopped)


class _Search:
    """Facets found so far, in the box scaled to [-1, 1]^n."""

    def __init__(self, oracle: Oracle, lower: FloatArray, upper: FloatArray, rng: np.random.Generator) -> None:
        self.oracle, self.rng = oracle, rng
        self.centre, self.half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        n = oracle.n_inputs
        self.normal, self.offset, self.sides = np.zeros((0, n)), np.zeros(0), np.zeros((0, 2))
        self.points, self.facet = np.zeros((0, n)), np.zeros(0, dtype=np.intp)
        self.names, self.pool, self.label = np.zeros(0), np.zeros((0, n)), np.zeros(0)
        self.clean, self.largest, self.share, self.fresh = 0, 0.0, 0.0, 0

    def ask(self, U: FloatArray) -> FloatArray:
        """The label at each row: the value of a single output, the largest of several."""
        look()
        Y = self.oracle(self.centre + self.half * U)
        return Y[:, 0] if Y.shape[1] == 1 else Y.argmax(axis=1).astype(float)

    def begin(self) -> None:
        """Labels at random points, half of them towards the corners."""
        count = int(min(_FIRST, self.oracle.left // 2))
        self.pool = self.rng.uniform(-1, 1, (count, len(self.half)))
        self.label = self.ask(self.pool)
        self.names = np.unique(self.label)
        if len(self.names) > count // 8:
            raise InputError(
                f"method 'labels' takes an oracle of labels; this one gave {len(self.names):,} different values at "
                f"{count:,} points. For scores use 'exact'"
            )

    def round(self) -> None:
        """Fresh boundary points: those on no known facet are measured."""
        i, j = self.rng.integers(0, len(self.pool), (2, 16 * _BATCH))
        other = np.flatnonzero(self.label[i] != self.label[j])[:_BATCH]
        if not len(other):  # a rare label: from its points to all others
            rare = np.flatnonzero(self.label == self.names[np.argmin([(self.label == v).sum() for v in self.names])])
            i = rare[self.rng.integers(0, len(rare), _BATCH)]
            rest = np.flatnonzero(self.label != self.label[rare[0]])
            j = rest[self.rng.integers(0, len(rest), _BATCH)]
            other = np.arange(_BATCH)
        low, high = self.pool[i[other]], self.pool[j[other]]
        way = high - low
        t, a, b = self._between(low, way, np.zeros(len(low)), np.ones(len(low)), self.label[i[other]], _HALVINGS)
        x, way = low + t[:, None] * way, way / np.linalg.norm(way, axis=1, keepdims=True)
        facet, away = self._on(x, way, a, b)
        new = np.flatnonzero(facet < 0)
        going_on = self.clean > 0 and not len(new)
        self.fresh, self.share = len(x) + going_on * self.fresh, 1 - len(new) / len(x)
        self.largest = max(going_on * self.largest, float(away[facet >= 0].max(initial=0.0)))
        self.clean = self.clean + 1 if not len(new) else 0
        if len(new):
            self._measure(x[new], way[new], a[new], b[new])
            facet[new], _ = self._on(x[new], way[new], a[new], b[new])
        self.points, self.facet = np.concatenate([self.points, x]), np.concatenate([self.facet, facet])

    def _between(
        self, start: FloatArray, way: FloatArray, low: FloatArray, high: FloatArray, label: FloatArray, halvings: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Where the label stops to be `label` on the way, with the labels before and behind."""
        behind = np.full(len(start), np.nan)
        for _ in range(halvings):
            middle = 0.5 * (low + high)
            here = self.ask(start + middle[:, None] * way)
            same = here == label
            low, high = np.where(same, middle, low), np.where(same, high, middle)
            behind = np.where(same, behind, here)
        missing = np.isnan(behind)
        if missing.any():
            behind[missing] = self.ask((start + high[:, None] * way)[missing])
        return 0.5 * (low + high), label, behind

    def _on(
        self, x: FloatArray, way: FloatArray, a: FloatArray, b: FloatArray
    ) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """The facet of each point (-1 if none), and its distance to the nearest plane with the same labels."""
        facet, away = np.full(len(x), -1, dtype=np.intp), np.full(len(x), np.inf)
        if len(self.offset):
            gap = np.abs(x @ self.normal.T - self.offset)
            up = way @ self.normal.T > 0
            below, above = np.where(up, a[:, None], b[:, None]), np.where(up, b[:, None], a[:, None])
            gap = np.where((below == self.sides[:, 0]) & (above == self.sides[:, 1]), gap, np.inf)
            best = gap.argmin(axis=1)
            away = gap[np.arange(len(x)), best]
            facet = np.where(away < NEAR, best, -1).astype(np.intp)
        return facet, away

    def _measure(self, x: FloatArray, way: FloatArray, a: FloatArray, b: FloatArray) -> None:
        """Add the facets of some boundary points."""
        todo = np.arange(len(x))
        for side in _SIDE:
            if not len(todo):
                break
            most = max(1, _NUMBERS // x.shape[1] ** 2)
            parts = [
                self._planes(x[i], way[i], a[i], b[i], side)
                for i in (todo[k : k + most] for k in range(0, len(todo), most))
            ]
            good, normal = (np.concatenate(part) for part in zip(*parts, strict=True))
            for i, v in zip(todo[good], normal[good], strict=True):
                up = v @ way[i] > 0
                sides = (a[i], b[i]) if up else (b[i], a[i])
                if self._on(x[i : i + 1], way[i : i + 1], a[i : i + 1], b[i : i + 1])[0][0] >= 0:
                    continue
                self.normal = np.concatenate([self.normal, v[None]])
                self.offset = np.append(self.offset, v @ x[i])
                self.sides = np.concatenate([self.sides, np.array(sides)[None]])
            todo = todo[~good]

    def _planes(
        self, x: FloatArray, way: FloatArray, a: FloatArray, b: FloatArray, side: float
    ) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        """Normals of the boundary at some points, and which of them two further places confirm."""
        k, n = x.shape
        frame = np.linalg.qr(np.concatenate([way[:, :, None], self.rng.normal(size=(k, n, n - 1))], axis=2))[0]
        across = frame[:, :, 1:].transpose(0, 2, 1)  # (k, n - 1, n), orthogonal to the way
        start = (x[:, None] + side * across).reshape(-1, n)
        ways, before, behind = (np.repeat(v, n - 1, axis=0) for v in (way, a, b))
        reach = np.full(len(start), _REACH * side)
        t, held = np.zeros(len(start)), np.ones(len(start), dtype=bool)
        if len(start):
            ends = self.ask(np.concatenate([start - reach[:, None] * ways, start + reach[:, None] * ways]))
            held = (ends[: len(start)] == before) & (ends[len(start) :] == behind)
            where = np.flatnonzero(held)
            if len(where):
                t[where] = self._between(
                    start[where], ways[where], -reach[where], reach[where], before[where], _SIDE_HALVINGS
                )[0]
        slope = -(t / side).reshape(k, n - 1)
        normal = way + (slope[:, :, None] * across).sum(axis=1)
        good = np.asarray(held.reshape(k, n - 1).all(axis=1))
        for _ in range(2):  # a little to either side of where the plane says
            move = self.rng.normal(size=(k, n - 1))
            move *= 1.5 * side / np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-300)
            place = x + (move[:, :, None] * across).sum(axis=1) - (move * slope).sum(axis=1, keepdims=True) * way
            slack = 1e-4 * side * np.maximum(1.0, np.linalg.norm(slope, axis=1, keepdims=True))
            good = np.asarray(good & (self.ask(place - slack * way) == a) & (self.ask(place + slack * way) == b))
        return good, normal / np.linalg.norm(normal, axis=1, keepdims=True)

    def result(self, stopped: str | None) -> Found:
        """Everything in the box's own coordinates."""
        normal = self.normal / self.half
        size = np.linalg.norm(normal, axis=1)
        offset = (self.offset + normal @ self.centre) / size
        points = self.centre + self.half * self.points
        boundary = Boundary(normal / size[:, None], offset, self.sides, points, self.facet)
        return Found(boundary, self.names, self.largest, self.share, self.fresh, int((self.facet < 0).sum()), stopped)
