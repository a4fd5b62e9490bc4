"""From the library's answers to what the page draws: polygons, the event's limit, numbers, tables; all plain JSON."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reluscope._check import FloatArray, choice, describe, real_array
from reluscope._text import count
from reluscope.errors import InputError, ReluscopeError
from reluscope.playground.code import python_code
from reluscope.playground.density import output_density
from reluscope.playground.labels import hints, labels
from reluscope.playground.limit import event_limit, event_side
from reluscope.playground.session import (
    MOST_INPUTS,
    MOST_WINNERS,
    MOST_WORK,
    Kept,
    Opened,
    View,
    first_view,
    jacobian_work,
    switching_lines,
)
from reluscope.playground.table import points
from reluscope.playground.words import function_in_words, pattern_in_words
from reluscope.reporting.data import law_words

MOST_DRAWN = {"inputs": MOST_INPUTS, "units": 2500, "parameters": 5_000_000}
MOST_MEASURED = {"inputs": 1000, "units": 1200, "parameters": 200_000}
"""Larger networks are not drawn, or not measured: the first batch of cells or lines would take too long already. What
counts is the network as the law sees it: with two varying inputs it has two."""

_MOST_IN_PLANE = {"inputs": 2, "units": 2500, "parameters": 1_000_000}

_MOST_LINES = 400
"""First-layer units that may switch in the view."""

_SECONDS = {"event": 0.4, "linear_models": 0.3, "outputs": 0.2, "picture": 0.6}
_ENUMERATED = 2.0
"""Seconds for the event where the law is seen in two dimensions at most."""

_LIVE, _LIVE_FLAT = 0.1, 0.5
"""Share of the time while something is being moved. Where the law is seen in two dimensions at most, enumeration ends
long before, unless the machine is busy; what is tried in its place after that takes longer."""

_MOST_FIRST_CELLS = 30_000
"""Cells that the first layer may make: with more, enumeration would not finish in time, and lines are asked at once."""

_MOST_CELLS = {"outputs": 1500, "linear_models": 5000}
_MOST_FLAT_CELLS = 30_000
"""Cells to be measured, in three dimensions and in fewer: budgets do not bound the work on moments."""

_MOST_REGIONS = 4000
_MOST_OUTPUTS = 12
_HEAVIEST = 10
_MOST_HALVINGS = 6
"""How often a first view is halved until all its regions can be drawn."""


def budget(what: str, view: View | None = None) -> str:
    """The budget of one number; for the event more where enumeration is exact, since it mostly ends long before."""
    flat = view is not None and _seen(view) <= 2
    seconds = _ENUMERATED if flat and what == "event" else _SECONDS[what]
    live = view is not None and view.live
    return f"{seconds * ((_LIVE_FLAT if flat else _LIVE) if live else 1.0):g}s"


def cells_budget(what: str, view: View, method: str) -> str:
    """The budget of the regions or the moments: by enumeration also so few cells that measuring them is quick."""
    most = "" if method == "lines" else f", {_MOST_CELLS[what] if _seen(view) == 3 else _MOST_FLAT_CELLS} regions"
    return budget(what, view) + most


def picture_budget() -> str:
    """The budget of the picture."""
    return f"{budget('picture')}, {_MOST_REGIONS} regions"


class Scenes:
    """The answers to a page's questions. One thread at a time; the last few answers are kept."""

    def __init__(self) -> None:
        self._planes, self._linear_models, self._sides = Kept(), Kept(), Kept()

    def begin(self, found: Opened) -> dict[str, Any]:
        """What a page needs to know about a network when it opens it."""
        net, view = found.net, first_view(found)
        for _ in range(_MOST_HALVINGS):
            if (drawn := _or_none(self.regions, view)) is None or drawn.stopped is None:
                break
            quarter = 0.25 * (view.upper - view.lower)
            view = replace(view, lower=view.lower + quarter, upper=view.upper - quarter)
        return {
            "key": found.key,
            "title": found.title,
            "about": found.about,
            "network": repr(net),
            **labels(net),
            "widths": list(net.widths),
            "hints": hints(net),
            "data": {"name": found.data_name, "rows": len(found.data)} if found.data is not None else None,
            "own": found.law is not None,
            "law": law_words(found.law) if found.law is not None else "",
            "winners": 2 <= net.n_outputs <= MOST_WINNERS,
            "events": list(found.events),
            "view": {
                "axes": list(view.axes),
                "at": view.at.tolist(),
                "sd": view.sd.tolist(),
                "vary": view.vary,
                "lower": view.lower.tolist(),
                "upper": view.upper.tolist(),
                "event": view.event,
                "output": view.output,
                "colour": view.colour,
                "layers": view.layers,
                "unit": view.unit,
            },
        }

    def regions(self, view: View) -> Any:
        """`rs.regions` of the network on the plane, in the view."""
        from reluscope.cells.regions import regions

        refuse_if_large(view, MOST_DRAWN)
        lines = switching_lines(view)
        if lines > _MOST_LINES:
            raise InputError(
                f"{lines:,} units of the first layer switch in this view, too many to draw; zoom in, or ask "
                "rs.regions(net, box, budget=...) in Python"
            )
        return self._planes.get(
            view.plane_key(),
            lambda: regions(view.plane(), (view.lower, view.upper), budget=picture_budget(), progress=None),
        )

    def linear_models(self, view: View) -> tuple[Any, str]:
        """`rs.linear_models` of the network under the law, and the method it was asked with."""
        from reluscope.answers.linear_models import linear_models

        def asked(method: str) -> Any:
            limit = cells_budget("linear_models", view, method)
            return linear_models(view.net, view.law(), method=method, budget=limit, rng=0)

        refuse_if_large(view, MOST_MEASURED)
        return self._linear_models.get(view.law_key(), lambda: _in_time(asked, view))

    def picture(self, view: View) -> dict[str, Any]:
        """The regions in the view as polygons (or intervals) with their linear models; or those of the first layers."""
        if view.layers:
            found, older = self._of_layers(view, view.layers), self._of_layers(view, view.layers - 1)
            rows = points(view.opened, list(view.axes))
            return _shapes(found, [view.unit], view) | {"older": _shapes(older, [], view), "data": rows}
        found = self.regions(view)
        outputs = list(range(view.net.n_outputs)) if view.colour in ("largest", "smallest") else [view.output]
        if len(outputs) > MOST_WINNERS:
            raise InputError(
                f"colouring by the winning output needs at most {MOST_WINNERS} outputs, got {len(outputs)}; "
                "choose the value of one output"
            )
        return _shapes(found, outputs, view) | {"data": points(view.opened, list(view.axes))}

    def event(self, view: View, have: Any = None) -> dict[str, Any]:
        """How likely the event is, where it holds in the view, and where the law lives.

        `have` names the place that the page knows already: while only the law moves, it is not sent again.
        """
        found = {"answer": _tried(self._probability, view), "ellipses": _ellipses(view)}
        place = _tried(self._place, view)
        return found if place.get("key") == have and have is not None else found | {"place": place}

    def outputs(self, view: View) -> dict[str, Any]:
        """Mean and standard deviation of the outputs."""
        from reluscope.answers.outputs import outputs

        def asked(method: str) -> Any:
            return outputs(view.net, view.law(), method=method, budget=cells_budget("outputs", view, method), rng=0)

        refuse_if_large(view, MOST_MEASURED)
        out, method = _in_time(asked, view)
        mean, cov = out.mean, out.cov
        rows = []
        for o in _shown_outputs(view):
            variance = cov[o, o]
            sd = {k: float(np.sqrt(max(getattr(variance, k), 0.0))) for k in ("value", "lower", "upper")}
            rows.append({"output": o, "mean": answer(mean[o]), "sd": plain(sd)})
        exact = mean.guarantee == "exact" and _seen(view) <= 2
        return plain({
            "rows": rows, "guarantee": mean.guarantee, "level": mean.level, "method": out.method, "asked": method,
            "density": _tried(lambda v: output_density(v, out, exact=exact), view),
        })  # fmt: skip

    def heaviest(self, view: View) -> dict[str, Any]:
        """The regions that the law meets: how many, the heaviest, and the mass of each one drawn when asked for."""
        found, method = self.linear_models(view)
        top = found.top(_HEAVIEST)
        regions = _or_none(self.regions, view)
        where = np.full(len(top), -1) if regions is None else _places(view, regions, top.pattern)
        sd, o = np.sqrt(np.asarray(view.law().variance)), view.output
        rows = [
            {
                "mass": top.mass[i].value,
                "lower": top.mass[i].lower,
                "upper": top.mass[i].upper,
                "rule": function_in_words(view.net, top.C[i, o], float(top.d[i, o]), o, sd),
                "region": int(where[i]),
            }
            for i in range(len(top))
        ]
        wanted = view.colour == "mass" and regions is not None
        return plain({
            "regions": found.support_size,
            "complete": found.remainder == 0.0,
            "remainder": found.remainder,
            "others": top.remainder,
            "guarantee": found.guarantee,
            "level": found.masses.level,
            "method": found.method,
            "asked": method,
            "rows": rows,
            "drawn": self._mass_by_region(view, found, regions) if wanted else None,
        })  # fmt: skip

    def code(self, view: View, methods: Any) -> dict[str, Any]:
        """The lines of Python that give the same numbers; `methods` are those the last answers named in `asked`."""
        if not isinstance(methods, list) or len(methods) != 2:
            raise InputError(f"methods must list two methods, got {describe(methods)}")
        known = [choice(method, "methods", ("auto", "lines")) for method in methods]
        budgets = {"event": budget("event", replace(view, live=False)), "picture": picture_budget()}
        for what, method in zip(("outputs", "linear_models"), known, strict=True):
            budgets[what] = cells_budget(what, replace(view, live=False), method)
        return {"python": python_code(view, budgets, known)}

    def point(self, view: View, u: Any) -> dict[str, Any]:
        """What the network does at a point of the plane."""
        spot = real_array(u, "point", ndim=1)
        if len(spot) != len(view.axes):
            raise InputError(f"point must have {count(len(view.axes), 'coordinate')}, got {len(spot)}")
        net, x = view.net, view.input_at(spot)
        if jacobian_work(net) > MOST_WORK:
            refuse_if_large(view, MOST_DRAWN)
        local = net.local(x[None])
        pattern = local.pattern[0]
        shown = range(min(net.n_outputs, _MOST_OUTPUTS))
        y = net(x)
        return {
            "at": spot.tolist(),
            "outputs": [{"output": o, "value": float(y[o])} for o in shown],
            "more": max(net.n_outputs - _MOST_OUTPUTS, 0),
            "output": view.output,
            "pattern": pattern_in_words(net, pattern),
            "C": local.C[0, view.output].tolist(),
            "d": float(local.d[0, view.output]),
            "region": _tried(lambda v: int(self.regions(v).find(spot)), view),
            "mass": _tried(lambda v: answer(self.linear_models(v)[0].mass(pattern)), view),
        }

    def _probability(self, view: View) -> dict[str, Any]:
        from reluscope.answers.probability import probability
        from reluscope.events import as_event

        if not view.event:
            return {"error": "type an event, such as y[0] > 0"}
        as_event(
            view.event, view.net, view.law()
        )  # what is wrong with it is said before what is wrong with the network
        refuse_if_large(view, MOST_MEASURED)
        # While something moves there is no time for a proof: its set-up takes longer than the sample. It comes at rest.
        kind = "confidence" if view.live and _seen(view) > 3 else "auto"
        limit = budget("event", view)
        found = answer(probability(view.net, view.law(), view.event, guarantee=kind, budget=limit, rng=0))
        if view.opened.data is not None:
            event = as_event(view.event, view.net, view.law())
            found["rows"] = int(event.holds(view.net, view.opened.data).sum())
        return found

    def _place(self, view: View) -> dict[str, Any]:
        """Where the event holds in the view: its limit and its side, with a name for the two."""
        from reluscope.events import as_event, output_intervals

        if not view.event:
            return {"key": "", "limit": [], "points": [], "offsets": [0], "output": None}
        found = as_event(view.event, view.net, view.law())
        digest = hashlib.sha256(repr((view.plane_key(), found.features, view.output)).encode())
        for case in found.cases:
            for part in (case.lower, case.upper, case.A, case.G, case.g, case.strict, case.F):
                digest.update(repr(part.shape).encode())
                digest.update(np.ascontiguousarray(part).tobytes() if np.any(part) else b"")
        key = digest.hexdigest()[:24]

        def make() -> dict[str, Any]:
            regions = self.regions(view)
            spots, offsets = event_side(view, regions, found)
            return {
                "key": key,
                "limit": event_limit(view, regions, found).ravel().tolist(),
                "points": spots.ravel().tolist(),
                "offsets": offsets.tolist(),
                "output": None
                if (part := output_intervals(found, view.output)) is None
                else plain([list(p) for p in part]),
            }

        made: dict[str, Any] = self._sides.get(key, make)
        return made

    def _of_layers(self, view: View, layers: int) -> Any:
        """`rs.regions` of the first hidden layers on the plane."""
        from reluscope.cells.regions import regions

        refuse_if_large(view, MOST_DRAWN)
        return self._planes.get(
            (view.plane_key(), layers),
            lambda: regions(view.part(layers), (view.lower, view.upper), budget=picture_budget(), progress=None),
        )

    @staticmethod
    def _mass_by_region(view: View, found: Any, regions: Any) -> list[float | None]:
        """The mass of the whole region each polygon belongs to; None where no line hit it."""
        mass = dict(zip(_keys(view, found.pattern), found.masses.value.tolist(), strict=True))
        elsewhere = 0.0 if found.remainder == 0.0 else None
        return [mass.get(key, elsewhere) for key in _keys(view, regions.pattern)]


def refuse_if_large(view: View, most: Mapping[str, int]) -> None:
    """Raise an error with the reason when one question about the network could take much longer than a second."""
    net = view.net
    size = {"inputs": net.n_inputs, "units": net.n_units, "parameters": net.n_parameters}
    if most is MOST_MEASURED and view.vary == "shown" and net.n_inputs > len(view.axes):
        most, first = _MOST_IN_PLANE, net.layers[0]
        size |= {"inputs": len(view.axes), "parameters": net.n_parameters - first.n_parameters + 3 * first.width}
    if any(size[key] > most[key] for key in most):
        has, may = (", ".join(f"{sizes[key]:,} {key}" for key in most) for sizes in (size, most))
        raise InputError(
            f"the network is too large for answers within about a second: it has {has}, at most {may} are taken here; "
            "ask in Python with a budget, such as rs.probability(net, law, event, budget='60s')"
        )


def _in_time(asked: Callable[[str], Any], view: View) -> tuple[Any, str]:
    """An answer by enumeration where masses are exact, else (or when that did not finish in time) by lines."""
    method = _way(view)
    found = asked(method)
    if found.stopped is not None and method == "auto":
        method, found = "lines", asked("lines")
    return found, method


def _way(view: View) -> str:
    """The method to ask with: lines where masses are not exact, or where the first layer alone makes too many cells."""
    from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS

    seen = _seen(view)
    if seen > MOST_EXACT_DIMENSIONS:
        return "lines"
    lines = int((view.net.layers[0].units.pieces - 1).sum()) if view.net.hidden else 0
    cells = sum(math.comb(lines, k) for k in range(seen + 1))
    return "auto" if cells <= _MOST_FIRST_CELLS else "lines"


def _seen(view: View) -> int:
    """In how many dimensions the network sees the law, at most."""
    from reluscope.inputs import standard

    return max(c.r for c in standard(view.law(), view.net))


def answer(found: Any) -> dict[str, Any]:
    """An `Answer` as plain values, with the library's own text."""
    return plain(found.to_dict() | {"text": str(found)})


def plain(value: Any) -> Any:
    """What is not finite becomes None: JSON knows no infinity."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _tried(ask: Any, view: View) -> Any:
    """One of several numbers: when it cannot be had, the reason stands in its place."""
    try:
        return ask(view)
    except (ReluscopeError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}


def _or_none(ask: Any, view: View) -> Any:
    try:
        return ask(view)
    except ReluscopeError:
        return None


def _shown_outputs(view: View) -> list[int]:
    """The chosen output first when there are too many to list."""
    n = view.net.n_outputs
    if n <= _MOST_OUTPUTS:
        return list(range(n))
    return [view.output, *(o for o in range(n) if o != view.output)][:_MOST_OUTPUTS]


def _keys(view: View, pattern: Any) -> list[bytes]:
    return list(view.net.key(np.atleast_2d(pattern)).tolist())


def _places(view: View, regions: Any, patterns: Any) -> FloatArray:
    """Index of the region in the view with each pattern, -1 where it is not in view."""
    index = {key: i for i, key in enumerate(_keys(view, regions.pattern))} if len(regions) else {}
    return np.array([index.get(key, -1) for key in _keys(view, patterns)])


def _shapes(found: Any, outputs: list[int], view: View) -> dict[str, Any]:
    """Regions as polygons (or intervals), with the linear models of some outputs."""
    if len(view.axes) == 1:
        corners = np.column_stack([found.cells.low, found.cells.high])
        offsets = np.arange(0, 2 * len(found) + 1, 2)
    else:
        corners, offsets = found.cells.points, found.cells.offsets
    return {
        "count": len(found),
        "stopped": found.stopped or "",
        "points": corners.ravel().tolist(),
        "offsets": offsets.tolist(),
        "outputs": outputs,
        "C": found.C[:, outputs, :].ravel().tolist(),
        "d": found.d[:, outputs].ravel().tolist(),
    }


def _ellipses(view: View) -> list[dict[str, Any]]:
    """Mean and covariance in the shown inputs of each component of the law, heaviest first."""
    axes = list(view.axes)
    out = []
    for weight, part in view.law().components:
        cov = np.asarray(part.cov)[np.ix_(axes, axes)] if len(part.mean) <= _MOST_COV else np.diag(part.variance[axes])
        out.append({"weight": float(weight), "mean": np.asarray(part.mean)[axes].tolist(), "cov": cov.tolist()})
    return sorted(out, key=lambda e: -e["weight"])[:_MOST_ELLIPSES]


_MOST_COV, _MOST_ELLIPSES = 1000, 24
