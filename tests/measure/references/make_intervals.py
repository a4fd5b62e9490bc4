"""Reference masses, logarithms and moments of intervals with mpmath (400 digits against the cancellation).

Run: python make_intervals.py > intervals.json (a few seconds)
"""

from __future__ import annotations

import json
import random

import mpmath as mp

mp.mp.dps = 400


def upper_tail(x: mp.mpf) -> mp.mpf:
    """Q(x)."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def row(a: float, b: float) -> dict[str, object]:
    """Exact values for the float64 end points a and b."""
    left, right = mp.mpf(a), mp.mpf(b)
    mass = upper_tail(left) - upper_tail(right) if a > 0 else upper_tail(-right) - upper_tail(-left)
    first = mp.npdf(left) - mp.npdf(right)
    second = mass + left * mp.npdf(left) - right * mp.npdf(right)
    values = {"mass": mass, "log": mp.log(mass), "first": first, "second": second}
    return {"a": a, "b": b} | {name: mp.nstr(value, 20) for name, value in values.items()}


def main() -> None:
    """Print the table as JSON."""
    rng = random.Random(3)
    table = []
    for scale in (0.1, 1.0, 3.0, 10.0, 36.0):
        for _ in range(40):
            a = rng.uniform(-1, 1) * scale
            b = a + rng.choice([10 ** rng.uniform(-15, 1.2), rng.uniform(0, 3)])
            if a < b and max(a, -b) < 36.5:
                table.append(row(a, b))
    for a, b in (
        (-1.0, 1.0),
        (-1e-3, 1e-3),
        (0.0, 1e-300),
        (36.9, 37.0),
        (-0.5, 0.7),
        (0.0, 1.2),
        (2.0, 2.0 + 4.4e-16),
    ):
        table.append(row(a, b))
    print("[\n" + ",\n".join(json.dumps(entry) for entry in table) + "\n]")


if __name__ == "__main__":
    main()
