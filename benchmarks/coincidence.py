"""Regions of random, degenerate and nearly degenerate networks: all geometries against one another and the truth.

Two hyperplanes that nearly coincide (down to 1e-16 apart) leave slivers that double precision loses.
Here 2,000 small networks with 2 to 8 inputs are enumerated by every geometry, in a box or (`--space`, 2 to 6 inputs)
in the whole space. Up to five inputs the truth is an enumeration in rational arithmetic; above, the geometries are
compared, and a pattern on which they differ is decided in rational arithmetic (`--rational` enumerates there too, which
takes minutes per network). An enumeration that calls itself complete must be right; one that says that regions are
missing for rounding is counted on its own. Ends with 1 if anything is different.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "cells")]

from coincident import KINDS, coincident_net, compare  # noqa: E402

MOST_RATIONAL_INPUTS = 5


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--networks", type=int, default=2000)
    options.add_argument("--first", type=int, default=0, help="number of the first network")
    options.add_argument("--rational", action="store_true", help="enumerate in rational arithmetic for every dimension")
    options.add_argument("--space", action="store_true", help="the whole space in the place of a box")
    given = options.parse_args()
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    begin = time.process_time()
    for n in range(given.first, given.first + given.networks):
        kind, inputs = KINDS[n % len(KINDS)], 2 + (n // len(KINDS)) % (5 if given.space else 7)
        rational = given.rational or inputs <= MOST_RATIONAL_INPUTS
        verdict = compare(coincident_net(kind, inputs, n), rational=rational, space=given.space)
        totals[kind] += Counter(
            networks=1,
            regions=verdict.regions,
            different=verdict.different,
            said=verdict.said,
            rational=int(rational),
        )
        if verdict.different or (n + 1) % 100 == 0:
            print(f"network {n} ({kind}, {inputs} inputs): {verdict}; {time.process_time() - begin:.0f} s", flush=True)
    print("| networks of kind | networks | enumerated in fractions | regions | different | missing and said |")
    print("|---|---|---|---|---|---|")
    for kind, t in totals.items():
        print(f"| {kind} | {t['networks']} | {t['rational']} | {t['regions']:,} | {t['different']} | {t['said']} |")
    return int(any(t["different"] for t in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
