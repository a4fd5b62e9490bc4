"""Numba's compiler without what the kernels of this library do not need.

Half of the time of a first call was numba's own work in Python, and LLVM reads what it wrote. Here

- types of built-in operations are looked up once for each kind of arguments (`_Remembering`);
- steps for what no kernel contains are left out;
- functions that only borrow arrays do not count references (`_Borrowing`), which makes them faster too;
- loops, entries of arrays, new arrays, `min` and `max` are written in place, in few lines (`_Lower`).

What is computed is the same, bit for bit: LLVM makes the same of numba's longer code. All of this hangs on numba's
inside, so `reluscope._kernels` uses it with the versions that it was tested with only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import gt, lt, setitem
from typing import Any

import numpy as np
from llvmlite.ir import Constant, IntType, Undefined
from numba.core import ir
from numba.core import types as numba_types
from numba.core.cgutils import alloca_once, alloca_once_value, memset, pack_array, unpack_tuple, voidptr_t
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.core.typed_passes import NativeLowering, NopythonRewrites, NopythonTypeInference
from numba.core.typing import signature
from numba.core.typing.npydecl import parse_dtype
from numba.cpython.builtins import do_minmax
from numba.np.arrayobj import fix_integer_index, load_item, store_item

types: Any = numba_types  # its names are not declared

_NOT_NEEDED = {
    "WithLifting",
    "InlineClosureLikes",
    "RewriteDynamicRaises",
    "MakeFunctionToJitFunction",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "LiteralPropagationSubPipelinePass",
    "DumpParforDiagnostics",
}
"""Steps of numba for what no kernel contains: contexts, closures, comprehensions, raised messages, `literally`."""


_ARRAYS = np.empty, np.zeros
_CHOICES = {min: lt, max: gt}


def _signature(called: Any, args: Any) -> Any:
    """Types of a call that `_Lower` writes itself, or None.

    `np.empty` and `np.zeros` of some number of integers, `min` and `max` of numbers of one kind: numba compiles a
    function of its own for each kind of arguments.
    """
    if called in _CHOICES and len(args) > 1:
        kinds = {types.unliteral(kind) for kind in args}
        if len(kinds) == 1 and isinstance(kind := kinds.pop(), types.Integer | types.Float):
            return signature(kind, *[kind] * len(args))
    if called in _ARRAYS and 1 <= len(args) <= 2:
        sizes = args[0].types if isinstance(args[0], types.BaseTuple) else args[:1]
        dtype = types.float64 if len(args) == 1 or _is_float(args[1]) else parse_dtype(args[1])
        whole = all(isinstance(size, types.Integer) for size in sizes)
        if sizes and whole and isinstance(dtype, types.Number | types.Boolean):
            return signature(types.Array(dtype, len(sizes), "C"), *args)
    return None


def _is_float(kind: Any) -> bool:
    return isinstance(kind, types.Function) and kind.typing_key is float


class _Remembering:
    """A typing context that looks up what a built-in function returns once for each kind of arguments.

    Numba goes through all that a sum may be, of texts and of sets, for every plus sign. `found` holds, by function and
    types, the signature and which implementation it stands for; numba keeps the latter with the function, where another
    compilation may have put its own since.
    """

    def __init__(self, context: Any, found: dict[Any, Any]) -> None:
        self._context, self._found = context, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        known = func if isinstance(func, types.Type) else self._context._lookup_global(func)
        return self._resolve(known, args, kws, lambda: self._context.resolve_function_type(func, args, kws))

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        known = self._context.resolve_value_type(setitem)
        return self._resolve(
            known, (target, index, value), {}, lambda: self._context.resolve_setitem(target, index, value)
        )

    def _resolve(self, function: Any, args: Any, kws: Any, ask: Callable[[], Any]) -> Any:
        if kws or not isinstance(function, types.Function):
            return ask()
        written_here = _signature(function.typing_key, args)
        if written_here is not None:
            return written_here
        key = function, tuple(args)
        if key not in self._found:
            signature = ask()
            if signature is None:
                return None
            self._found[key] = signature, function._impl_keys[signature.args]
        signature, implementation = self._found[key]
        function._impl_keys[signature.args] = implementation
        return signature

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        if not isinstance(typ, types.Module | types.BaseTuple):
            return self._context.resolve_getattr(typ, attr)
        if (typ, attr) not in self._found:
            self._found[typ, attr] = self._context.resolve_getattr(typ, attr)
        return self._found[typ, attr]


@register_pass(mutates_CFG=True, analysis_only=False)
class _TypeInference(NopythonTypeInference):
    _name = "reluscope_type_inference"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Remembering(context, _FOUND.setdefault(state.flags.copy(), {}))
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


_FOUND: dict[Any, dict[Any, Any]] = {}
"""What built-in functions return, by the options of the compilation: see `_Remembering`."""

_HANDED_ON = {"getattr", "getitem", "static_getitem", "build_tuple", "exhaust_iter", "cast"}
"""Expressions whose arrays are those of an argument, or views of them."""


@register_pass(mutates_CFG=False, analysis_only=True)
class _Borrowing(AnalysisPass):
    """A function that makes no arrays and returns none only borrows those of its caller: it need not count references.

    Counting takes half of the code that numba writes for a function with many arrays, and at run time an atomic
    operation for each array that is passed on.
    """

    _name = "reluscope_borrowing"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        models = state.targetctx.data_model_manager

        def counted(kind: Any) -> bool:
            return bool(models[kind].contains_nrt_meminfo())

        if counted(state.return_type):
            return False
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value = assignment.value
                if counted(state.typemap[assignment.target.name]) and not self._borrows(value, state.typemap):
                    return False
        state.targetctx.enable_nrt = False  # that of this function alone
        return False

    @staticmethod
    def _borrows(value: Any, typemap: Any) -> bool:
        if not isinstance(value, ir.Expr):
            return not isinstance(value, ir.Yield)
        if value.op == "call":  # a record of arrays that are there
            return isinstance(typemap[value.func.name], types.NamedTupleClass)
        return value.op in _HANDED_ON


@register_pass(mutates_CFG=True, analysis_only=False)
class _Rewrites(NopythonRewrites):
    """Numba's fusing of array expressions, where there is one."""

    _name = "reluscope_rewrites"

    def run_pass(self, state: Any) -> bool:
        arrays = {name for name, kind in state.typemap.items() if isinstance(kind, types.Array)}
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value = assignment.value
                if assignment.target.name in arrays and isinstance(value, ir.Expr) and value.op not in _HANDED_ON:
                    return bool(super().run_pass(state))
        return False


class _Lower(Lower):
    """Numba's way to write code, but shorter for what is frequent here: loops, and entries of contiguous arrays.

    LLVM would make the same of numba's own code, after reading it and taking it apart.
    """

    def delvar(self, name: str) -> None:
        if self.context.enable_nrt and self._model(self.typeof(name)).contains_nrt_meminfo():
            super().delvar(name)

    def lower_inst(self, inst: Any) -> Any:
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            return self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        return super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        builder = self.builder
        if expr.op == "static_getitem" and isinstance(self.typeof(expr.value.name), types.Array):
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, self.fndesc.calltypes[expr])
        if expr.op == "getiter" and self._is_by_one(expr.value):
            return self._start(resty, self.loadvar(expr.value.name))
        if expr.op == "iternext" and isinstance(kind := self.typeof(expr.value.name), types.RangeIteratorType):
            place, step, count = self._fields(kind, self.loadvar(expr.value.name), "iter", "step", "count")
            left, value = builder.load(count), builder.load(place)
            valid = builder.icmp_signed(">", left, left.type(0))
            with builder.if_then(valid):
                builder.store(builder.sub(left, left.type(1), flags=["nsw"]), count)
                builder.store(builder.add(value, step), place)
            return self._record(resty, first=value, second=valid)
        if expr.op in ("pair_first", "pair_second"):
            kind = self.typeof(expr.value.name)
            if isinstance(kind, types.Pair) and not self._model(kind).contains_nrt_meminfo():
                return self._fields(kind, self.loadvar(expr.value.name), expr.op[5:])[0]
        return super().lower_expr(resty, expr)

    def _lower_call_normal(self, fnty: Any, expr: Any, signature: Any) -> Any:
        called = fnty.typing_key if isinstance(fnty, types.Function) and not expr.kws and not expr.vararg else None
        if _signature(called, signature.args) != signature:
            return super()._lower_call_normal(fnty, expr, signature)
        args = [self._cast_var(*pair) for pair in zip(expr.args, signature.args, strict=True)]
        if called in _CHOICES:
            return do_minmax(self.context, self.builder, signature.args, args, _CHOICES[called])
        return self._array(signature, args[0], filled=called == np.zeros)

    def _array(self, signature: Any, size: Any, *, filled: bool) -> Any:
        """A new array."""
        context, builder, array = self.context, self.builder, signature.return_type
        kinds = signature.args[0].types if isinstance(signature.args[0], types.BaseTuple) else signature.args[:1]
        sizes = unpack_tuple(builder, size, len(kinds)) if isinstance(signature.args[0], types.BaseTuple) else [size]
        shape = [context.cast(builder, n, kind, types.intp) for n, kind in zip(sizes, kinds, strict=True)]
        item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
        total, wrong = item, Constant(IntType(1), 0)
        strides: list[Any] = []
        for n in reversed(shape):
            strides.insert(0, total)
            product = builder.smul_with_overflow(total, n)
            total = builder.extract_value(product, 0)
            wrong = builder.or_(wrong, builder.extract_value(product, 1))
            wrong = builder.or_(wrong, builder.icmp_signed("<", n, n.type(0)))
        with builder.if_then(wrong, likely=False):
            context.call_conv.return_user_exc(builder, ValueError, ("an array of that size cannot be made",))
        memory = context.nrt.meminfo_alloc_aligned(builder, total, context.get_preferred_array_alignment(array.dtype))
        data = context.nrt.meminfo_data(builder, memory)
        if filled:
            memset(builder, data, total, 0)
        return self._record(
            array,
            meminfo=memory,
            parent=Constant(voidptr_t, None),
            nitems=builder.sdiv(total, item),
            itemsize=item,
            data=builder.bitcast(data, context.get_data_type(array.dtype).as_pointer()),
            shape=pack_array(builder, shape),
            strides=pack_array(builder, strides),
        )

    def _is_by_one(self, variable: Any) -> bool:
        """Whether it is a range without a step."""
        if not isinstance(self.typeof(variable.name), types.RangeType):
            return False
        made = guard(get_definition, self.func_ir, variable)
        return isinstance(made, ir.Expr) and made.op == "call" and len(made.args) < 3 and not made.vararg

    def _start(self, kind: Any, span: Any) -> Any:
        """The iterator of a range without a step: where it is, and how many are left, as numba keeps them."""
        builder = self.builder
        first, end = builder.extract_value(span, 0), builder.extract_value(span, 1)
        place, count = alloca_once_value(builder, first), alloca_once(builder, first.type)
        left = builder.sub(end, first)
        builder.store(builder.select(builder.icmp_signed(">", left, left.type(0)), left, left.type(0)), count)
        return self._record(kind, iter=place, stop=end, step=first.type(1), count=count)

    def _model(self, kind: Any) -> Any:
        return self.context.data_model_manager[kind]

    def _fields(self, kind: Any, value: Any, *names: str) -> list[Any]:
        model = self._model(kind)
        return [self.builder.extract_value(value, model.get_field_position(name)) for name in names]

    def _record(self, kind: Any, **fields: Any) -> Any:
        model = self._model(kind)
        record = Constant(model.get_value_type(), Undefined)
        for name, value in fields.items():
            record = self.builder.insert_value(record, value, model.get_field_position(name))
        return record

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        place = self._place(value, index, signature)
        if place is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        entry = load_item(self.context, self.builder, self.typeof(value.name), place)
        return self.context.cast(self.builder, entry, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        place = self._place(target_var, index_var, signature)
        if place is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        array = self.typeof(target_var.name)
        value = self._cast_var(value_var, signature.args[2])
        value = self.context.cast(self.builder, value, signature.args[2], array.dtype)
        return store_item(self.context, self.builder, array, value, place)

    def _place(self, array_var: Any, index_var: Any, signature: Any) -> Any:
        """Where the entry is, or None if it is not a single one."""
        context, builder, array, index = self.context, self.builder, self.typeof(array_var.name), signature.args[1]
        kinds = index.types if isinstance(index, types.BaseTuple) else (index,)
        if (
            context.enable_boundscheck
            or not isinstance(array, types.Array)
            or not (array.layout == "C" and isinstance(array.dtype, types.Number | types.Boolean))
            or not (array.ndim == len(kinds) and all(isinstance(kind, types.Integer) for kind in kinds))
        ):
            return None
        data, shape = self._fields(array, self.loadvar(array_var.name), "data", "shape")
        at = self._cast_var(index_var, index)
        offset = None
        for axis, kind in enumerate(kinds):
            size = builder.extract_value(shape, axis)
            i = builder.extract_value(at, axis) if isinstance(index, types.BaseTuple) else at
            i = fix_integer_index(context, builder, kind, i, size)
            offset = i if offset is None else builder.add(builder.mul(offset, size), i)
        return builder.gep(data, [offset])


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "reluscope_lowering"

    @property
    def lowering_class(self) -> Any:
        return _Lower


@cache
def _size(kind: Any) -> int:
    """The size of a type, which LLVM reads from a module of its own each time that numba asks."""
    return int(cpu_target.target_context.get_abi_sizeof(kind))


class LeanCompiler(Compiler):
    """Numba's compiler without the steps that do nothing here, and without asking the same again."""

    def define_pipelines(self) -> Any:
        self.state.targetctx.get_abi_sizeof = _size  # that of this function alone
        return [_lean(manager) for manager in super().define_pipelines()]


def _lean(manager: Any) -> Any:
    """The same steps, but for those that are not needed."""
    lean = PassManager(manager.pipeline_name)
    for step, why in manager.passes:
        if step is NativeLowering:
            lean.add_pass(_Borrowing, "who owns the arrays")
        if step.__name__ not in _NOT_NEEDED:
            lean.add_pass(_INSTEAD.get(step, step), why)
    lean.finalize()
    return lean


_INSTEAD = {NopythonTypeInference: _TypeInference, NopythonRewrites: _Rewrites, NativeLowering: _Lowering}
