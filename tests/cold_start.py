"""A fresh process in which several threads (or children) make first calls at once: `cold_start.py HOW WORKERS SEED`.

HOW is "threads", "fork" (children copied while a thread of the parent is in its first calls), "spawn" or "loop" (an
event loop that hands calls to threads). Each worker makes the same calls in an order of its own, so that first imports
and first compilations meet in all orders. Prints how many answers there are, and how many differ between workers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import multiprocessing
import random
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import reluscope as rs

PATIENCE = 500  # seconds after which the process shows where its threads stand, and ends


def _net(*widths):
    import numpy as np

    rng = np.random.default_rng(3)
    return rs.Network([(rng.normal(size=(o, i)), 0.3 * rng.normal(size=o)) for i, o in itertools.pairwise(widths)])


def _points(n, d):
    import numpy as np

    return np.random.default_rng(1).normal(size=(n, d))


def _law(d):
    import numpy as np

    return rs.Gaussian(np.zeros(d), np.eye(d))


CALLS = {
    "regions on a line": lambda: len(rs.regions(_net(1, 4, 1), box=(-1, 1))),
    "regions in the plane": lambda: len(rs.regions(_net(2, 4, 1), box=(-1, 1))),
    "regions in space": lambda: len(rs.regions(_net(3, 4, 1), box=(-1, 1))),
    "regions in six dimensions": lambda: len(rs.regions(_net(6, 3, 1), box=(-1, 1))),
    "stream": lambda: sum(1 for _ in rs.stream_regions(_net(2, 4, 1), box=(-1, 1))),
    "complex": lambda: len(rs.polyhedral_complex(_net(2, 4, 1), box=(-1, 1)).vertices),
    "along": lambda: str(rs.along(_net(2, 4, 1), [0.0, 0.0], [1.0, 1.0])),
    "exact": lambda: rs.probability(_net(2, 4, 1), _law(2), "y > 0").value,
    "sound": lambda: rs.probability(_net(2, 4, 1), _law(2), "y > 0", guarantee="sound", budget="100 regions").lower,
    "mass": lambda: rs.mass([[1.0, 0.0]], [0.5], _law(2)).value,
    "masses": lambda: float(rs.regions(_net(2, 4, 1), law=_law(2)).masses(_law(2)).value.sum()),
    "outputs": lambda: rs.outputs(_net(2, 4, 1), _law(2)).cdf(0.3).value,
    "error rates": lambda: str(rs.error_rates(_net(2, 4, 2), [_law(2), _law(2)])),
    "linear models": lambda: len(rs.linear_models(_net(2, 4, 1), _law(2))),
    "probable": lambda: rs.probable(_net(2, 4, 1), _law(2), k=2, rng=0).mass.value,
    "support": lambda: str(rs.support(_net(2, 4, 1), _law(2))),
    "spectrum": lambda: rs.spectrum(_net(2, 4, 1), _law(2)).cdf(0.5).value,
    "change": lambda: rs.change(_net(2, 4, 1), _law(2), [0], draws=200, rng=0).linear_model.value,
    "sensitivity": lambda: float(rs.sensitivity(_net(2, 4, 1), _law(2), "y > 0").mean.value[0]),
    "compare": lambda: rs.compare(_net(2, 4, 1), _law(2), rs.Uniform([-1, -1], [1, 1]), "y > 0").difference.value,
    "witness": lambda: str(rs.witness(_net(2, 4, 1), _law(2), "y > 0").x),
    "equivalent": lambda: bool(rs.equivalent(_net(2, 4, 1), _net(2, 4, 1), box=(-1, 1))),
    "distance": lambda: str(rs.distance(_net(2, 4, 1), _net(2, 3, 1), box=(-1, 1)).value),
    "unwrap": lambda: len(rs.unwrap(_net(2, 4, 1), _points(40, 2)).table),
    "layers": lambda: str(rs.layers(_net(2, 4, 1), _points(40, 2), rng=0)),
    "kde": lambda: rs.kde(_points(5, 2)).components[0][0],
    "recover": lambda: rs.recover(_net(2, 2, 1), (-3, 3), rng=0, budget="20s").network.n_inputs,
    "particles": lambda: rs.probability(_net(2, 4, 1), rs.Particles(_points(9, 2)), "y > 0").value,
    "truncated": lambda: rs.probability(_net(2, 4, 1), rs.Truncated(_law(2), [-1, -1], [1, 1]), "y > 0").value,
}


def answers(seed: int) -> dict[str, object]:
    """All calls, in an order that the seed chooses."""
    order = list(CALLS)
    random.Random(seed).shuffle(order)
    return {name: CALLS[name]() for name in order}


def _child(seed: int, box: multiprocessing.Queue) -> None:
    _watch()
    box.put(answers(seed))


def by_threads(workers: int, seed: int) -> list[dict[str, object]]:
    gate = threading.Barrier(workers)

    def work(k: int) -> dict[str, object]:
        gate.wait()
        return answers(seed + k)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))


def by_processes(how: str, workers: int, seed: int) -> list[dict[str, object]]:
    context = multiprocessing.get_context(how)
    box = context.Queue()
    ahead = threading.Thread(target=answers, args=(seed,))
    if how == "fork":  # so that the children are copied in the middle of its first imports
        ahead.start()
    children = [context.Process(target=_child, args=(seed + k, box)) for k in range(workers)]
    for child in children:
        child.start()
    found = [box.get() for _ in children]
    for child in children:
        child.join()
    if how == "fork":
        ahead.join()
    return found


def by_loop(workers: int, seed: int) -> list[dict[str, object]]:
    async def gather() -> list[dict[str, object]]:
        return await asyncio.gather(*(asyncio.to_thread(answers, seed + k) for k in range(workers)))

    return asyncio.run(gather())


def _watch() -> None:
    """After a while, show where every thread stands and end. (The watchdog of faulthandler does not survive a fork.)"""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(PATIENCE)


if __name__ == "__main__":
    _watch()
    how, workers, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if how == "threads":
        found = by_threads(workers, seed)
    elif how == "loop":
        found = by_loop(workers, seed)
    else:
        found = by_processes(how, workers, seed)
    differ = sum(any(str(other[name]) != str(found[0][name]) for other in found) for name in CALLS)
    print(len(found), "workers,", len(CALLS), "calls,", differ, "differ")
