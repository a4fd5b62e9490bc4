"""Fixtures shared by all tests."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # shells start background jobs so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_seeds_every_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without `rng=` draw their seeds from the test's name: a run that passes here passes everywhere."""
    import reluscope._check as check

    name = zlib.crc32(request.node.nodeid.encode())
    seeds = (name * 2**20 + k for k in itertools.count())
    monkeypatch.setattr(check, "fresh_seed", lambda: next(seeds))


@pytest.fixture(autouse=True)
def _no_figures_left_open() -> Iterator[None]:
    """Once a test has loaded pyplot, all pictures of the process are its figures, and it warns when they pile up."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real networks and data sets named by RELUSCOPE_DATA; the test is skipped without it."""
    folder = os.environ.get("RELUSCOPE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RELUSCOPE_DATA does not name a folder")
    return Path(folder)


@contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """A Dask cluster of so many processes on this machine, and its client."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(**options) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client


@pytest.fixture
def threads_at_work() -> Callable[[], int]:
    """How many threads there are, without worker threads that rest."""
    from reluscope.workers import _Hand

    return lambda: threading.active_count() - len(_Hand.resting)


@pytest.fixture
def local_cluster() -> Any:
    """`with local_cluster(workers) as client`: a Dask cluster of a test's own."""
    return _local_cluster


@pytest.fixture(scope="session")
def dask_client() -> Iterator[Any]:
    """A Dask cluster of two processes on this machine."""
    with _local_cluster(2) as client:
        yield client
