"""Reference masses of tetrahedra with mpmath: Gauss rules in z over slices from `make_polygons.polygon`.

The slicing direction is always z, whatever the cell, and each piece between vertices gets 24 to 60 nodes.
Run: python make_polyhedra.py > polyhedra.json (some minutes)
"""

from __future__ import annotations

import json
from itertools import pairwise

import mpmath as mp
from make_polygons import gauss_rule, polygon

CASES = [
    ("around the origin", [(-1.0, -1.2, -0.7), (2.0, 0.1, -0.4), (-0.3, 1.9, 0.2), (0.2, -0.1, 1.6)], 1, 0),
    ("beside the origin", [(0.5, 0.25, 0.0), (1.75, 0.5, 0.25), (0.5, 1.75, 0.5), (0.75, 0.5, 1.5)], 1, 5),
    ("far", [(5.0, 4.0, 3.0), (6.0, 4.5, 3.5), (5.0, 5.5, 4.0), (5.5, 4.5, 5.0)], 2, 30),
    ("very far", [(9.0, 8.0, 9.0), (12.0, 8.5, 9.5), (9.0, 11.5, 9.0), (9.5, 8.5, 13.0)], 4, 110),
    ("thin", [(0.0, 0.0, 0.5), (2.0, 0.25, 0.75), (0.25, 2.0, 1.0), (0.75, 0.75, 0.75 + 2.0**-14)], 1, 10),
    ("small", [(1.0, 1.0, 1.0), (1.0078125, 1.0, 1.0), (1.0, 1.0078125, 1.0), (1.0, 1.0, 1.0078125)], 1, 20),
]


def slice_of(points, level):
    """Corners of a tetrahedron at height `level`, counter-clockwise."""
    corners = []
    for i in range(4):
        for j in range(4):
            if points[i][2] < level < points[j][2]:
                t = (level - points[i][2]) / (points[j][2] - points[i][2])
                corners.append(tuple(points[i][d] + t * (points[j][d] - points[i][d]) for d in range(2)))
    cx, cy = sum(c[0] for c in corners) / len(corners), sum(c[1] for c in corners) / len(corners)
    return sorted(corners, key=lambda c: mp.atan2(c[1] - cy, c[0] - cx))


def main() -> None:
    """Print the table as JSON."""
    table = []
    for name, vertices, pieces, digits in CASES:
        mp.mp.dps = 40
        rule = gauss_rule(24)
        points = [tuple(mp.mpf(c) for c in v) for v in vertices]
        levels = sorted({p[2] for p in points})
        total = mp.mpf(0)
        for low, high in pairwise(levels):
            for k in range(pieces):
                for x, w in rule:
                    level = low + (high - low) * (k + x) / pieces
                    mass = mp.mpf(polygon(slice_of(points, level), digits)[0])
                    total += w * (high - low) / pieces * mp.npdf(level) * mass
        table.append({"name": name, "vertices": vertices, "mass": mp.nstr(total, 17)})
    print("[\n" + ",\n".join(json.dumps(entry) for entry in table) + "\n]")


if __name__ == "__main__":
    main()
