"""An event placed on a law: rows on the outputs of one network, with what the law already implies left out.

This is the one place that decides which sides of an event's boxes a law can cross, which cases it can never meet, and
which linear forms of the input are carried along; all engines read the same record. Forms ride past the layers on
identity units, so that the outputs are `(y, forms x)` and every row is a row on outputs. Identity units cut no cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope.activations import Units, identity
from reluscope.events.record import BoolArray, Case, Event
from reluscope.inputs import Box, Component, Law, lifted, own_pattern, standard
from reluscope.network import Layer, Network

_MOST_PARTS = 64
"""Boxes of an event to which the law is restricted one by one; more are carried as rows."""


@dataclass(frozen=True, eq=False)
class PlacedEvent:
    """An event on a law (or a part of it): a union over cases of rows `G z + F f <= g` on the outputs z of `network`.

    The outputs of `network` are those of `net`, then the carried forms of the input; `units` are the places of the
    units of `net` in its patterns. Case k has the rows `start[k]:start[k + 1]` (with `<` where `strict`); one without
    rows holds everywhere. `f` are the features of `event` on a region. `law` is the law of this part; `mass`, within
    `lower` and `upper`, is the part's share of the law that was asked about (1 if it is all of it).

    `within` is a box in x outside of which the event is impossible; its sides are not among the rows. Only `place(...,
    cut=True)` gives one.
    """

    net: Network
    law: Law
    event: Event
    network: Network
    units: npt.NDArray[np.intp]
    G: FloatArray
    F: FloatArray
    g: FloatArray
    strict: BoolArray
    start: npt.NDArray[np.int64]
    within: Box | None = None
    mass: float = 1.0
    lower: float = 1.0
    upper: float = 1.0

    @property
    def n_cases(self) -> int:
        """Cases that the law can meet; none: the event never happens."""
        return len(self.start) - 1

    @cached_property
    def cases(self) -> tuple[slice, ...]:
        """The rows of each case."""
        return tuple(slice(a, b) for a, b in pairwise(self.start.tolist()))

    @cached_property
    def case_of(self) -> npt.NDArray[np.int64]:
        """The case of each row."""
        return np.repeat(np.arange(self.n_cases), np.diff(self.start))

    @property
    def everything(self) -> bool:
        """Whether some case has no rows: the event always happens (in `within`, if there is such a box)."""
        return bool((np.diff(self.start) == 0).any())

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The law's components, in the coordinates that the network and the event see."""
        return standard(self.law, self.network)

    @cached_property
    def filled(self) -> PlacedEvent:
        """The same with a row `0 <= 0` in every case that has none, for kernels that read at least one."""
        if not self.everything:
            return self
        last = len(self.g)
        order = np.concatenate([np.arange(a, b) if b > a else [last] for a, b in pairwise(self.start)])
        G, F = (np.concatenate([rows, np.zeros((1, rows.shape[1]))])[order] for rows in (self.G, self.F))
        start = np.concatenate([[0], np.cumsum(np.maximum(np.diff(self.start), 1))]).astype(np.int64)
        return replace(
            self, G=G, F=F, g=np.append(self.g, 0.0)[order], strict=np.append(self.strict, False)[order], start=start
        )

    def features(self, pattern: Any) -> FloatArray:
        """Features on the regions of patterns of `network` (or of a network that ends in it), shape (n, features)."""
        return self.event.feature_values(self.net, own_pattern(self.network, pattern)[:, self.units])

    def contains(self, Z: FloatArray, f: FloatArray) -> BoolArray:
        """Whether some case holds for outputs `Z` (n, outputs of `network`) and features `f` (n, features)."""
        left = Z @ self.G.T + f @ self.F.T
        met = np.where(self.strict, left < self.g, left <= self.g)
        hit = np.zeros(len(Z), bool)
        for case in self.cases:
            hit |= met[:, case].all(axis=1)
        return hit


def place(net: Network, law: Law, event: Event, *, cut: bool = False) -> PlacedEvent:
    """The event on the outputs of `net`, with the inputs it reads carried along; see `place_together`."""
    return place_together(net, law, (event,), cut=cut)[0]


def place_together(net: Network, law: Law, events: Sequence[Event], *, cut: bool = False) -> tuple[PlacedEvent, ...]:
    """Several events on one network, which carries what any of them reads.

    Sides of boxes that the law never crosses are left out, and so are cases that it never meets, and rows on inputs
    alone that always hold. With `cut`, an event whose cases share one box gets it as `within`, where the law keeps its
    axes.
    """
    low, high = law.support()
    forms: dict[bytes, int] = {}
    carried: list[FloatArray] = []

    def form(row: FloatArray) -> tuple[int, float]:
        """Which carried form the row is, up to its sign."""
        sign = float(np.sign(row[np.flatnonzero(row)[0]]))
        key = (sign * row + 0.0).tobytes()
        if key not in forms:
            forms[key] = len(carried)
            carried.append(sign * row + 0.0)
        return forms[key], sign

    drafts = []
    for event in events:
        event.check(net)
        cases = [kept for case in event.cases if (kept := _kept(case, low, high)) is not None]
        within = _common_box(cases, low, high) if cut and law.keeps_axes else None
        entries: list[tuple[int, int, float]] = []
        bounds: list[float] = []
        start = [0]
        for case in cases:
            own = _sides(case, low, high)
            if within is not None:  # carried all the same, so that its inputs are among the law's coordinates
                for i, *_ in own:
                    form(_unit(i, net.n_inputs))
                own = []
            begin, end = start[-1], start[-1] + len(case.g)
            entries += [(end + k, form(_unit(i, net.n_inputs))[0], sign) for k, (i, sign, _) in enumerate(own)]
            entries += [(begin + k, *form(np.array(case.A[k]))) for k in np.flatnonzero(case.reads_inputs).tolist()]
            bounds += [*case.g.tolist(), *(bound for *_, bound in own)]
            start.append(end + len(own))
        drafts.append((event, cases, within, entries, np.array(bounds), np.array(start, np.int64)))
    network, units = _carrying(net, np.array(carried)) if carried else (net, np.arange(net.n_units))
    out = []
    for event, cases, within, entries, g, starts in drafts:
        G, F = np.zeros((len(g), network.n_outputs)), np.zeros((len(g), len(event.features)))
        strict = np.zeros(len(g), bool)
        for begin, case in zip(starts.tolist(), cases, strict=False):
            rows = slice(begin, begin + len(case.g))
            G[rows, : net.n_outputs], F[rows], strict[rows] = case.G, case.F, case.strict
        for at, column, sign in entries:
            G[at, net.n_outputs + column] = sign
        out.append(PlacedEvent(net, law, event, network, units, G, F, g, strict, starts, within))
    return tuple(out)


def _kept(case: Case, low: FloatArray, high: FloatArray) -> Case | None:
    """The case without rows on inputs alone that hold all over [low, high]; None when it holds nowhere in it."""
    if (case.lower > high).any() or (case.upper < low).any():
        return None
    keep = np.ones(len(case.g), bool)
    for k in np.flatnonzero(case.inputs_alone):
        at = np.flatnonzero(case.A[k])
        a, g = case.A[k, at], case.g[k]
        up, down = a * np.where(a > 0, high[at], low[at]), a * np.where(a > 0, low[at], high[at])
        most, least = float(up.sum()), float(down.sum())
        # Sums of several terms are rounded: only a clear margin decides.
        over, under = (0.0 if len(at) == 1 else 1e-12 * float(abs(g) + np.abs(s).sum()) for s in (up, down))
        if least - under > g or (case.strict[k] and len(at) == 1 and least == g):
            return None
        keep[k] = not (most + over < g or (not case.strict[k] and len(at) == 1 and most == g))
    return case.chosen(keep)


def _sides(case: Case, low: FloatArray, high: FloatArray) -> list[tuple[int, float, float]]:
    """Sides of the box that [low, high] crosses: (input, sign, bound) for `sign x_i <= bound`."""
    own = [(int(i), -1.0, -float(case.lower[i])) for i in np.flatnonzero(case.lower > low)]
    return own + [(int(i), 1.0, float(case.upper[i])) for i in np.flatnonzero(case.upper < high)]


def _common_box(cases: list[Case], low: FloatArray, high: FloatArray) -> Box | None:
    """The box of all cases, open for inputs that the law fixes; None if they have several."""
    if len({(c.lower.tobytes(), c.upper.tobytes()) for c in cases}) != 1:
        return None
    free = high > low
    return np.where(free, cases[0].lower, -np.inf), np.where(free, cases[0].upper, np.inf)


def _unit(i: int, n: int) -> FloatArray:
    row = np.zeros(n)
    row[i] = 1.0
    return row


def _carrying(net: Network, forms: FloatArray) -> tuple[Network, npt.NDArray[np.intp]]:
    """The network with outputs `(net(x), forms x)`, and where its own units are in the pattern."""
    k = len(forms)
    carry = Units.uniform(identity(), k)
    layers: list[Layer] = []
    for at, layer in enumerate(net.layers):
        weight: Any
        if at == 0:
            joined = [layer.weight, forms]
            weight = sparse.vstack(joined, format="csr") if sparse.issparse(layer.weight) else np.concatenate(joined)
        elif sparse.issparse(layer.weight):
            weight = sparse.block_diag([layer.weight, np.eye(k)], format="csr")
        else:
            weight = np.zeros((layer.width + k, layer.n_inputs + k))
            weight[: layer.width, : layer.n_inputs] = layer.weight
            weight[layer.width :, layer.n_inputs :] = np.eye(k)
        layers.append(Layer(weight, np.concatenate([layer.bias, np.zeros(k)]), Units.concatenate([layer.units, carry])))
    network = Network(
        [(a.weight, a.bias) if a is layers[-1] else (a.weight, a.bias, a.units) for a in layers], name=net.name
    )
    own = [network.offsets[i] + np.arange(layer.width) for i, layer in enumerate(net.hidden)]
    return network, np.concatenate([*own, np.zeros(0, np.intp)]).astype(np.intp)


def lifted_question(net: Network, law: Law, event: Event) -> tuple[Network, Law, Event]:
    """The same question about the law that `law` is a function of; the question itself where it is a function of none.

    Bounds on single inputs become bounds on what they are functions of, so that atoms are in or out as the event says.
    Other forms of the inputs that the event reads become outputs of the network.
    """
    if law.pushed is None:
        return net, law, event
    event = event.on_inputs_and_outputs()
    low, high = law.support()
    everywhere = np.full(net.n_inputs, -np.inf), np.full(net.n_inputs, np.inf)
    cases, boxes = [], []
    for case in event.cases:
        kept = _kept(case, low, high)
        if kept is not None:
            above, below = (
                np.where(kept.lower > low, kept.lower, -np.inf),
                np.where(kept.upper < high, kept.upper, np.inf),
            )
            strict, single = [np.zeros(net.n_inputs, bool) for _ in range(2)], np.zeros(len(kept.g), bool)
            for k in np.flatnonzero(kept.inputs_alone).tolist():
                at = np.flatnonzero(kept.A[k])
                if len(at) == 1:
                    single[k] = True
                    i, bound = int(at[0]), float(kept.g[k] / kept.A[k, at[0]])
                    if kept.A[k, i] > 0 and (bound < below[i] or (bound == below[i] and kept.strict[k])):
                        below[i], strict[1][i] = bound, kept.strict[k]
                    elif kept.A[k, i] < 0 and (bound > above[i] or (bound == above[i] and kept.strict[k])):
                        above[i], strict[0][i] = bound, kept.strict[k]
            boxes.append(law.base_box(above, below, *strict))
            cases.append(replace(kept.chosen(~single), lower=everywhere[0], upper=everywhere[1]))
    placed = place(net, law, replace(event, cases=tuple(cases)))
    base, network = lifted(law, placed.network)
    assert placed.n_cases == len(boxes)
    out = []
    for rows, (lower, upper) in zip(placed.cases, boxes, strict=True):
        A = np.broadcast_to(np.zeros(1), (rows.stop - rows.start, network.n_inputs))
        out.append(Case(lower, upper, A, placed.G[rows], placed.g[rows], placed.strict[rows]))
    met = tuple(case for case in out if (case.lower <= case.upper).all())
    return network, base, Event(event.text, network.n_inputs, network.n_outputs, met)


# -- boxes folded into the law -------------------------------------------------------------------------------------


def place_parts(net: Network, law: Law, event: Event) -> tuple[PlacedEvent, ...]:
    """The event on disjoint parts of the law: `P(event) = sum of mass * P(event of the part | law of the part)`.

    One part per box when the law can be restricted to boxes and the boxes do not overlap, which is cheaper than
    carrying the inputs; else one part in all. None: the law has no mass where the event can happen.
    """
    if law.point_masses:  # points and components without spread may sit on a face
        return (place(net, law, event),)
    low, high = law.support()
    groups: dict[tuple[bytes, bytes], list[Case]] = {}
    for c in event.cases:
        lower, upper = np.maximum(c.lower, low), np.minimum(c.upper, high)
        if not (lower > upper).any():
            groups.setdefault((lower.tobytes(), upper.tobytes()), []).append(c)
    if not groups or len(groups) > _MOST_PARTS:
        return (place(net, law, event),)
    boxes = [(np.frombuffer(a), np.frombuffer(b)) for a, b in groups]
    if all((a <= low).all() and (b >= high).all() for a, b in boxes) or not _disjoint(boxes, low < high):
        return (place(net, law, event),)
    free = np.full(event.n_inputs, -np.inf), np.full(event.n_inputs, np.inf)
    out = []
    for (a, b), cases in zip(boxes, groups.values(), strict=True):
        if ((a == b) & (low < high)).any():
            continue  # a face of the box, in an input that has a density: no mass
        given = law.restrict(a, b)
        if given is None:
            return (place(net, law, event),)
        inner = tuple(replace(_without_sides(c, low < high), lower=free[0], upper=free[1]) for c in cases)
        placed = place(net, given.law, replace(event, cases=inner))
        mass, blur = float(np.exp(given.log_mass)), given.relative_error
        out.append(replace(placed, mass=mass, lower=mass * (1 - blur), upper=min(mass * (1 + blur), 1.0)))
    return tuple(out)


def _without_sides(case: Case, moving: BoolArray) -> Case:
    """The case without strict rows that only say again that one input, which has a density, is inside the box."""
    again = case.strict & case.inputs_alone
    for k in np.flatnonzero(again):
        at = np.flatnonzero(case.A[k])
        if len(at) != 1 or not moving[at[0]]:
            again[k] = False
            continue
        a, i = case.A[k, at[0]], at[0]
        again[k] = case.g[k] / a == (case.upper[i] if a > 0 else case.lower[i])
    return case.chosen(~again)


def _disjoint(boxes: list[tuple[FloatArray, FloatArray]], moving: npt.NDArray[np.bool_]) -> bool:
    """Whether no two boxes share more than a face in the inputs that have spread."""
    lower, upper = np.array([a for a, _ in boxes]), np.array([b for _, b in boxes])
    for i in range(len(boxes)):
        apart = ((upper[i] <= lower[i + 1 :]) | (lower[i] >= upper[i + 1 :])) & moving
        apart |= (upper[i] < lower[i + 1 :]) | (lower[i] > upper[i + 1 :])
        if not apart.any(axis=1).all():
            return False
    return True
