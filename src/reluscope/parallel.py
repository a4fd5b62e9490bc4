"""Threads and processes in one place.

BLAS starts a thread pool by default, which costs more than it gives on thin layers (2 to 11 times slower on two
cores). `blas_threads` pins it to one thread for the length of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

THIN = 1024
"""Layers narrower than this run faster on one BLAS thread."""


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def blas_threads(widest: int) -> Iterator[None]:
    """Pin BLAS to one thread while the widest matrix in play is narrower than `THIN`."""
    if widest >= THIN:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
