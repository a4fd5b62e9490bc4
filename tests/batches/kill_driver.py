"""Starts a batch again and again and kills it, each time at a random moment, until it ends by itself.

A program of its own: children come from a fork server that has the imports behind it, so that a moment is a moment of
the batch and not of the imports. Prints one JSON object: how often it was killed, and what was answered after each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import closing
from pathlib import Path


def child(table: str, results: str, jobs: int) -> None:
    os.setsid()
    from reluscope.batches.run import batch

    batch(table, results, jobs=jobs)


def answered(results: str) -> dict[str, str]:
    """Digest and moment of every answer that is in the file."""
    import sqlite3

    if not Path(results).exists():
        return {}
    try:
        with closing(sqlite3.connect(results, timeout=30)) as db:
            return dict(db.execute("SELECT digest, finished || ' ' || seconds FROM answers"))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # killed while the file was made
            return {}
        raise


def main(table: str, results: str, kills: int, most: int, jobs: int, seed: int) -> None:
    """Each run is killed when up to `most` more answers are there, and a random moment has passed; or at its start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reluscope.batches.run"])
    draw = random.Random(seed)
    runs: list[list[dict[str, str]]] = [[]]
    while sum(map(len, runs)) < kills:
        early = draw.random() < 0.2
        target = len(answered(results)) + draw.randrange(most)
        process = context.Process(target=child, args=(table, results, jobs))
        process.start()
        while process.exitcode is None and not early and len(answered(results)) < target:
            time.sleep(0.002)
        process.join(draw.uniform(0.0, 0.3 if early else 0.05))
        if process.exitcode is not None:  # it came to its end before: once more from nothing
            if process.exitcode:
                sys.exit(f"the batch ended with {process.exitcode}")
            runs.append([])
            for file in Path(results).parent.glob(f"{Path(results).name}*"):
                file.unlink()
            continue
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        runs[-1].append(answered(results))
    last = context.Process(target=child, args=(table, results, jobs))
    last.start()
    last.join()
    runs[-1].append(answered(results))
    print(json.dumps(runs))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
