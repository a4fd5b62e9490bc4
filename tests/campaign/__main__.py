"""`python -m campaign`: many problems on all cores, counts printed; exits with 1 when anything is wrong."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from campaign.wider import KINDS, batch_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--wider", type=int, default=100, help="problems of each of the other kinds")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    began = time.monotonic()
    step = 20
    last = asked.first + asked.problems
    batches = [("events", range(i, min(i + step, last))) for i in range(asked.first, last, step)]
    for kind in asked.kinds:
        last = asked.first + asked.wider
        batches += [(kind, range(i, min(i + step, last))) for i in range(asked.first, last, step)]
    counts: Counter[str] = Counter()
    wrong = 0
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for found, lines in pool.imap(batch_of, batches):
            counts += found
            wrong += len(lines)
            for line in lines:
                print(line, flush=True)
    for name in sorted(counts):
        print(f"{counts[name]:8,}  {name}")
    more = f" and {asked.wider:,} of each of {len(asked.kinds)} other kinds" if asked.wider and asked.kinds else ""
    print(f"{asked.problems:,} problems{more}, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
