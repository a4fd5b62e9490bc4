"""The map of a report as a scene that can be pointed at, zoomed, and cut layer by layer, without a server.

The page carries the regions after each hidden layer as numbers in single precision, and the script that draws them: the
playground's own `draw.js`, with `scene.js` in front of it.
"""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.answers.outputs import truncated_network
from reluscope.cells.regions import uninterrupted
from reluscope.reporting.charts import CATEGORIES, diverging, sequential
from reluscope.reporting.region_pictures import plane_of
from reluscope.reporting.subject import Subject
from reluscope.schema import Label

_MOST_BYTES = 260_000
"""Of the numbers of a scene; a page with its pictures stays below 600 KB."""

_MOST_REGIONS = 6000
_MOST_HALVINGS = 7
_MOST_LAYERS = 8
_MOST_ELLIPSES = 12


def scene(subject: Subject) -> str:
    """The scene as JSON, or nothing where there is no plane to show (one input) or it would be too large."""
    net = subject.net
    if net.n_inputs < 2 or not net.hidden:
        return ""
    view = plane_of(subject)
    lower, upper = np.array(view.lower), np.array(view.upper)
    for _ in range(_MOST_HALVINGS):
        made = _layers(subject, view.net, lower, upper)
        if made is not None:
            break
        quarter = 0.25 * (upper - lower)
        lower, upper = lower + quarter, upper - quarter
    else:
        return ""
    outputs = list(range(net.n_outputs)) if 2 <= net.n_outputs <= len(CATEGORIES) else [0]
    labels = [dict(vars(name if isinstance(name, Label) else Label(name))) for name in view.labels]
    found = {
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "labels": labels,
        "outputs": [subject.output(o) for o in outputs],
        "colour": subject.deciding if len(outputs) > 1 else "output",
        "layers": made,
        "ellipses": _law(subject, view.inputs),
        "palette": {
            "categories": CATEGORIES.tolist(),
            "diverging": diverging(np.linspace(-1.0, 1.0, 5)).tolist(),
            "sequential": sequential(np.linspace(0.0, 1.0, 5)).tolist(),
        },
        "where": view.where,
        "zoomed": bool(np.any(lower != view.lower)),
    }
    return json.dumps(found, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def script() -> str:
    """What draws the scene: one script without imports."""
    draw = files("reluscope.playground").joinpath("static", "draw.js").read_text(encoding="utf-8")
    own = files("reluscope.reporting").joinpath("scene.js").read_text(encoding="utf-8")
    return draw.replace("export ", "") + own


def _layers(subject: Subject, plane: Any, lower: FloatArray, upper: FloatArray) -> list[dict[str, Any]] | None:
    """The regions after each hidden layer, with the values to show; None if they are too many."""
    net, size, made = subject.net, 0, []
    depth = len(plane.hidden)
    steps = sorted({*np.linspace(1, depth, min(depth, _MOST_LAYERS)).round().astype(int).tolist()}, reverse=True)
    for k in steps:
        last = k == depth
        part = plane if last else truncated_network(plane, k)
        budget = f"{_MOST_REGIONS} regions, {subject.allow(0.03):g}s"
        found = uninterrupted(part, box=(lower, upper), budget=budget, progress=None)
        if not found.complete:
            return None
        outputs = list(range(net.n_outputs)) if last and 2 <= net.n_outputs <= len(CATEGORIES) else [0]
        cells: Any = found.cells
        numbers = {"points": cells.points, "C": found.C[:, outputs], "d": found.d[:, outputs]}
        size += sum(6 * v.size for v in numbers.values())
        if size > _MOST_BYTES:
            return None
        corners = np.diff(cells.offsets)
        if corners.max(initial=0) > 255:
            return None
        step = {"layers": k, "count": len(found), "corners": _text(corners.astype(np.uint8))}
        made.append(step | {name: _text(v.astype("<f4")) for name, v in numbers.items()})
    return made[::-1]


def _text(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _law(subject: Subject, inputs: tuple[int, int] | None) -> list[dict[str, Any]]:
    """The Gaussians of the law, in the plane."""
    law = subject.law
    if inputs is not None:
        parts, pair = sorted(law.gaussians, key=lambda p: -p[0])[:_MOST_ELLIPSES], list(inputs)
        shapes = [(float(w), np.asarray(g.mean)[pair], np.asarray(g.cov)[np.ix_(pair, pair)]) for w, g in parts]
        return [{"weight": w, "mean": mean.tolist(), "cov": cov.tolist()} for w, mean, cov in shapes]
    if len(law.gaussians) == 1:
        return [{"weight": 1.0, "mean": [0.0, 0.0], "cov": [[1.0, 0.0], [0.0, 1.0]]}]
    return []
