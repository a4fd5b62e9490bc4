"""Inputs inside an event, the most probable ones first, checked by an independent forward pass.

For a Gaussian component `x = m + L u` the density falls with `|u|`: the most probable input of an event is the one
nearest to the mean in standard deviations (`|u|`, the Mahalanobis distance). The event cut with a cell of the
network is a polytope, on which the nearest point is a small quadratic program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from reluscope._check import FloatArray, integer, real, seeded
from reluscope._columns import plain
from reluscope._files import as_path
from reluscope.answers._nearest import MOST_PROOF_DIMENSIONS, Found, Search, nearest_in_polytope, prove
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events import Case, Event, PlacedEvent, as_event, decided, joined, place, place_parts
from reluscope.inputs import Component, Law, check_law, only_draws
from reluscope.network import Network, check_network
from reluscope.schema import Schema
from reluscope.threads import clean_interrupt

_SECONDS = 10.0
_SAMPLES = 1 << 14

_FLOAT32 = 4.0
"""Margins wanted by default, as a multiple of the probable rounding of a forward pass in float32."""

_PUSHES = 10
"""How often a witness is pushed further inwards, four times as far each time, when a model file disagrees."""

_TRIES = 12

_MOST_STEP = 0.1
"""A step inwards may cost so much of the distance, and as many standard deviations (of a box: so much of its width).

Further inside is another input, and no longer the most probable one: then the witness stays on the edge."""

_QUIET = np.errstate(over="ignore", invalid="ignore")
"""Extreme weights overflow on the way. No row holds at what is not a number, and whatever is found is decided anew, by
error bounds or fractions, before it is a witness."""


@dataclass(frozen=True, eq=False, repr=False)
class Witness:
    """One input inside an event.

    Attributes
    ----------
    x, y : (inputs,) and (outputs,) arrays
        The input, and the output of a plain forward pass in float64.
    margin : float
        The smallest slack of the case that holds there, in the units of its rows (0 for an event without rows).
    distance : float or None
        Standard deviations from the nearest component's mean; None for laws without one (uniform laws, particles).
    proved_nearest : bool
        No input of the event is nearer than `distance - step` (up to a part in 10^8): all regions were looked at.
    component : int
    model_y, model_margin : array, float or None
        Those of the model file given as `replay`.
    step : float
        How much of `distance` was paid to come inside by more than rounding: at most a tenth of it, and 0.1.
    schema : Schema or None
        What inputs and outputs mean.
    """

    x: FloatArray
    y: FloatArray
    margin: float
    distance: float | None
    proved_nearest: bool
    component: int = 0
    model_y: FloatArray | None = None
    model_margin: float | None = None
    step: float = 0.0
    schema: Schema | None = None

    @property
    def values(self) -> dict[str, Any] | None:
        """The input by the names of the schema's columns, in their units; levels of categories. None without them."""
        if self.schema is None or not self.schema.columns:
            return None
        return {name: plain(column[0]) for name, column in self.schema.decode(self.x[None]).items()}

    @property
    def replayed(self) -> bool | None:
        """Whether the model file's own run puts the input inside the event too; None when there was none."""
        return None if self.model_margin is None else self.model_margin >= 0.0

    @property
    def words(self) -> str:
        """The input in words: `range 4,500 ft, SEX m`; empty without a schema of the columns."""
        if self.schema is None or self.values is None:
            return ""
        parts = []
        for column, value in zip(self.schema.columns, self.values.values(), strict=True):
            shown = f"{value:,.6g}" if isinstance(value, float) else str(value)
            parts.append(f"{column.name} {shown}{f' {column.unit}' if column.unit else ''}")
        return ", ".join(parts[:8]) + (f" and {len(parts) - 8} more" if len(parts) > 8 else "")

    @property
    def proof(self) -> str:
        """What was proved of the distance, in words; empty if nothing was."""
        if not self.proved_nearest or self.distance is None:
            return ""
        nearest = self.distance - self.step
        return "proved nearest" if f"{nearest:.4g}" == f"{self.distance:.4g}" else f"none is nearer than {nearest:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain lists and numbers, fit for JSON."""
        return {
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "margin": self.margin,
            "distance": self.distance,
            "proved_nearest": self.proved_nearest,
            "component": self.component,
            "model_y": None if self.model_y is None else self.model_y.tolist(),
            "model_margin": self.model_margin,
            "replayed": self.replayed,
            "step": self.step,
        } | ({} if self.values is None else {"values": self.values})

    def __repr__(self) -> str:
        with np.printoptions(precision=6, threshold=8):
            far = "" if self.distance is None else f", {self.distance:.6g} standard deviations away"
            paid = f" ({self.step:.2g} for the margin)" if self.step > 0 else ""
            proved = f", {self.proof}" if self.proved_nearest else ""
            again = "" if self.replayed is None else f", replayed: {'yes' if self.replayed else 'no'}"
            where = f"x={self.x}" if self.values is None else self.words
            return f"Witness({where}, y={self.y}, margin {self.margin:.3g}{far}{paid}{proved}{again})"


@dataclass(frozen=True, eq=False, repr=False)
class Witnesses:
    """What `witness` returns: inputs inside an event, the most probable first.

    `x`, `y`, `distance` and `proved_nearest` are the first one's.

    Attributes
    ----------
    items : tuple of Witness
    proved_empty : bool
        Whether it is known that there are none (every region was looked at; for Gaussian laws within 38.5 standard
        deviations).
    note : str
        How the search went.
    seed : int or None
        The `rng=` that repeats the search; None where nothing was drawn or a Generator was given.
    """

    items: tuple[Witness, ...]
    proved_empty: bool
    note: str
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Witness]:
        return iter(self.items)

    def __getitem__(self, i: int) -> Witness:
        return self.items[i]

    @property
    def x(self) -> FloatArray:
        """The first witness's input, (inputs,)."""
        return self._first().x

    @property
    def y(self) -> FloatArray:
        """The first witness's output, (outputs,)."""
        return self._first().y

    @property
    def distance(self) -> float | None:
        """The first witness's distance."""
        return self._first().distance

    @property
    def proved_nearest(self) -> bool:
        """Whether the first witness is the most probable input of the event."""
        return self._first().proved_nearest

    def _first(self) -> Witness:
        if not self.items:
            raise InputError(f"no witness: {self.note}")
        return self.items[0]

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.items[:3])) + (", ..." if len(self) > 3 else "")
        return f"Witnesses({len(self)}: {inside or self.note})"


@clean_interrupt()
def witness(
    net: Network | Mapping[str, Network],
    law: Law,
    event: Any,
    n: int = 1,
    *,
    margin: float | None = None,
    replay: str | PathLike[str] | None = None,
    names: Any = None,
    budget: Any = None,
    rng: Any = None,
) -> Witnesses:
    """Up to `n` inputs inside the event, the most probable first.

    Parameters
    ----------
    net : Network, or mapping of str to Network
        As in `probability`.
    law : Law
        The distribution of the inputs. To search a box, give `Uniform(lower, upper)`.
    event : str, Event or pair (G, g)
        As in `probability`.
    n : int
        How many inputs, at the most.
    margin : float, optional
        How far inside every row and bound the input must lie, in their units (rounding in float64 is always allowed
        for). By default each witness of an event on inputs and outputs is moved inwards, by the least distance, until
        its margin is more than float32 runtimes can round away, where that costs at most a tenth of its distance and
        0.1 standard deviations; `margin=0` leaves it on the edge.
    replay : path, optional
        An ONNX file of the same model to run as well (with onnxruntime: `pip install onnxruntime`); witnesses are moved
        further inwards until that run agrees.
    names : sequence of str, optional
        Names of the inputs for the text of the event.
    budget : optional
        Time, or a number of regions; 10 seconds by default.
    rng : optional
        Where the searches start.

    Returns
    -------
    Witnesses

    Raises
    ------
    InputError
        If an argument does not fit the network, or the model file has other inputs or outputs.

    Notes
    -----
    Gaussian laws, mixtures and truncated ones: the input nearest to a component's mean, in standard deviations; further
    witnesses come from other regions. With up to six dimensions seen, and if the budget allows, enumeration of all
    nearer regions proves it (`proved_nearest`); else it is the best that a search by exact steps from several starts
    has found.
    Uniform laws: the deepest of many draws, or any input that enumeration finds. Particles: the heaviest ones inside.
    Laws of which only draws are known: the deepest of many draws.
    Each witness is checked by a plain forward pass in float64.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, witness
    >>> net = Network([([[1.0, 0.0]], [0.0]), ([[1.0]], None)])
    >>> found = witness(net, Gaussian([0.0, 0.0]), "y >= 2", margin=0, rng=0)
    >>> found.x.round(6).tolist(), found.proved_nearest
    ([2.0, 0.0], True)
    """
    net = check_network(joined(net, law, event))
    event = as_event(event, net, check_law(law, net), names=names)
    wanted = integer(n, "n", low=1, high=100_000)
    depth = 0.0 if margin is None else real(margin, "margin", low=0.0)
    limit, (rng, seed) = parse_budget(_SECONDS if budget is None else budget), seeded(rng)
    checker = _Replay(net, law, event, replay, None if margin is None else depth)
    event = _deeper(event, depth)
    if not event.cases:
        return Witnesses((), True, "the event can never happen")
    if law.atoms is not None:
        points, weights = law.atoms
        return _particles(points, weights, event, net, wanted, checker)
    parts = [part for w, part in law.components if w > 0]
    if not all(part.unrestricted.gaussians or part.pushed is not None for part in parts):
        if law.is_mixture and not only_draws(law):
            raise InputError(
                "law: the nearest inputs of a mixture are known if all its components are Gaussian, truncated or not"
            )
        out = _in_box(law, event, net, wanted, limit, checker, rng)
    else:
        out = _nearest(place(net, law, event), wanted, limit, checker, rng)
    return replace(out, seed=seed)


def _deeper(event: Event, margin: float) -> Event:
    """The event with every row and every bound pushed inwards; cases that this empties are left out."""
    if margin == 0:
        return event
    cases = tuple(
        replace(c, lower=c.lower + margin, upper=c.upper - margin, g=c.g - margin)
        for c in event.cases
        if (c.lower + margin <= c.upper - margin).all()
    )
    return replace(event, cases=cases)


@_QUIET
def _nearest(
    event: PlacedEvent,
    wanted: int,
    limit: Budget,
    checker: _Replay,
    rng: np.random.Generator,
) -> Witnesses:
    if not event.n_cases:
        return Witnesses((), True, "the law never meets the event")
    components = event.components
    seeds = rng.spawn(len(components))
    searched: list[Found] = []
    for k, (c, seed) in enumerate(zip(components, seeds, strict=True)):
        if c.r == 0:
            points = [np.zeros(c.network.n_inputs)]
        else:
            if k and limit.elapsed() > 0.5 * limit.seconds:
                continue
            share = Budget(0.5 * limit.seconds / len(components))
            points = Search(c, event, seed).run(share, wanted)
        searched += [Found(k, u, float(np.linalg.norm(u[: c.r]))) for u in points]
    witnesses = _checked(searched, components, checker, wanted, False)
    proved = True
    met = any(c.r == 0 and bool(decided(event.net, event.event, c.to_x(np.zeros((1, 1))))[1][0]) for c in components)
    at_mean = wanted == 1 and any(w.distance == 0.0 for w in witnesses)  # nothing is nearer
    for k, c in enumerate(components):
        if c.r == 0 or at_mean:
            continue
        if c.r > MOST_PROOF_DIMENSIONS:
            proved = False
            continue
        known = [w.distance for w in witnesses if w.distance is not None]
        more, done = prove(c, event, known, wanted, limit.part(0.9))
        proved &= done
        met |= bool(more)
        searched += [Found(k, u, float(np.linalg.norm(u))) for u in more]
        witnesses = _checked(searched, components, checker, wanted, False)
    if proved:
        witnesses = _checked(searched, components, checker, wanted, True)
    witnesses = _distinct([checker.settled(w, components[w.component], limit) for w in witnesses])
    if witnesses:
        note = "all nearer regions were searched" if proved else "the best of a search; nearer ones may exist"
        if at_mean:
            note = "a mean of the law is in the event"
        if not all(checker.deep(w) for w in witnesses):
            note += "; some lie so close to the edge of the event that float32 may decide otherwise"
    else:
        proved &= not met
        note = "no input of the event within 38.5 standard deviations" if proved else "the search found no input"
        if met:
            note = "regions of the event were found, but rounding leaves no input that is surely inside"
    return Witnesses(tuple(witnesses), proved and not witnesses, note)


def _checked(
    points: list[Found], components: tuple[Component, ...], checker: _Replay, wanted: int, proved: bool
) -> list[Witness]:
    """Witnesses of distinct points that pass the replay, nearest first."""
    out: list[Witness] = []
    for p in sorted(points, key=lambda p: p.distance):
        x = components[p.component].to_x(p.u)
        if any(np.abs(x - w.x).max() <= 1e-6 * (1 + np.abs(x).max()) for w in out):
            continue
        witness = checker(x, p.distance, p.component, proved and not out)
        if witness is not None:
            out.append(witness)
        if len(out) == wanted:
            break
    return out


def _distinct(witnesses: list[Witness]) -> list[Witness]:
    """Without those that steps inwards have led to the same place."""
    out: list[Witness] = []
    for w in witnesses:
        if not any(np.abs(w.x - o.x).max() <= 1e-5 * (1 + np.abs(w.x).max()) for o in out):
            out.append(w)
    return out


@_QUIET
def _particles(
    points: FloatArray, weights: FloatArray, event: Event, net: Network, wanted: int, checker: _Replay
) -> Witnesses:
    maybe = decided(net, event, points)[1] & (weights > 0)
    inside = np.flatnonzero(maybe)
    order = inside[np.argsort(-weights[inside], kind="stable")]
    items: list[Witness] = []
    for w in (checker(points[i], None, 0, False) for i in order.tolist()):
        if w is not None:
            items.append(checker.run(w))
        if len(items) == wanted:
            break
    return Witnesses(tuple(items), not maybe.any(), f"{len(inside):,} of {len(points):,} particles are in the event")


@_QUIET
def _in_box(
    law: Law, event: Event, net: Network, wanted: int, limit: Budget, checker: _Replay, rng: np.random.Generator
) -> Witnesses:
    """The deepest of many draws; if there are none, what pulling and enumeration find."""
    from reluscope.answers._event_cells import Walk
    from reluscope.cells.domain import cell_with_vertices

    items: list[Witness] = []
    proved = True
    for part in place_parts(net, law, event):
        if not part.n_cases:
            continue
        X = part.law.sample(_SAMPLES, rng)
        depth = np.array(checker.margins(X, net(X)))
        for i in np.argsort(-depth, kind="stable")[:wanted].tolist():
            one = checker(X[i], None, 0, False) if depth[i] >= 0 else None
            if one is not None:
                items.append(checker.run(one))
        if items:
            continue
        if only_draws(law):
            proved = False
            continue
        (component,) = part.components
        if component.r == 0:
            x = component.to_x(np.zeros(1))
            made = checker(x, None, 0, False)
            if made is not None:
                items.append(checker.run(made))
            proved &= not decided(net, event, x[None])[1][0]
            continue
        assert component.lower is not None and component.upper is not None
        search = Search(component, part, rng)
        for u in search.run(Budget(0.3 * limit.seconds), wanted):
            one = checker(component.to_x(u), None, 0, False)
            if one is not None:
                items.append(checker.settled(one, component, limit))
        if items:
            continue
        if component.r > MOST_PROOF_DIMENSIONS:
            proved = False
            continue
        walk = Walk(component, part, cell_with_vertices((component.lower, component.upper)), limit)
        for inside in walk:
            proved = False  # there are regions in the event, though rounding may leave no input
            for u in inside.cells.interior()[:wanted]:
                one = checker(component.to_x(u), None, 0, False)
                if one is not None:
                    items.append(checker.settled(one, component, limit))
            if items:
                break
        proved &= walk.stopped is None
    items.sort(key=lambda w: -w.margin)
    if items:
        return Witnesses(tuple(items[:wanted]), False, "deepest found first")
    note = "no input of the box is in the event" if proved else "the search found no input"
    return Witnesses((), proved, note)


class _Replay:
    """Runs inputs through the layers one by one, apart from all compiled code, and measures how far inside they are."""

    def __init__(
        self, net: Network, law: Law, event: Event, model: str | PathLike[str] | None, margin: float | None
    ) -> None:
        self.net, self.event, self.safe = net, event, margin is None
        self.support = law.support()
        self.depth = margin or 0.0
        self.session = None if model is None else _session(model)

    def __call__(self, x: FloatArray, distance: float | None, component: int, proved: bool) -> Witness | None:
        """The input as a witness; None when it is not in the event, in exact arithmetic where rounding decides."""
        x = np.clip(x, *self.support)  # coordinates are rounded, the law's sides are not
        y = forward(self.net, x)
        with np.errstate(all="ignore"):
            (depth,) = self.margins(x[None], y[None])
            inside = depth >= 0 and bool(self.event.holds(self.net, x))
        ((surely,), (maybe,)) = decided(self.net, self.event, x[None])
        if not (surely or (maybe and inside)):
            return None
        return Witness(x, y, max(float(depth), 0.0), distance, proved, component, schema=self.net.schema)

    def run(self, witness: Witness) -> Witness:
        """The witness with what the model file gives for it."""
        if self.session is None:
            return witness
        y = _run(self.session, witness.x, self.net)
        if len(y) != self.net.n_outputs:
            raise InputError(f"replay: the model file gives {len(y)} outputs but the network has {self.net.n_outputs}")
        return replace(witness, model_y=y, model_margin=float(self.margins(witness.x[None], y[None])[0]))

    def settled(self, witness: Witness, component: Any, limit: Budget) -> Witness:
        """The witness moved inwards until float32 (and the model file) can tell that it is inside, if possible.

        It stays where it is once the budget has ended.
        """
        here = self.run(witness)
        if not self.event.linear or component.r == 0:
            return here
        best = here
        for scale in (_FLOAT32 * 4.0**k for k in range(_PUSHES)):
            if best.replayed is not False and (best is not here or not self.safe or self._deep(best, scale)):
                break
            moved = None if limit.spent() else self._moved(witness, component, scale, limit)
            if moved is None:
                break
            best = self.run(moved)
        return best if best.replayed is not False else here

    def _wanted(self, x: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
        """Slack of inputs and outputs that covers `scale` times the rounding of a forward pass in float32."""
        inputs, outputs = _float32_errors(self.net, x)
        return np.maximum(scale * inputs, self.depth), scale * outputs

    def _slack(self, case: Case, ex: FloatArray, ey: FloatArray) -> FloatArray:
        rounding: FloatArray = np.abs(case.A) @ ex + np.abs(case.G) @ ey
        return np.maximum(rounding, self.depth)

    def deep(self, witness: Witness) -> bool:
        """Whether float32 can tell that the witness is inside; not asked where a margin was given."""
        return not self.safe or not self.event.linear or witness.replayed is True or self._deep(witness, _FLOAT32 / 4)

    def _deep(self, witness: Witness, scale: float) -> bool:
        """Whether some case holds at the witness with the slack wanted in each row."""
        x, y = witness.x, witness.y
        ex, ey = self._wanted(x, scale)
        for case in self.event.cases:
            slack = case.g - case.A @ x - case.G @ y
            inside = bool((slack >= self._slack(case, ex, ey)).all())
            ex = np.minimum(ex, 0.2 * (case.upper - case.lower))
            if inside and (case.lower + ex <= x).all() and (x <= case.upper - ex).all():
                return True
        return False

    def _moved(self, witness: Witness, component: Any, scale: float, limit: Budget) -> Witness | None:
        """The nearest input with the slack wanted, first in the witness's own cell, then wherever linear steps lead."""
        origin = component.to_x(np.zeros(component.r))
        B = (component.to_x(np.eye(component.r)) - origin).T
        start = component.to_u(witness.x)
        centre = start if witness.distance is None else np.zeros(component.r)
        limits = component.inequalities()
        ex, ey = self._wanted(witness.x, scale)
        found: list[FloatArray] = []
        for case in self.event.cases:
            if not self._holds(case, witness.x, witness.y):
                continue
            u, first = start, True
            for _ in range(_TRIES):
                x = component.to_x(u)
                C, d = (a[0] for a in self.net.output_maps(self.net.pattern(x)[None]))
                rows, room = _case_rows(case, C, d, self._slack(case, ex, ey), ex)
                if first:
                    cell = self.net.polytope(self.net.pattern(x))
                    own = np.concatenate([rows, cell.A]), np.concatenate([room, cell.b])
                    u_new = _nearest_x(*own, B, origin, limits, centre)
                if not first or u_new is None:
                    u_new = _nearest_x(rows, room, B, origin, limits, u)
                first = False
                if u_new is None or limit.spent():
                    break
                u = u_new
                x = component.to_x(u)
                y = forward(self.net, x)
                slack = case.g - case.A @ x - case.G @ y
                if (slack >= 0.9 * self._slack(case, ex, ey)).all() and self._holds(case, x, y):
                    found.append(u)
                    break
        if not found:
            return None
        u = min(found, key=lambda u: float(np.sum((u - centre) ** 2)))
        x = component.to_x(u)
        if witness.distance is None:
            near = (
                component.lower is None or (np.abs(u - start) <= _MOST_STEP * (component.upper - component.lower)).all()
            )
            return self(x, None, witness.component, witness.proved_nearest) if near else None
        distance = float(np.linalg.norm(u))
        if distance - witness.distance > _MOST_STEP * (1.0 + witness.distance):
            return None
        made = self(x, distance, witness.component, witness.proved_nearest)
        return None if made is None else replace(made, step=max(distance - witness.distance, 0.0))

    @staticmethod
    def _holds(case: Case, x: FloatArray, y: FloatArray) -> bool:
        slack = case.g - case.A @ x - case.G @ y
        inside = bool(np.where(case.strict, slack > 0, slack >= 0).all())
        return inside and bool(((case.lower <= x) & (x <= case.upper)).all())

    def margins(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Smallest slack of the best case at each input; negative outside, at least 0 inside; 0 for no rows."""
        event = self.event
        f = event.feature_values(self.net, self.net.pattern(X)) if event.features else np.zeros((len(X), 0))
        best = np.full(len(X), -np.inf)
        for case in event.cases:
            slack = case.g - (X @ case.A.T + Y @ case.G.T + f @ case.F.T)
            inside = np.where(case.strict, slack > 0, slack >= 0).all(axis=1)
            inside &= ((case.lower <= X) & (case.upper >= X)).all(axis=1)
            sides = [slack, (X - case.lower)[:, np.isfinite(case.lower)], (case.upper - X)[:, np.isfinite(case.upper)]]
            least = np.concatenate(sides, axis=1).min(axis=1, initial=np.inf)
            least = np.where(np.isinf(least), 0.0, least)
            best = np.maximum(best, np.where(inside, np.maximum(least, 0.0), np.minimum(least, -5e-324)))
        return best


def _case_rows(
    case: Case, C: FloatArray, d: FloatArray, slack: FloatArray, ex: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A case on a cell where `y = C x + d`, with slack in its rows and bounds, as rows `R x <= b`."""
    unit = np.eye(case.A.shape[1])
    low, high = np.isfinite(case.lower), np.isfinite(case.upper)
    ex = np.minimum(ex, 0.25 * (case.upper - case.lower))  # narrow boxes, and inputs that are fixed
    rows = np.concatenate([case.A + case.G @ C, unit[high], -unit[low]])
    room = case.g - case.G @ d - slack
    return rows, np.concatenate([room, (case.upper - ex)[high], -(case.lower + ex)[low]])


def _nearest_x(
    rows: FloatArray, room: FloatArray, B: FloatArray, origin: FloatArray, limits: Any, centre: FloatArray
) -> FloatArray | None:
    """The u nearest to `centre` with `rows (origin + B u) <= room` inside the limits of the law."""
    A, b = np.concatenate([rows @ B, limits[0]]), np.concatenate([room - rows @ origin, limits[1]])
    return nearest_in_polytope(A, b, centre)


def _float32_errors(net: Network, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """About how far a forward pass in float32 can be off: of the input as it is stored, and of the outputs.

    Each layer rounds its own sums; how much of that reaches the outputs is what the slopes of the later layers say, of
    the pieces at this input. (Products of absolute weights would be hundreds of times larger in deep networks.)
    """
    eps = 2.0**-24
    z = np.asarray(x, dtype=np.float64)
    first = eps * np.abs(z)
    made, slopes = [first], list[FloatArray]()
    for layer in net.layers:
        weight = layer.dense()
        most = np.abs(weight) @ np.abs(z) + np.abs(layer.bias)
        made.append(eps * max(2.0, weight.shape[1] ** 0.5) * most)
        h = weight @ z + layer.bias
        # A unit at its kink may be on either side in float32: the steeper slope counts.
        below, above = (layer.units.on(layer.units.pattern(side))[0] for side in (h - made[-1], h + made[-1]))
        slopes.append(np.where(np.abs(below) > np.abs(above), below, above))
        z = layer.units(h[None])[0]
    error = np.zeros(net.n_outputs)
    back = np.eye(net.n_outputs)
    for layer, own, slope in zip(net.layers[::-1], made[:0:-1], slopes[::-1], strict=True):
        back = back * slope
        error += np.abs(back) @ own
        back = back @ layer.dense()
    return first, error + np.abs(back) @ first


def forward(net: Network, x: FloatArray) -> FloatArray:
    """`net(x)` for one input by the definition: `h = W z + b`, then each unit's own piece. Plain numpy, no batching."""
    z = np.asarray(x, dtype=np.float64)
    for layer in net.layers:
        h = layer.dense() @ z + layer.bias
        z = np.empty(len(h))
        for i, value in enumerate(h.tolist()):
            act = layer.units.kinds[int(layer.units.kind[i])]
            piece = sum(value > t for t in act.breaks)
            z[i] = act.slopes[piece] * value + act.intercepts[piece]
    return z


def _session(model: str | PathLike[str]) -> Any:
    from reluscope._extras import require

    path = as_path(model, "replay")
    if not path.is_file():
        raise InputError(f"replay must be the path of an ONNX file, and there is no file {str(path)!r}")
    runtime = require("onnxruntime", "onnxruntime")
    try:
        return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has a class of its own for each reason
        raise InputError(f"replay: the ONNX runtime cannot read {str(path)!r}: {str(error).splitlines()[0]}") from error


def _run(session: Any, x: FloatArray, net: Network) -> FloatArray:
    entry = session.get_inputs()[0]
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in entry.shape] or [net.n_inputs]
    if int(np.prod(shape)) != net.n_inputs:
        shape = [1, *net.input_shape]
    kind = np.float64 if "double" in entry.type else np.float32
    out = session.run(None, {entry.name: x.reshape(shape).astype(kind)})[0]
    return np.asarray(out, dtype=np.float64).reshape(-1)
