"""How kernels are compiled: those that Python calls, and the parts that only other kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

TESTED = {(0, 61), (0, 68)}
"""Versions of numba whose inside `reluscope._lean` was tested with; with others numba takes all its own steps."""


def _compiler(version: str) -> type[Compiler]:
    """The compiler for kernels with some version of numba."""
    if tuple(map(int, version.split(".")[:2])) in TESTED:
        from reluscope._lean import LeanCompiler

        return LeanCompiler
    return Compiler


_Compiler: Any = _compiler(numba.__version__)


class _Inner(CPUDispatcher):
    """Says no to Python, which would jump to an entry that is not there."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.__name__} is for compiled kernels; from Python, call {self.__name__}.py_func")


class _Part(JITCodeLibrary):
    """Code to be linked into kernels, which are optimised as a whole: here only each function for itself has been.

    It has no machine code of its own, which nobody would run. Without this, LLVM goes through every part once more for
    each function above it.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._shared_module = self._final_module.clone()
        for function in self._shared_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.linkage = "available_externally"  # no code, but the global variables stay
        super()._finalize_final_module()


class _PartCompiler(_Compiler):
    library = _Part

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _PartApart(_Part):
    """Code that stays in one place, wherever it is called from."""

    def add_ir_module(self, ir_module: Any) -> None:
        for function in ir_module.functions:
            if not function.is_declaration:
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)


class _ApartCompiler(_PartCompiler):
    library = _PartApart


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a kernel that Python calls: cached on disk, IEEE division, never fastmath; other threads go on.

    `options` are further ones of numba's `njit`.
    """
    options |= {"cache": True, "error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
    return njit(pipeline_class=_Compiler, **options)(function)


def inner(function: Callable[..., Any], **options: Any) -> Any:
    """A part of kernels, with IEEE division, never fastmath, and without an entry for calls from Python.

    Where a kernel is made of many small functions, those entries are a fifth of the time that it takes to compile.
    `options` are further ones of numba's `njit`.
    """
    return _part(function, _PartCompiler, options)


def apart(function: Callable[..., Any], **options: Any) -> Any:
    """As `inner`, for a long part that is called from more than one place: its code stays in one.

    A call takes some nanoseconds, more if many arrays are passed.
    """
    return _part(function, _ApartCompiler, options)


def _part(function: Callable[..., Any], compiler: type[_PartCompiler], options: dict[str, Any]) -> Any:
    options |= {"cache": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled = njit(pipeline_class=compiler, **options)(function)
    if isinstance(compiled, CPUDispatcher):  # not with NUMBA_DISABLE_JIT
        compiled.__class__ = _Inner
    return compiled
