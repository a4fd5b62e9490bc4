"""Reference masses and moments of polygons with mpmath, by the boundary sum in very high precision.

mass = sum over edges of cross(p, q)/(4 pi) int_0^1 G(|p + t (q-p)|^2/2) dt, G(x) = (1 - exp(-x))/x, with so many digits
that the cancellation of far, small and thin cells does no harm (the vertices are the float64 values, exact).
Moments by Stokes: E[u 1] = -oint phi n, E[u u' 1] = mass I - oint u phi n'.
Run: python make_polygons.py > polygons.json (about five minutes)
"""

from __future__ import annotations

import json
import math
import random

import mpmath as mp


def gauss_rule(count: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """Gauss-Legendre rule on [0, 1] at the current precision, by Newton's method."""
    rule = []
    for i in range(count):
        x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (count + mp.mpf(1) / 2))
        for _ in range(100):
            p0, p1 = mp.mpf(1), x
            for k in range(2, count + 1):
                p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
            slope = count * (x * p1 - p0) / (x * x - 1)
            step = p1 / slope
            x -= step
            if abs(step) < mp.mpf(10) ** (-mp.mp.dps + 5):
                break
        rule.append(((1 + x) / 2, 1 / ((1 - x * x) * slope**2)))
    return rule


RULES: dict[int, list[tuple[mp.mpf, mp.mpf]]] = {}


def smooth_integral(f, length) -> mp.mpf:
    """int_0^1 f over an edge of the given length: panels no longer than 1, one Gauss rule each."""
    digits = mp.mp.dps
    if digits not in RULES:
        RULES[digits] = gauss_rule(20 + digits // 2)
    panels = max(1, math.ceil(length))
    total = mp.mpf(0)
    for j in range(panels):
        total += sum(w * f((j + x) / panels) for x, w in RULES[digits])
    return total / panels


def decay_mean(x: mp.mpf) -> mp.mpf:
    """(1 - exp(-x))/x."""
    return mp.mpf(1) if x == 0 else -mp.expm1(-x) / x


def upper_tail(x: mp.mpf) -> mp.mpf:
    """Q(x)."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def edge_triangle(p, q) -> mp.mpf:
    """Signed mass of (0, p, q). Outside |s| < 40 + 3 digits^(1/2) on its line only the angle counts."""
    d = (q[0] - p[0], q[1] - p[1])
    length = mp.sqrt(d[0] ** 2 + d[1] ** 2)
    cross = p[0] * q[1] - p[1] * q[0]
    if cross == 0:
        return mp.mpf(0)
    h = cross / length
    begin, end = (p[0] * d[0] + p[1] * d[1]) / length, (q[0] * d[0] + q[1] * d[1]) / length
    reach = mp.sqrt(2 * mp.mp.dps * mp.log(10)) + 1
    total = mp.mpf(0)
    if begin < -reach:
        stop = min(end, -reach)
        total += (mp.atan2(stop, h) - mp.atan2(begin, h)) / (2 * mp.pi)
        begin = stop
    if end > reach:
        restart = max(begin, reach)
        total += (mp.atan2(end, h) - mp.atan2(restart, h)) / (2 * mp.pi)
        end = restart
    if h < 0:  # atan2(s, h) with h < 0 runs the other way round
        begin0, end0 = begin, end
        p_s, q_s = (p[0] * d[0] + p[1] * d[1]) / length, (q[0] * d[0] + q[1] * d[1]) / length
        total = ((mp.atan(begin0 / h) - mp.atan(p_s / h)) + (mp.atan(q_s / h) - mp.atan(end0 / h))) / (2 * mp.pi)
    if end > begin:
        span = end - begin
        inner = smooth_integral(lambda t: decay_mean((h * h + (begin + t * span) ** 2) / 2), span)
        total += h * span * inner / (4 * mp.pi)
    return total


def polygon(vertices, cancelled_digits: int):
    """Mass, first and second raw moments to 25 digits; `cancelled_digits` are lost on the way."""
    mp.mp.dps = 20 * ((45 + cancelled_digits) // 20 + 1)
    points = [(mp.mpf(x), mp.mpf(y)) for x, y in vertices]
    mass = mp.mpf(0)
    first = [mp.mpf(0)] * 2
    second = [[mp.mpf(0)] * 2 for _ in range(2)]
    for p, q in zip(points, points[1:] + points[:1], strict=True):
        d = (q[0] - p[0], q[1] - p[1])
        length = mp.sqrt(d[0] ** 2 + d[1] ** 2)
        if length == 0:
            continue
        mass += edge_triangle(p, q)
        n = (d[1] / length, -d[0] / length)
        t = (d[0] / length, d[1] / length)
        h = n[0] * p[0] + n[1] * p[1]
        a, b = p[0] * t[0] + p[1] * t[1], q[0] * t[0] + q[1] * t[1]
        zero = mp.npdf(h) * (upper_tail(a) - upper_tail(b))
        one = mp.npdf(h) * (mp.npdf(a) - mp.npdf(b))
        for i in range(2):
            first[i] -= n[i] * zero
            for j in range(2):
                second[i][j] -= n[i] * (h * n[j] * zero + t[j] * one)
    for i in range(2):
        second[i][i] += mass
    text = lambda v: mp.nstr(v, 20)  # noqa: E731
    return text(mass), [text(v) for v in first], [[text(v) for v in row] for row in second]


def ring(count: int, radius: float, centre: tuple[float, float], turn: float, squash: float, axis: float):
    """Vertices on an ellipse around `centre`."""
    out = []
    for k in range(count):
        angle = turn + 2 * math.pi * k / count
        x, y = radius * math.cos(angle), squash * radius * math.sin(angle)
        c, s = math.cos(axis), math.sin(axis)
        out.append((centre[0] + c * x - s * y, centre[1] + s * x + c * y))
    return out


def cases():
    """(name, vertices, digits that cancel)."""
    rng = random.Random(7)
    for size in (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.55, 0.65, 1.0, 2.0, 3.0, 6.0):
        for distance in (0.0, 1.0, 3.0, 5.0):
            angle = rng.uniform(0, 6.28)
            centre = (distance * math.cos(angle), distance * math.sin(angle))
            yield (
                f"ordinary size {size} distance {distance}",
                ring(rng.randint(3, 7), size / 2, centre, rng.uniform(0, 6), 1.0, 0.0),
                20 + int(-2 * math.log10(min(size, 1))),
            )
    for width in (1e-3, 1e-6, 1e-9, 1e-12):
        for distance in (0.0, 2.0, 8.0):
            for length in (0.2, 3.0, 20.0):
                angle, axis = rng.uniform(0, 6.28), rng.uniform(0, 6.28)
                centre = (distance * math.cos(angle), distance * math.sin(angle))
                yield (
                    f"sliver width {width} length {length} distance {distance}",
                    ring(rng.randint(4, 6), length / 2, centre, rng.uniform(0, 6), width, axis),
                    90 if distance == 8.0 else 40,
                )
    for axis in (0.0, 1.1):
        for width in (1e-9, 1e-12):
            c, s = math.cos(axis + math.pi / 2), math.sin(axis + math.pi / 2)
            yield (
                f"sliver across width {width} at 12, axis {axis}",
                ring(5, 9.0, (12 * c, 12 * s), 0.3, width, axis),
                80,
            )
    for distance in (6.0, 9.0, 15.0, 21.0, 30.0):
        for size in (0.01, 1.0, 8.0):
            angle = rng.uniform(0, 6.28)
            away = distance + size / 2
            centre = (away * math.cos(angle), away * math.sin(angle))
            yield (
                f"far {distance} size {size}",
                ring(rng.randint(3, 6), size / 2, centre, rng.uniform(0, 6), 1.0, 0.0),
                30 + int(0.22 * (distance + size) ** 2),
            )
    yield "far corner", [(14.0, 13.0), (38.0, 13.0), (38.0, 38.0), (14.0, 38.0)], 110
    yield "far half plane", [(21.0, -38.0), (38.0, -38.0), (38.0, 38.0), (21.0, 38.0)], 130
    yield "far wedge", [(3.0, 12.0), (38.0, 30.0), (36.0, 38.0), (2.0, 38.0)], 60
    yield "steep cut", [(4.5, -38.0), (38.0, -38.0), (38.0, 38.0), (4.6, 38.0)], 20
    yield "half plane through origin", [(0.0, -38.0), (38.0, -38.0), (38.0, 38.0), (0.0, 38.0)], 0
    yield "oblique half plane", [(-38.0, -13.1), (38.0, 17.3), (38.0, 38.0), (-38.0, 38.0)], 0
    yield "vertex at origin", [(0.0, 0.0), (2.0, 0.3), (1.5, 1.9), (-0.2, 1.0)], 0
    yield "edge on a line through the origin", [(1.0, 1.0), (3.0, 3.0), (0.0, 4.0)], 0
    yield "edge at the origin", [(-1.0, -0.5), (2.0, 1.0), (0.0, 3.0)], 0
    yield "huge", [(-1e6, -0.3e6), (1e6, 0.1e6), (0.5e6, 1e6)], 0
    yield "huge strip", [(-1e6, -0.5), (1e6, 1.5), (1e6, 1.75), (-1e6, -0.25)], 0
    yield "huge and far", [(5.0, 0.0), (1e6, -1e6), (1e6, 1e6)], 20
    yield "duplicates and collinear", [(0.1, 0.1), (0.1, 0.1), (0.5, 0.1), (1.5, 0.1), (1.5, 0.9), (1.5, 0.9)], 0
    yield "tiny duplicates", [(0.1, 0.1), (0.1, 0.1), (0.11, 0.1), (0.12, 0.1), (0.12, 0.12), (0.12, 0.12)], 10


def main() -> None:
    """Print the table as JSON."""
    table = []
    for name, vertices, digits in cases():
        mass, first, second = polygon(vertices, digits)
        table.append({"name": name, "vertices": vertices, "mass": mass, "first": first, "second": second})
    print("[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]")


if __name__ == "__main__":
    main()
