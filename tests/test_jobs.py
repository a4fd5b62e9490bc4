"""`jobs=`: the same answer, bit for bit, for 1, 2 and 7 workers; workers do take part; and a clean stop."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest

import reluscope as rs
from reluscope import workers
from reluscope.measure.sound import boxes


def network(*widths: int, seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    shapes = itertools.pairwise(widths)
    return rs.Network([(rng.normal(size=(m, n)) / np.sqrt(n), 0.3 * rng.normal(size=m)) for n, m in shapes])


PLANE, SPACE, FIVE = network(2, 40, 40, 1), network(3, 12, 12, 1), network(5, 10, 10, 1)
WIDE = network(2, 90, 12, 1)
CLASSES = network(4, 12, 12, 3)


def normal(d: int) -> rs.Gaussian:
    return rs.Gaussian(np.zeros(d), np.eye(d))


def regions_of(net: rs.Network, **more: Any) -> Callable[[int], Any]:
    return lambda jobs: rs.regions(net, (-2, 2), jobs=jobs, **more)


def many_batches(jobs: int) -> list[Any]:
    return [(b.pattern, b.maps) for b in rs.stream_regions(PLANE, (-3, 3), jobs=jobs)]


ROWS = np.random.default_rng(5).normal(size=(20_000, 4))
LONG = np.random.default_rng(6).normal(size=(40_000, 4))


def table(jobs: int) -> Any:
    return rs.unwrap(network(4, 10, 10, 1), ROWS, ROWS[:, 0] * ROWS[:, 1], jobs=jobs)


CALLS: dict[str, Callable[[int], Any]] = {
    "regions in the plane": regions_of(PLANE),
    "regions of a wide layer": regions_of(WIDE),
    "regions in space": regions_of(SPACE),
    "regions in five dimensions": regions_of(FIVE),
    "regions, a count of them": regions_of(PLANE, budget="700 regions"),
    "stream_regions": many_batches,
    "masses in the plane": lambda jobs: rs.regions(PLANE, law=normal(2)).masses(normal(2), jobs=jobs),
    "masses in five dimensions": lambda jobs: rs.regions(network(5, 6, 4, 1), law=normal(5)).masses(
        normal(5), rng=1, jobs=jobs
    ),
    "masses, a count of them": lambda jobs: rs.regions(network(5, 6, 4, 1), law=normal(5)).masses(
        normal(5), rng=1, budget="20 regions", jobs=jobs
    ),
    "probability, exact": lambda jobs: rs.probability(PLANE, normal(2), "y[0] > 0.2", guarantee="exact", jobs=jobs),
    "probability, exact, a count": lambda jobs: rs.probability(
        PLANE, normal(2), "y[0] > 0.2", guarantee="exact", budget="500 regions", jobs=jobs
    ),
    "probability, sound": lambda jobs: rs.probability(
        SPACE, normal(3), "y[0] > 0.5", guarantee="sound", tolerance=1e-6, budget="60000 regions", jobs=jobs
    ),
    "probability, rays": lambda jobs: rs.probability(
        FIVE, normal(5), "y[0] > 4", guarantee="confidence", budget="60s", rng=3, jobs=jobs
    ),
    "probability, boxes": lambda jobs: rs.probability(
        FIVE, normal(5), "y[0] > 1", guarantee="confidence", tolerance=1e-3, rng=3, jobs=jobs
    ),
    "outputs": lambda jobs: rs.outputs(PLANE, normal(2), jobs=jobs).cdf([0.0, 0.3]),
    "linear_models": lambda jobs: rs.linear_models(PLANE, normal(2), jobs=jobs).masses,
    "spectrum": lambda jobs: rs.spectrum(PLANE, normal(2), jobs=jobs).mean(),
    "probable, search": lambda jobs: rs.probable(network(3, 14, 14, 1), normal(3), mass=0.9, jobs=jobs),
    "probable, draws": lambda jobs: rs.probable(FIVE, normal(5), k=20, draws=60_000, rng=2, jobs=jobs),
    "change, enumeration": lambda jobs: rs.change(PLANE, normal(2), [0, 1], decision=True, jobs=jobs),
    "change, draws": lambda jobs: rs.change(FIVE, normal(5), [1, 2], draws=500_000, decision=True, rng=4, jobs=jobs),
    "change, rows": lambda jobs: rs.change(
        network(4, 64, 1), rs.Particles(np.round(LONG[:, :4], 1)), [0], how="marginal", decision=True, jobs=jobs
    ),
    "layers": lambda jobs: rs.layers(CLASSES, ROWS[:500], box=(-1, 1), rng=0, jobs=jobs),
    "certify": lambda jobs: rs.certify(
        CLASSES, np.random.default_rng(0).normal(size=(20, 4)), 0.05, budget="500 regions", jobs=jobs
    ),
    "certify, a count that ends early": lambda jobs: rs.certify(
        CLASSES, np.random.default_rng(0).normal(size=(20, 4)), 0.05, budget="133 regions", jobs=jobs
    ),
    "unwrap": lambda jobs: table(jobs)._words,
    "unwrap, models": lambda jobs: [table(jobs).coefficients, table(jobs).certificate],
    "merge": lambda jobs: [(m.C, m.d, m.cluster_of_region) for m in [table(1).merge(rng=0, most=6, jobs=jobs)]],
    "l1_path": lambda jobs: [
        (net.layers[0].weight, point)
        for path in [rs.l1_path(ROWS[:60], ROWS[:60, 0] > 0, [0.0, 0.01], hidden=(4,), epochs=4, rng=0, jobs=jobs)]
        for net, point in zip(path.networks, path.points, strict=True)
    ],
}


def plain(value: Any) -> Any:
    """All numbers of a result, however it is made; times left out."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, rs.Regions):
        return [plain(value.pattern), plain(value.maps), value.stopped, plain(value.cells.interior())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = [f.name for f in dataclasses.fields(value) if f.name not in ("seconds", "network", "net", "law")]
        return [(name, plain(getattr(value, name))) for name in kept]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return repr(value)


PROCESSES = ("l1_path",)
"""Calls whose workers are processes: slow to start."""


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_is_the_same_for_any_number_of_workers(name, monkeypatch):
    started: list[int] = []
    enter = workers._Crew.__enter__
    monkeypatch.setattr(workers._Crew, "__enter__", lambda self: (started.append(self._jobs), enter(self))[1])
    if name == "probability, sound":  # has threads of its own
        pool = boxes.ThreadPoolExecutor
        monkeypatch.setattr(boxes, "ThreadPoolExecutor", lambda n: (started.extend([n] * (n > 1)), pool(n))[1])
    one = plain(CALLS[name](1))
    assert started == []  # the thread of the caller, and nothing else
    for jobs in (2,) if name in PROCESSES else (2, 7):
        assert plain(CALLS[name](jobs)) == one
        assert started and set(started) == {jobs}  # the workers took part
        started.clear()


# -- a cluster -----------------------------------------------------------------------------------------------------


ON_A_CLUSTER = (
    "regions in the plane",
    "regions of a wide layer",
    "masses in five dimensions",
    "probability, exact",
    "probability, rays",
    "probable, draws",
    "change, draws",
    "layers",
    "certify, a count that ends early",
    "unwrap",
)


def test_a_dask_cluster_gives_the_same_answers(dask_client):
    want = {name: plain(CALLS[name](1)) for name in ON_A_CLUSTER}
    with joblib.parallel_config(backend="dask", client=dask_client):
        for name in ON_A_CLUSTER:
            assert plain(CALLS[name](2)) == want[name], name


# -- stopping ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
def test_ctrl_c_keeps_the_regions_that_were_found(jobs, threads_at_work):
    def stop(done: int, text: str) -> None:
        if done > 2000:
            raise KeyboardInterrupt

    before = threads_at_work()
    found = rs.regions(network(2, 60, 60, 1), (-3, 3), jobs=jobs, progress=stop)
    assert len(found) and not found.complete and "interrupted" in found.stopped
    until = time.monotonic() + 2
    while threads_at_work() > before + 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert threads_at_work() <= before + 1


def test_ctrl_c_keeps_the_masses_that_were_measured():
    def stop(done: int, text: str) -> None:
        if done > 20:
            raise KeyboardInterrupt

    cells = rs.regions(network(5, 6, 4, 1), law=normal(5))
    found = cells.masses(normal(5), rng=1, jobs=3, progress=stop)
    assert found.status.name == "INTERRUPTED" and (found.value > 0).sum() > 5
    assert (found.upper >= found.value).all()


def test_time_ends_the_work_of_all_workers():
    began = time.monotonic()
    found = rs.regions(network(2, 800, 800, 800, 1), (-3, 3), jobs=3, budget="0.5s")
    assert "0.5 s" in found.stopped and time.monotonic() - began < 60
