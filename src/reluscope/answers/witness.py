"""Inputs inside an event, the most probable ones first, checked by an independent forward pass.

For a Gaussian component `x = m + L u` the density falls with `|u|`: the most probable input of an event is the one
nearest to the mean in standard deviations (`|u|`, the Mahalanobis distance). The event cut with a cell of the
network is a polytope, on which the nearest point is a small quadratic program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe, generator, integer, real
from reluscope.answers._event_rows import question
from reluscope.answers._nearest import MOST_PROOF_DIMENSIONS, Found, Search, prove
from reluscope.answers.events import Event, FunctionCase, as_event
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.formats.vnnlib import Case
from reluscope.network import Network

_SECONDS = 10.0
_SAMPLES = 1 << 14


@dataclass(frozen=True, eq=False, repr=False)
class Witness:
    """One input inside an event.

    `x` (inputs,) and `y` (outputs,) with `y` from a plain forward pass, layer by layer, in float64; `margin` the
    smallest slack of the case that holds there, in the units of its rows (0 for an event without rows). `distance` is
    the number of standard deviations from the nearest component's mean, None for laws without one (uniform laws,
    particles). `proved_nearest`: no input of the event is nearer (up to a part in 10^8), all cells were looked at.
    `model_y` and `model_margin` are those of the model file given as `replay`.
    """

    x: FloatArray
    y: FloatArray
    margin: float
    distance: float | None
    proved_nearest: bool
    component: int = 0
    model_y: FloatArray | None = None
    model_margin: float | None = None

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
        }

    def __repr__(self) -> str:
        with np.printoptions(precision=6, threshold=8):
            far = "" if self.distance is None else f", {self.distance:.6g} standard deviations away"
            proved = ", proved nearest" if self.proved_nearest else ""
            return f"Witness(x={self.x}, y={self.y}, margin {self.margin:.3g}{far}{proved})"


@dataclass(frozen=True, eq=False, repr=False)
class Witnesses:
    """Inputs inside an event, the most probable first; `x`, `y`, `distance` and `proved_nearest` are the first one's.

    When there are none, `proved_empty` says whether that is known (every cell was looked at; for Gaussian laws within
    38.5 standard deviations) or only that the search found nothing. `note` says how it went.
    """

    items: tuple[Witness, ...]
    proved_empty: bool
    note: str

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


def witness(
    net: Network,
    law_or_box: Any,
    event: Any,
    n: int = 1,
    *,
    margin: float = 0.0,
    budget: Any = None,
    replay: str | PathLike[str] | None = None,
    names: Any = None,
    rng: Any = None,
) -> Witnesses:
    """Up to `n` inputs inside the event, the most probable first.

    Gaussian laws, mixtures and truncated ones: the input nearest to a component's mean, in standard deviations; further
    witnesses come from other cells. With up to six dimensions seen, and if `budget` (10 s by default) allows,
    enumeration of all nearer cells proves it (`proved_nearest`); else it is the best that a search by exact steps from
    several starts has found. Uniform laws and boxes `(lower, upper)`: the deepest of many draws, or any input
    enumeration finds. Particles: the heaviest ones inside.

    `margin`: how far inside every row and bound the input must lie, in their units (rounding is always allowed for).
    Each witness is replayed by a plain forward pass; `replay` names an ONNX file to run as well (with onnxruntime).
    """
    from reluscope.inputs import Law, Particles, Uniform, standard

    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}; reluscope.load makes one from a model")
    law = law_or_box
    if isinstance(law, (tuple, list)) and len(law) == 2:
        from reluscope.cells.domain import box_bounds

        law = Uniform(*box_bounds(law, net.n_inputs))
    if not isinstance(law, Law):
        raise InputError(f"law_or_box must be an input law or a box (lower, upper), got {describe(law_or_box)}")
    if law.n != net.n_inputs:
        raise InputError(f"the law has {law.n} inputs but the network takes {net.n_inputs}")
    found = as_event(event, net, law, names=names)
    wanted = integer(n, "n", low=1, high=100_000)
    margin = real(margin, "margin", low=0.0)
    limit, rng = parse_budget(_SECONDS if budget is None else budget), generator(rng)
    checker = _Replay(net, found, replay)
    found = _deeper(found, margin)
    if not found.cases:
        return Witnesses((), True, "the event can never happen")
    if isinstance(law, Particles):
        return _particles(law, found, net, wanted, checker)
    if isinstance(law, Uniform):
        return _in_box(law, found, net, wanted, limit, checker, rng)
    asked = question(net, law, found)
    components = standard(law, asked.network)
    return _nearest(components, asked, wanted, limit, checker, rng)


def _deeper(event: Event, margin: float) -> Event:
    """The event with every row and every bound pushed inwards; cases that this empties are left out."""
    if margin == 0:
        return event
    cases = tuple(
        FunctionCase(
            Case(c.case.lower + margin, c.case.upper - margin, c.case.A, c.case.G, c.case.g - margin, c.case.strict),
            c.F,
        )
        for c in event.cases
        if (c.case.lower + margin <= c.case.upper - margin).all()
    )
    return Event(event.text, event.n_inputs, event.n_outputs, cases, event.features)


def _nearest(
    components: Any,
    asked: Any,
    wanted: int,
    limit: Budget,
    checker: _Replay,
    rng: np.random.Generator,
) -> Witnesses:
    seeds = rng.spawn(len(components))
    searched: list[Found] = []
    for k, (c, seed) in enumerate(zip(components, seeds, strict=True)):
        if c.r == 0:
            points = [np.zeros(c.network.n_inputs)]
        else:
            share = Budget(0.5 * limit.seconds / len(components))
            points = Search(c, asked, seed).run(share, wanted)
        searched += [Found(k, u, float(np.linalg.norm(u[: c.r]))) for u in points]
    made = _made(searched, components, checker, wanted, False)
    proved = True
    seen = [0]
    for k, c in enumerate(components):
        if c.r == 0:
            continue
        seen.append(c.r)
        if c.r > MOST_PROOF_DIMENSIONS:
            proved = False
            continue
        more, done = prove(c, asked, [w.distance for w in made if w.distance is not None], wanted, limit)
        proved &= done
        searched += [Found(k, u, float(np.linalg.norm(u))) for u in more]
        made = _made(searched, components, checker, wanted, False)
    if proved:
        made = _made(searched, components, checker, wanted, True)
    if made:
        note = "all nearer cells were looked at" if proved else "the best of a search; nearer ones may exist"
    else:
        note = "no input of the event within 38.5 standard deviations" if proved else "the search found no input"
    return Witnesses(tuple(made), proved and not made, note)


def _made(points: list[Found], components: Any, checker: _Replay, wanted: int, proved: bool) -> list[Witness]:
    """Witnesses of distinct points that pass the replay, nearest first."""
    out: list[Witness] = []
    for p in sorted(points, key=lambda p: p.distance):
        x = components[p.component].to_x(p.u)
        if any(np.abs(x - w.x).max() <= 1e-6 * (1 + np.abs(x).max()) for w in out):
            continue
        made = checker(x, p.distance, p.component, proved and not out)
        if made is not None:
            out.append(made)
        if len(out) == wanted:
            break
    return out


def _particles(law: Any, event: Event, net: Network, wanted: int, checker: _Replay) -> Witnesses:
    inside = np.flatnonzero(event.holds(net, law.points))
    order = inside[np.argsort(-law.weights[inside], kind="stable")]
    made = (checker(law.points[i], None, 0, False) for i in order.tolist())
    items: list[Witness] = []
    for w in made:
        if w is not None:
            items.append(w)
        if len(items) == wanted:
            break
    return Witnesses(tuple(items), not len(inside), f"{len(inside):,} of {len(law):,} particles are in the event")


def _in_box(
    law: Any, event: Event, net: Network, wanted: int, limit: Budget, checker: _Replay, rng: np.random.Generator
) -> Witnesses:
    """The deepest of many draws; if there are none, what pulling and enumeration find."""
    from reluscope.answers._event_cells import Walk, start_cell
    from reluscope.answers._event_rows import pieces
    from reluscope.inputs import standard

    items: list[Witness] = []
    proved = True
    for piece in pieces(law, event):
        asked = question(net, piece.law, piece.event)
        if not asked.cases:
            continue
        X = piece.law.sample(_SAMPLES, rng)
        depth = np.array(checker.margins(X, net(X)))
        for i in np.argsort(-depth, kind="stable")[:wanted].tolist():
            made = checker(X[i], None, 0, False) if depth[i] >= 0 else None
            if made is not None:
                items.append(made)
        if items:
            continue
        (component,) = standard(piece.law, asked.network)
        if component.r == 0:
            continue
        assert component.lower is not None and component.upper is not None
        search = Search(component, asked, rng)
        for u in search.run(Budget(0.3 * limit.seconds), wanted):
            made = checker(component.to_x(u), None, 0, False)
            if made is not None:
                items.append(made)
        if items:
            continue
        if component.r > MOST_PROOF_DIMENSIONS:
            proved = False
            continue
        walk = Walk(component, asked, start_cell((component.lower, component.upper), None, component.r), limit)
        for inside in walk:
            for u in inside.cells.interior()[:wanted]:
                made = checker(component.to_x(u), None, 0, False)
                if made is not None:
                    items.append(made)
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

    def __init__(self, net: Network, event: Event, model: str | PathLike[str] | None) -> None:
        self.net, self.event = net, event
        self.session = None if model is None else _session(model)

    def __call__(self, x: FloatArray, distance: float | None, component: int, proved: bool) -> Witness | None:
        y = forward(self.net, x)
        (depth,) = self.margins(x[None], y[None])
        if depth < 0 or not self.event.holds(self.net, x):
            return None
        model_y: FloatArray | None = None
        model_margin: float | None = None
        if self.session is not None:
            model_y = _run(self.session, x, self.net)
            model_margin = float(self.margins(x[None], model_y[None])[0])
        return Witness(x, y, float(depth), distance, proved, component, model_y, model_margin)

    def margins(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Smallest slack of the best case at each input; negative outside, at least 0 inside; 0 for no rows."""
        event = self.event
        f = event.feature_values(self.net, self.net.pattern(X)) if event.features else np.zeros((len(X), 0))
        best = np.full(len(X), -np.inf)
        for c in event.cases:
            case = c.case
            slack = case.g - (X @ case.A.T + Y @ case.G.T + f @ c.F.T)
            inside = np.where(case.strict, slack > 0, slack >= 0).all(axis=1)
            inside &= ((case.lower <= X) & (case.upper >= X)).all(axis=1)
            sides = [slack, (X - case.lower)[:, np.isfinite(case.lower)], (case.upper - X)[:, np.isfinite(case.upper)]]
            least = np.concatenate(sides, axis=1).min(axis=1, initial=np.inf)
            least = np.where(np.isinf(least), 0.0, least)
            best = np.maximum(best, np.where(inside, np.maximum(least, 0.0), np.minimum(least, -5e-324)))
        return best


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

    runtime = require("onnxruntime", "onnxruntime")
    return runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])


def _run(session: Any, x: FloatArray, net: Network) -> FloatArray:
    entry = session.get_inputs()[0]
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in entry.shape] or [net.n_inputs]
    if int(np.prod(shape)) != net.n_inputs:
        shape = [1, *net.input_shape]
    kind = np.float64 if "double" in entry.type else np.float32
    out = session.run(None, {entry.name: x.reshape(shape).astype(kind)})[0]
    return np.asarray(out, dtype=np.float64).reshape(-1)
