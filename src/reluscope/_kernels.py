"""Functions that only compiled kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher


class _Inner(CPUDispatcher):
    """Says no to Python, which would jump to an entry that is not there."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.__name__} is for compiled kernels; from Python, call {self.__name__}.py_func")


def inner(function: Callable[..., Any]) -> Any:
    """A part of kernels, with IEEE division, never fastmath, and without an entry for calls from Python.

    Where a kernel is made of many small functions, those entries are a fifth of the time that it takes to compile.
    """
    compiled = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    if isinstance(compiled, CPUDispatcher):  # not with NUMBA_DISABLE_JIT
        compiled.__class__ = _Inner
    return compiled
