"""One offline HTML page per study: time, heads, frames and pictures, in a few megabytes.

The page holds the top few frames of every head at every step and a thumbnail of every frame, not every weight. It has
no links to anywhere and works from disk.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import describe, instance, integer, several, text
from reluscope._extras import require
from reluscope._files import as_path, atomic_write
from reluscope.errors import InputError, InputTypeError
from reluscope.lens.ablation import Ablation
from reluscope.lens.attention import Recording
from reluscope.lens.frames import as_bytes, data_uri, resize, sprite
from reluscope.lens.heads import Patterns

__all__ = ["write_study"]

_SHEET = 2_000_000
"""Bytes of thumbnails that are aimed at."""


def write_study(
    path: str | PathLike[str],
    *,
    title: str,
    recording: Recording | None = None,
    frames: Any = None,
    patterns: Patterns | None = None,
    ablation: Ablation | None = None,
    pictures: Sequence[tuple[str, Any]] = (),
    notes: Sequence[str] = (),
    top: int = 4,
) -> int:
    """Write one offline page about a model.

    Parameters
    ----------
    path : path
    title : str
    recording, frames : Recording, array_like, optional
        The interactive part: pointing at a time shows the frame and what the chosen head looks at.
    patterns, ablation : Patterns, Ablation, optional
    pictures : sequence of (str, picture)
        A caption with matplotlib Axes, a Figure or an image array.
    notes : sequence of str
    top : int
        Frames kept per head and step.

    Returns
    -------
    int
        Size in bytes; 1,000 frames of 64 heads take under 5 MB.
    """
    path, top = as_path(path), integer(top, "top", low=1)
    text(title, "title")
    for name, value, kind in (("recording", recording, Recording), ("patterns", patterns, Patterns)):
        if value is not None:
            instance(value, name, kind, f"a {kind.__name__}")
    if ablation is not None:
        instance(ablation, "ablation", Ablation, "an Ablation")
    if frames is not None and recording is None:
        as_bytes(frames, "frames")
    pairs = several(pictures, "pictures", "pairs (caption, picture)")
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise InputTypeError(f"pictures must be a list of pairs (caption, picture), got {describe(pictures)}")
    parts = [f"<p>{html.escape(text(note, 'a note'))}</p>" for note in several(notes, "notes", "texts")]
    data: dict[str, Any] = {}
    if recording is not None:
        data = _attention_data(recording, frames, min(top, recording.weights.shape[2]))
        parts.append(_VIEWER)
    if patterns is not None:
        parts.append(_patterns_table(patterns))
    if ablation is not None:
        parts.append(_ablation_table(ablation))
    parts += [
        f"<figure><img src='{_png(p)}' alt=''><figcaption>{html.escape(c)}</figcaption></figure>" for c, p in pairs
    ]
    page = (
        _resource("study_page.html")
        .replace("@TITLE@", html.escape(title))
        .replace("@BODY@", "\n".join(parts))
        .replace("@DATA@", json.dumps(data, allow_nan=False).replace("<", "\\u003c"))
        .replace("@SCRIPT@", _resource("study_page.js") if recording is not None else "")
    )
    content = page.encode("utf-8")
    with atomic_write(path) as file:
        file.write(content)
    return len(content)


def _attention_data(recording: Recording, frames: Any, top: int) -> dict[str, Any]:
    places, values = recording.top(top)
    wide = recording.weights.shape[2] > 256
    weights = np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)
    shown = recording.maximum().T[::-1] if recording.kind == "memory" else recording.maximum()
    data: dict[str, Any] = {
        "steps": recording.steps,
        "memory": int(recording.weights.shape[2]),
        "kind": recording.kind,
        "heads": list(recording.heads),
        "top": top,
        "wide": wide,
        "labels": None if recording.labels is None else list(recording.labels),
        "places": _packed(places.astype("<u2" if wide else np.uint8)),
        "weights": _packed(weights),
        "maximum": data_uri((255 - np.clip(np.rint(shown * 255), 0, 255)).astype(np.uint8)),
    }
    if frames is not None:
        pictures = as_bytes(frames, "frames")
        needed = recording.steps if recording.kind == "memory" else recording.weights.shape[2]
        if len(pictures) < needed:
            raise InputError(f"frames must hold at least {needed} frames, got {describe(frames)}")
        data |= _thumbnails(pictures[:needed])
    return data


def _thumbnails(pictures: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """The largest of a few sizes whose sheet stays near the aim."""
    n, h, w = pictures.shape[:3]
    columns = int(np.ceil(np.sqrt(n)))
    for longest, quality in ((96, 75), (64, 70), (48, 60), (32, 50)):
        factor = min(1.0, longest / max(h, w))
        size = (max(1, round(h * factor)), max(1, round(w * factor)))
        coded = data_uri(sprite(resize(pictures, size), columns), "JPEG", quality)
        if len(coded) <= _SHEET:
            break
    return {"sheet": coded, "columns": columns, "height": size[0], "width": size[1]}


def _packed(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _png(picture: Any) -> str:
    if isinstance(picture, np.ndarray):
        if picture.ndim and picture.dtype == object:
            return _png(picture.flat[0])
        array = picture if picture.dtype == np.uint8 else np.clip(np.rint(picture * 255), 0, 255).astype(np.uint8)
        return data_uri(array)
    figure = getattr(picture, "figure", picture)
    require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=100)
    return f"data:image/png;base64,{base64.b64encode(memory.getvalue()).decode('ascii')}"


def _patterns_table(patterns: Patterns) -> str:
    rows = []
    for p in patterns.heads:
        found = ", ".join(p.detected(patterns.threshold))
        keys = ", ".join(map(str, p.key_frames[:6]))
        cells = [
            p.head,
            f"{p.current:.2f}",
            f"{p.previous:.2f}",
            f"{p.last:.2f}",
            f"{p.period_score:.2f} ({p.period})",
            f"{p.key:.2f}",
            keys,
            f"{p.modes:.2f}",
            found,
        ]
        rows.append(
            f"<tr{' class=found' if found else ''}>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>"
        )
    names = (
        "head",
        "current frame",
        "previous frame",
        "last frames",
        "every n-th (n)",
        "key frame",
        "which",
        "two modes",
        "detected",
    )
    head = "".join(f"<th>{n}</th>" for n in names)
    return f"<h2>Patterns</h2><div class=scroll><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _ablation_table(ablation: Ablation) -> str:
    ranked = ablation.ranked()[:40]
    most = max((v for _, v in ranked), default=0.0) or 1.0
    rows = "".join(
        f"<tr><td>{html.escape(n)}</td><td>{v:.4g}</td>"
        f"<td><div class=bar style='width:{100 * v / most:.0f}%'></div></td></tr>"
        for n, v in ranked
    )
    return (
        "<h2>Without it</h2><p>Mean KL divergence of the output distribution when a part is removed (nats).</p>"
        f"<div class=scroll><table class=wide><tr><th>part</th><th>KL</th><th></th></tr>{rows}</table></div>"
    )


_VIEWER = """
<h2>Attention</h2>
<p id=hint>Move over the large plot to choose a time (or position), click a small one to choose a head;
arrow keys step.</p>
<div id=viewer>
<div id=left><canvas id=main tabindex=0></canvas><div class=cap id=maincap></div>
<img id=maximum alt="maximum over heads"><div class=cap>maximum over heads</div></div>
<div id=right><div class=cap id=nowcap></div><canvas id=now></canvas>
<div class=cap id=seencap></div><div id=seen></div></div>
</div>
<div id=grid></div>
"""


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
