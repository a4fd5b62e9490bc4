"""What rounding can do to the edges of an event: rows that lie on their limit, units whose state the event reads.

On a final cell each row is affine with a known rounding error. Where a row stays within that error of its limit all
over a cell, fractions decide (`FlatRows`). Events on units or on the Jacobian change where a unit switches, so the
cuts of the cells themselves are edges of the event (`HiddenEdges`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope._kernels import kernel
from reluscope.cells.split import Geometry
from reluscope.cells.subdivide import PROBABLE_ERRORS, next_maps, squared_scale
from reluscope.events import ExactNetwork, PlacedEvent
from reluscope.inputs import own_pattern
from reluscope.network import Network, Pattern

if TYPE_CHECKING:
    from reluscope.inputs import Component

Index = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

_MOST_WORK = 3_000_000
"""Products of fractions that one walk may spend on rows that rounding cannot decide: about two seconds."""

_NO_PATH = b""
"""The key of regions on which the derivatives of a row are zero whatever else."""

SLICE = 4.0
"""Cells outside of an edge are searched within so many tolerances of it for what rounding may have put there."""


class ExactMaps:
    """Outputs on the regions of one component as affine maps in fractions."""

    def __init__(self, component: Component, net: Network, most_work: int) -> None:
        self.component, self.most_work = component, most_work
        self.net = component.source or net
        self.work = 0
        self._ready: tuple[ExactNetwork, Any] | None = None

    def relevant(self, pattern: Pattern, wanted: BoolArray) -> bytes:
        """The pieces that the wanted outputs depend on: units that feed them through units that are not flat."""
        net = self.net
        parts = []
        for at in range(len(net.layers) - 1, 0, -1):
            weight = net.layers[at].weight
            wanted = np.asarray(abs(weight[wanted]).sum(axis=0)).ravel() != 0
            layer = net.layers[at - 1]
            piece = pattern[net.offsets[at - 1] : net.offsets[at - 1] + layer.width]
            parts.append(np.where(wanted, piece, 255).astype(np.uint8).tobytes())
            wanted = wanted & (layer.units.slopes[np.arange(layer.width), piece] != 0)
            if not wanted.any():
                break
        return b"|".join(parts)

    def row(self, pattern: Pattern, G: FloatArray) -> list[Fraction] | None:
        """`G y` on the region of a pattern: slopes and the constant; None where that would take too long."""
        net = self.net
        x0, D = self.component.span()
        self.work += (D.shape[1] + 1) * sum(layer.width * layer.n_inputs for layer in net.layers)
        if self.work > self.most_work:
            return None
        if self._ready is None:
            start = [[Fraction(float(v)) for v in d] + [Fraction(float(c))] for d, c in zip(D, x0, strict=True)]
            self._ready = ExactNetwork(net), start
        exact, start = self._ready
        sizes = [layer.width for layer in net.hidden]
        pieces = [part.tolist() for part in np.split(pattern, np.cumsum(sizes)[:-1])] if sizes else []
        value = [Fraction(0)] * (D.shape[1] + 1)
        if G.any():
            outputs = exact.maps([*pieces, [0] * net.n_outputs], start)
            for j in np.flatnonzero(G).tolist():
                value = [a + Fraction(float(G[j])) * b for a, b in zip(value, outputs[j], strict=True)]
        return value


class FlatRows:
    """Rows that are constant on a region, decided in fractions; None where they are not, or that takes too long."""

    def __init__(self, component: Component, event: PlacedEvent) -> None:
        self.event = event
        self.maps = ExactMaps(component, event.network, _MOST_WORK)
        self.known: dict[tuple[bytes, int], bool | None] = {}
        self._plain: ExactNetwork | None = None

    def holds(self, pattern: Pattern, row: int) -> bool | None:
        """Whether a row of the event holds on the region of a pattern."""
        key = self._relevant(pattern, row), row
        if key not in self.known:
            self.known[key] = self._decided(pattern, row)
        return self.known[key]

    def _relevant(self, pattern: Pattern, row: int) -> bytes:
        """The pieces that the row depends on."""
        if self.event.F[row].any():
            return _NO_PATH if self._no_path(pattern, row) else pattern.tobytes()
        return self.maps.relevant(pattern, self.event.G[row] != 0)

    def _no_path(self, pattern: Pattern, row: int) -> bool:
        """Whether the row reads derivatives alone, and all are zero: every path to the output has a flat unit."""
        event, net = self.event, self.event.net
        read = [event.event.features[k] for k in np.flatnonzero(event.F[row]).tolist()]
        if event.G[row].any() or any(feature[0] != "J" for feature in read):
            return False
        own = own_pattern(event.network, pattern[None])[0, event.units]
        for _, output, source in read:
            wanted = np.arange(net.n_outputs) == output
            for at in range(len(net.layers) - 1, 0, -1):
                wanted = np.asarray(abs(net.layers[at].weight[wanted]).sum(axis=0)).ravel() != 0
                layer = net.layers[at - 1]
                piece = own[net.offsets[at - 1] : net.offsets[at - 1] + layer.width]
                wanted &= layer.units.slopes[np.arange(layer.width), piece] != 0
            if abs(net.layers[0].weight[wanted][:, [source]]).sum() != 0:
                return False
        return True

    def _decided(self, pattern: Pattern, row: int) -> bool | None:
        event = self.event
        if event.F[row].any() and self._no_path(pattern, row):
            limit = float(event.g[row])
            return limit > 0 or (limit == 0 and not bool(event.strict[row]))
        value = self.maps.row(pattern, event.G[row])
        if value is None:
            return None
        if any(value[:-1]):
            return None
        total = value[-1] - Fraction(float(event.g[row]))
        if event.F[row].any():
            own = own_pattern(event.network, pattern[None])[0, event.units]
            widths = [layer.width for layer in event.net.hidden]
            split = [part.tolist() for part in np.split(own, np.cumsum(widths)[:-1])] if widths else []
            self._plain = self._plain or ExactNetwork(event.net)
            f = self._plain.features(event.event, [*split, [0] * event.net.n_outputs])
            if f is None:
                return None
            total += sum((Fraction(float(c)) * v for c, v in zip(event.F[row], f, strict=True)), Fraction(0))
        return total < 0 or (total == 0 and not bool(event.strict[row]))


@dataclass(frozen=True, eq=False)
class HiddenEdges:
    """On a batch of final cells: how far rounding may move the cuts by units that the event reads.

    `blur[i]` bounds the moves of the cuts of cell i; `open[i]` says that the state of such a unit is not known on it.
    """

    blur: FloatArray
    open: BoolArray
    cells: Geometry
    touching: list[tuple[Index, FloatArray, FloatArray, float]]

    @classmethod
    def of(
        cls, net: Network, event: PlacedEvent, cells: Geometry, pattern: Pattern, first: FloatArray
    ) -> HiddenEdges | None:
        """None when nothing in the event depends on where units switch, beyond the continuous outputs."""
        read = _units_read(net, event)
        if read is None:
            return None
        n = len(cells)
        maps = np.ascontiguousarray(np.broadcast_to(first, (n, *first.shape[1:])))
        error2 = (EPS * EPS) * squared_scale(cells, maps)
        blur, open_ = np.zeros(n), np.zeros(n, bool)
        touching = []
        points, offsets = cells.corners()
        for at, layer in enumerate(net.hidden):
            piece = np.ascontiguousarray(pattern[:, net.offsets[at] : net.offsets[at] + layer.width])
            low, high = bounds_on(points, offsets, maps)
            tolerance = PROBABLE_ERRORS * np.sqrt(error2)
            slope = np.sqrt((maps[:, :-1] ** 2).sum(axis=1))
            for k in np.flatnonzero(read[at]).tolist():
                for t in layer.units.breaks[k][np.isfinite(layer.units.breaks[k])].tolist():
                    tol = tolerance[:, k]
                    near = ~((low[:, k] > t + tol) | (high[:, k] < t - tol))
                    flat = ~((low[:, k] < t - tol) | (high[:, k] > t + tol))
                    # A row of zeros is its bias, exactly.
                    constant = flat & (at == 0) & ~layer.weight[k].any()
                    open_ |= flat & ~constant
                    some = np.flatnonzero(near & ~flat)
                    if len(some):
                        blur[some] += tol[some] / slope[some, k]
                        touching.append((some, maps[some, :, k], tol[some], t))
            top = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.abs(maps[:, -1]))
            if at + 1 < len(net.hidden):
                maps, error2 = next_maps(net, at, maps, error2, top, np.arange(n), piece)
        return cls(blur, open_, cells, touching)

    def slices(self, label: int) -> Iterator[tuple[Geometry, Index, FloatArray]]:
        """The parts of the cells within reach of rounding of a cut, the cells they are from, and how thick they are."""
        for some, maps, tol, t in self.touching:
            cells = self.cells.take(some)
            for sign in (1.0, -1.0):
                here = sign * maps
                here[:, -1] -= sign * t
                here = here / tol[:, None]
                one = np.full((1, 1), SLICE)
                found = cells.split(np.ascontiguousarray(here[:, :, None]), np.ones((len(some), 1)), one, label)
                low, _ = bounds_on(*found.cells.corners(), np.ascontiguousarray(here[found.parent][:, :, None]))
                thin = np.flatnonzero((found.piece[:, 0] == 0) & (low[:, 0] >= -2.0))
                if len(thin):
                    which = found.parent[thin]
                    thickness = (SLICE + 2.0) * tol[which] / np.sqrt((maps[which, :-1] ** 2).sum(axis=1))
                    yield found.cells.take(thin), some[which], thickness


def _units_read(net: Network, event: PlacedEvent) -> list[BoolArray] | None:
    """Which units of each layer of the placed network the event's features depend on."""
    if not event.event.features:
        return None
    out = [np.zeros(layer.width, bool) for layer in net.hidden]
    own = [int(net.offsets[at]) for at in range(len(net.hidden))]
    every = any(feature[0] != "unit" for feature in event.event.features)
    places = event.units if every else np.zeros(0, np.intp)
    wanted = set(np.asarray(places, int).tolist())
    for feature in event.event.features:
        if feature[0] == "unit":
            wanted.add(int(event.units[event.net.offsets[feature[1]] + feature[2]]))
    lead = net.n_units - event.network.n_units  # units of the law's own layer come first
    for place in (lead + w for w in wanted):
        at = max(i for i, o in enumerate(own) if o <= place)
        out[at][place - own[at]] = True
    return out


def bounds_on(points: FloatArray, offsets: Any, maps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and largest value of each affine map (n, d + 1, m) over the vertices of each cell, shapes (n, m)."""
    low, high = np.empty((len(offsets) - 1, maps.shape[2])), np.empty((len(offsets) - 1, maps.shape[2]))
    ranges(points, offsets, np.ascontiguousarray(maps), low, high)
    return low, high


@kernel
def ranges(points, offsets, maps, low, high):  # type: ignore[no-untyped-def]
    """Least and largest value of each affine map over the vertices of each cell."""
    n, rows, m = maps.shape
    value = np.empty(m)
    for c in range(n):
        for j in range(m):
            low[c, j] = np.inf
            high[c, j] = -np.inf
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                value[j] = maps[c, rows - 1, j]
            for q in range(rows - 1):
                x = points[v, q]
                for j in range(m):
                    value[j] += maps[c, q, j] * x
            for j in range(m):
                low[c, j] = min(low[c, j], value[j])
                high[c, j] = max(high[c, j], value[j])
