"""Small charts as inline SVG: colours come from the page's style sheet by class, so they follow light and dark.

A `Chart` has one plotting area with labelled axes; marks are added in data coordinates and drawn in order. Text is
escaped. `svg()` returns the element with its legend above it; the caption belongs to the page.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.schema import Label

_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 16, 12, 62
"""Margins in pixels."""

_WIDE, _WIDE_LEFT = 500, 104
"""From this width on a chart is made smaller on a phone and in print, where its letters are larger: they need room."""

_LETTER, _WIDE_LETTER = 7.4, 11.0
"""Pixels to a letter of a name beside an axis."""

_DIGIT, _WIDE_DIGIT = 10.9, 12.8
"""Pixels to a digit of a number below an axis, where letters are largest."""

CATEGORIES: npt.NDArray[np.uint8] = np.array(
    [(125, 177, 216), (242, 151, 60), (242, 229, 190), (151, 125, 112), (138, 112, 242), (138, 242, 242),
     (151, 177, 112), (190, 242, 138), (177, 99, 151), (229, 164, 177)], np.uint8
)  # fmt: skip
"""Ten colours, one per output that can win: any two differ by 20 or more (CIE 1976), also for eyes that lack one of the
three cones; edges stay visible on all of them."""

_LONGEST = 24
"""Letters of a name beside an axis; longer ones are cut."""


class Chart:
    """Axes from `x` = (low, high) and `y` = (low, high) with labels; marks in data coordinates.

    With `x_powers` (`y_powers`) the coordinates are logarithms to the base 10, and ticks are powers of it. Marks are in
    the network's numbers; where a label has a unit of its own, ticks are in that unit.
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        x_label: str | Label,
        y_label: str | Label,
        width: int = 620,
        height: int = 340,
        x_names: Sequence[str] | None = None,
        y_names: Sequence[str] | None = None,
        x_powers: bool = False,
        y_powers: bool = False,
        title: str = "",
    ) -> None:
        self._x, self._y = _range(x), _range(y)
        self._size = (width, height)
        self._labels = (x_label, y_label)
        self._names = (x_names, y_names)
        self._powers = (x_powers, y_powers)
        self._title = title
        self._marks: list[str] = []
        self._legend: list[tuple[str, str]] = []
        self._bars: list[str] = []

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: str = "c1", name: str = "", *, step: bool = False) -> None:
        """A line through the points; `step=True` holds each value until the next point."""
        px, py = self._px(x), self._py(y)
        if not len(px):
            return
        if step:
            px, py = np.repeat(px, 2)[1:], np.repeat(py, 2)[:-1]
        self._marks.append(f'<path class="line {kind}" d="{_path(px, py)}"/>')
        self._name(kind, name, "line")

    def band(self, x: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, kind: str = "c1", name: str = "") -> None:
        """The area between two curves."""
        px = self._px(x)
        edge = _path(np.concatenate([px, px[::-1]]), np.concatenate([self._py(high), self._py(low)[::-1]]))
        self._marks.append(f'<path class="band {kind}" d="{edge}Z"/>')
        self._name(kind, name, "band")

    def dots(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: str = "c2", name: str = "", radius: float = 2.2) -> None:
        """Small circles."""
        for a, b in zip(self._px(x), self._py(y), strict=True):
            self._marks.append(f'<circle class="dot {kind}" cx="{a:.1f}" cy="{b:.1f}" r="{radius:g}"/>')
        self._name(kind, name, "dot")

    def stems(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: str = "c3", name: str = "") -> None:
        """Vertical strokes from zero with a dot on top: atoms."""
        base = float(self._py(np.array([max(0.0, self._y[0])]))[0])
        for a, b in zip(self._px(x), self._py(y), strict=True):
            self._marks.append(f'<path class="line {kind}" d="M{a:.1f} {base:.1f}V{b:.1f}"/>')
        self.dots(x, y, kind, name, 3.2)

    def bars(
        self, left: npt.ArrayLike, right: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, kind: str = "c1"
    ) -> None:
        """Rectangles from (left, low) to (right, high)."""
        for a, b, c, d in zip(self._px(left), self._px(right), self._py(low), self._py(high), strict=True):
            x0, y0 = min(a, b), min(c, d)
            self._marks.append(
                f'<rect class="bar {kind}" x="{x0:.1f}" y="{y0:.1f}" width="{abs(b - a):.1f}" '
                f'height="{abs(d - c):.1f}"/>'
            )

    def legend(self, kind: str, name: str, shape: str = "bar") -> None:
        """An entry of the legend without a mark."""
        self._name(kind, name, shape)

    def swatch(self, colour: npt.NDArray[np.uint8], name: str) -> None:
        """An entry of the legend with a fixed colour, for pictures made of pixels."""
        self._legend.append((f'fill="#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"', name))

    def colour_bar(self, colours: npt.NDArray[np.uint8], low: str, high: str, name: str = "") -> None:
        """A colour bar above the picture: RGB rows from `low` to `high`, and what it shows."""
        stops = ", ".join(hex_colours(colours))
        bar = f'<span class="bar" style="background: linear-gradient(90deg, {stops})"></span>'
        ends = [escape(end).replace("e-", "e\N{MINUS SIGN}") for end in (low, high)]
        self._bars.append(f"<span>{escape(name)} {ends[0]} {bar} {ends[1]}</span>")

    def whiskers(
        self, at: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, kind: str = "ink", *, across: bool = False
    ) -> None:
        """Error bars at positions `at`, upright, or lying (`across=True`)."""
        if across:
            for y, a, b in zip(self._py(at), self._px(low), self._px(high), strict=True):
                self._marks.append(f'<path class="line {kind}" d="M{a:.1f} {y:.1f}H{b:.1f}"/>')
        else:
            for x, a, b in zip(self._px(at), self._py(low), self._py(high), strict=True):
                self._marks.append(f'<path class="line {kind}" d="M{x:.1f} {a:.1f}V{b:.1f}"/>')

    def polygons(self, shapes: Iterable[FloatArray], fills: Sequence[str] | None = None) -> None:
        """Closed shapes (k, 2); filled with the given colours, or outlines only."""
        if fills is None:
            tenths = (np.rint(10 * np.stack([self._px(s[:, 0]), self._py(s[:, 1])], axis=1)) for s in shapes)
            outlines = [_steps(corners.astype(int)) for corners in tenths]
            self._marks.append(f'<path class="edges" transform="scale(.1)" d="{"".join(outlines)}"/>')
            return
        outlines = [_path(self._px(s[:, 0]), self._py(s[:, 1]), 2) + "Z" for s in shapes]
        for outline, fill in zip(outlines, fills, strict=True):
            self._marks.append(f'<path class="cell" fill="{escape(fill)}" d="{outline}"/>')

    def image(self, pixels: npt.NDArray[np.uint8]) -> None:
        """RGB pixels (rows, columns, 3), first row on top, stretched over the whole plotting area."""
        x, y, w, h = self._area()
        data = base64.b64encode(png(pixels)).decode()
        self._marks.append(
            f'<image x="{x}" y="{y}" width="{w}" height="{h}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{data}"/>'
        )

    def note(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A word in the picture."""
        a, b = float(self._px([x])[0]), float(self._py([y])[0])
        self._marks.append(f'<text class="note" x="{a:.1f}" y="{b:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def svg(self) -> str:
        """The whole element."""
        width, height = self._size
        x, y, w, h = self._area()
        title = f"<title>{escape(self._title)}</title>" if self._title else ""
        clip = f"clip{zlib.crc32((self._title + repr((self._x, self._y)) + ''.join(self._marks)).encode()):08x}"
        parts = [
            self._legend_html(),
            f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg">{title}',
            f'<clipPath id="{clip}"><rect x="{x}" y="{y}" width="{w}" height="{h}"/></clipPath>',
            self._axis_x(),
            self._axis_y(),
            f'<g clip-path="url(#{clip})">{"".join(self._marks)}</g>',
            "</svg>",
        ]
        return "".join(parts)

    def _name(self, kind: str, name: str, shape: str) -> None:
        if name:
            self._legend.append((f'class="key {shape} {kind}"', name))

    def _area(self) -> tuple[int, int, int, int]:
        width, height = self._size
        wide = width >= _WIDE
        left = _WIDE_LEFT if wide else _LEFT
        if self._names[1] is not None:
            longest = max((min(len(name), _LONGEST) for name in self._names[1]), default=0)
            left = max(40, 10 + int((_WIDE_LETTER if wide else _LETTER) * longest)) + 20
        return left, _TOP, width - left - _RIGHT, height - _TOP - _BOTTOM

    def _px(self, x: npt.ArrayLike) -> FloatArray:
        left, _, width, _ = self._area()
        low, high = self._x
        return np.clip(left + (np.asarray(x, dtype=float) - low) / (high - low) * width, -1e4, 1e4)

    def _py(self, y: npt.ArrayLike) -> FloatArray:
        _, top, _, height = self._area()
        low, high = self._y
        return np.clip(top + (high - np.asarray(y, dtype=float)) / (high - low) * height, -1e4, 1e4)

    def _axis_x(self) -> str:
        x, y, w, h = self._area()
        out = [f'<path class="axis" d="M{x} {y + h}H{x + w}"/>']
        for at, text in _ticks(self._x, self._names[0], self._powers[0], self._labels[0]):
            p = float(self._px([at])[0])
            out.append(f'<path class="grid" d="M{p:.1f} {y}V{y + h}"/>' if self._names[0] is None else "")
            half = 0.5 * len(text) * (_WIDE_DIGIT if self._size[0] >= _WIDE else _DIGIT)
            p = min(p, self._size[0] - half)  # the last one stays inside the picture
            out.append(f'<text class="tick" x="{p:.1f}" y="{y + h + 28}" text-anchor="middle">{escape(text)}</text>')
        label = escape(str(self._labels[0]))
        out.append(f'<text class="label" x="{x + w / 2:.0f}" y="{y + h + 53}" text-anchor="middle">{label}</text>')
        return "".join(out)

    def _axis_y(self) -> str:
        x, y, _, h = self._area()
        width = self._area()[2]
        out = [f'<path class="axis" d="M{x} {y}V{y + h}"/>']
        for at, text in _ticks(self._y, self._names[1], self._powers[1], self._labels[1]):
            p = float(self._py([at])[0])
            out.append(f'<path class="grid" d="M{x} {p:.1f}H{x + width}"/>' if self._names[1] is None else "")
            out.append(f'<text class="tick" x="{x - 6}" y="{p + 4:.1f}" text-anchor="end">{escape(text)}</text>')
        middle = y + h / 2
        label = escape(str(self._labels[1]))
        turned = f'transform="translate(19 {middle:.0f}) rotate(-90)" text-anchor="middle"'
        out.append(f'<text class="label" {turned}>{label}</text>')
        return "".join(out)

    def _legend_html(self) -> str:
        """Keys and names above the picture, in a line that wraps on narrow screens."""
        if not self._legend and not self._bars:
            return ""
        items = "".join(self._bars) + "".join(
            f'<span><svg class="swatch" viewBox="0 0 18 8"><rect {key} width="18" height="8" rx="2"/></svg>'
            f"{escape(name)}</span>"
            for key, name in self._legend
        )
        return f'<div class="legend">{items}</div>'


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """RGB pixels (rows, columns, 3) as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = np.zeros((rows, 1 + 3 * columns), dtype=np.uint8)
    raw[:, 1:] = pixels.reshape(rows, -1)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def diverging(values: FloatArray) -> npt.NDArray[np.uint8]:
    """Blue below zero, white at zero, red above, scaled to the largest magnitude: values (...) to RGB (..., 3)."""
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    stops = np.array([[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]], dtype=float)
    return _interpolated(0.5 + 0.5 * values / top, stops)


def sequential(values: FloatArray) -> npt.NDArray[np.uint8]:
    """Dark violet (0) through green to yellow (1): values in [0, 1] to RGB."""
    stops = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], dtype=float)
    return _interpolated(values, stops)


def hex_colours(rgb: npt.NDArray[np.uint8]) -> list[str]:
    """RGB rows (n, 3) as `#rrggbb`."""
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in rgb.tolist()]


def _interpolated(t: FloatArray, stops: FloatArray) -> npt.NDArray[np.uint8]:
    at = np.clip(np.nan_to_num(t), 0.0, 1.0) * (len(stops) - 1)
    low = np.minimum(at.astype(int), len(stops) - 2)
    part = (at - low)[..., None]
    return np.rint(stops[low] * (1 - part) + stops[low + 1] * part).astype(np.uint8)


def _range(given: tuple[float, float]) -> tuple[float, float]:
    low, high = float(given[0]), float(given[1])
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        pad = 0.5 * abs(low) or 0.5
        return low - pad, high + pad
    return low, high


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_names(exponents: Sequence[int]) -> list[str]:
    """Powers of 10: as numbers where all are short, else with raised exponents."""
    if min(exponents) >= -3 and max(exponents) <= 3:
        return [f"{10.0**k:g}" for k in exponents]
    return [f"10{str(k).translate(_RAISED)}" for k in exponents]


def _ticks(
    span: tuple[float, float], names: Sequence[str] | None, powers: bool = False, label: str | Label = ""
) -> list[tuple[float, str]]:
    if isinstance(label, Label) and not label.plain:
        low, high = sorted(label.value(v) for v in span)
        return [(label.number(at), text) for at, text in _ticks((low, high), names, powers)]
    if names is not None:
        return [(i, name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…") for i, name in enumerate(names)]
    low, high = span
    if powers:
        each = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200) if high - low <= 6 * s or s == 200)
        whole = [k for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1) if k % each == 0]
        if len(whole) >= 2:
            return list(zip(map(float, whole), _power_names(whole), strict=True))
        parts = [k + math.log10(m) for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
        return [(t, f"{10.0**t:.2g}") for t in parts if low - 1e-9 <= t <= high + 1e-9]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    places = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(t, f"{'−' if t < 0 else ''}{abs(t):.6g}") for t in places]


def _path(x: FloatArray, y: FloatArray, digits: int = 1) -> str:
    return "M" + "L".join(f"{a:.{digits}f} {b:.{digits}f}" for a, b in zip(x, y, strict=True))


def _steps(corners: npt.NDArray[np.int_]) -> str:
    """A closed shape (k, 2) as a path of whole steps: half as long as one of places."""
    first, moves = corners[0], np.diff(corners, axis=0).tolist()
    return f"M{first[0]} {first[1]}l{' '.join(f'{a} {b}' for a, b in moves)}z"
