"""Operations of PyTorch in the words of our graph: how a trace of `torch.fx` becomes a network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reluscope._check import FloatArray, real_array
from reluscope.activations import Activation, absolute, clip, hard_sigmoid, leaky_relu, relu, relu6
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.formats._rules import TORCH, Registered, call_rule, check_activation, said_of, warn_of
from reluscope.formats._terms import Window
from reluscope.formats.graph import Comparison, GraphBuilder, Tensor
from reluscope.limits import Limits
from reluscope.network import Network


def to_numpy(torch: Any, value: Any, name: str) -> Any:
    if value.is_complex() or value.is_quantized:
        raise UnsupportedError(f"{name} holds {value.dtype}, not real numbers")
    value = value.detach().cpu()
    if value.is_sparse:
        value = value.to_dense()
    if value.is_floating_point():
        value = value.to(torch.float64)
    return value.numpy()


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]


def kind_of(module: Any) -> str:
    """Name of the torch class a module is, also under parametrisations."""
    for c in type(module).__mro__:
        if c.__module__.startswith("torch.nn.modules."):
            return str(c.__name__)
    return type(module).__name__


class Translation:
    """Runs the nodes of a trace: symbolic tensors through our own operations, constants through torch's."""

    def __init__(self, torch: Any, traced: Any, limits: Limits) -> None:
        self.torch, self.traced = torch, traced
        self.modules = dict(traced.named_modules())
        self.graph = GraphBuilder(limits)
        self.values: dict[Any, Any] = {}
        self.cut: list[str] = []
        self.added: dict[str, str] = {}  # operations with a rule of the user's, and what is said of them

    def run(self, shape: tuple[int, ...], name: str) -> tuple[Network, bool]:
        seen = False
        result: Any = None
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                if seen and not node.args:
                    raise InputError(f"{name} takes several inputs; wrap it in a module that takes one")
                self.values[node] = node.args[0] if seen else self.graph.input((1, *shape))
                seen = True
            elif node.op == "output":
                result = self._resolve(node.args[0])
            else:
                self._step(node)
            for used in node.all_input_nodes:
                if list(used.users)[-1] is node:
                    self.values.pop(used, None)
        result = self._one_output(result, name)
        inside = result.shape[1:] if len(result.shape) > 1 and result.shape[0] == 1 else result.shape
        notes = [f"final {op} cut off: outputs are logits" for op in self.cut]
        said = [*notes, *self.added.values()]
        net = self.graph.build(result, name=name, input_shape=shape, output_shape=inside or (1,), notes=said)
        warn_of(net, self.added)
        for note in notes:
            warnings.warn(f"{name}: {note}", ReluscopeWarning, stacklevel=5)
        return net, bool(self.cut)

    def _one_output(self, result: Any, name: str) -> Tensor:
        while isinstance(result, (tuple, list)) and len(result) == 1:
            result = result[0]
        if isinstance(result, (tuple, list, dict)):
            raise InputError(f"{name} returns {len(result)} outputs; wrap it in a module that returns one")
        if isinstance(result, Comparison):
            raise UnsupportedError(f"{name} returns truth values, which jump")
        if not isinstance(result, Tensor):
            raise InputError(f"{name} returns something that does not depend on its input")
        return result

    def _resolve(self, arguments: Any) -> Any:
        return self.torch.fx.node.map_arg(arguments, lambda n: self.values[n])

    def _step(self, node: Any) -> None:
        args, kwargs = self._resolve(node.args), self._resolve(node.kwargs)
        self.graph.at(*self._source(node))
        try:
            self.values[node] = self._value(node, args, kwargs)
        except UnsupportedError as error:
            said = str(error)
            raise UnsupportedError(said if _where(node) in said else f"{_where(node)}: {said}") from error
        except InputError as error:
            raise type(error)(f"{_where(node)}: {error}") from error
        except Exception as error:
            raise UnsupportedError(f"{_where(node)} cannot be translated: {first_line(error)}") from error

    def _source(self, node: Any) -> tuple[str, str]:
        """The name of a node in the user's words (a function is named with what it is applied to), and what it does."""
        if node.op == "call_module":
            own = type(self.modules[node.target]).__name__
            return str(node.target), own if own in TORCH else kind_of(self.modules[node.target])
        function = node.target if isinstance(node.target, str) else node.target.__name__
        of = next((n for n in node.all_input_nodes if n.op == "call_module"), None)
        return f"{node.name}({of.target})" if of is not None else str(node.name), str(function)

    def _value(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.op == "get_attr":
            value: Any = self.traced
            for part in str(node.target).split("."):
                value = getattr(value, part)
            return self._constant(value)
        if not any(isinstance(a, (Tensor, Comparison)) for a in _flat((args, kwargs))):
            return self._on_constants(node, args, kwargs)
        mine = self._registered(node)
        if mine is not None:
            return self._by_rule(node, *mine, args, kwargs)
        if node.op == "call_module":
            module = self.modules[node.target]
            name = kind_of(module)
            apply = MODULES.get(name) or MODULES.get(without_dimension(name))
            handler: Callable[..., Any] | None = None if apply is None else partial(apply, self, module)
            inplace = bool(getattr(module, "inplace", False))
        else:
            name = node.target if node.op == "call_method" else node.target.__name__
            ours = node.op == "call_method" or _is_torchs(node.target)
            inplace = name.endswith("_") and not name.startswith("_")
            name = without_dimension(name.strip("_"))
            name = ALIASES.get(name, name)
            kwargs = dict(kwargs)
            if "input" in kwargs:
                args = (kwargs.pop("input"), *args)
            if "other" in kwargs:
                args = (*args, kwargs.pop("other"))
            inplace = bool(kwargs.pop("inplace", False)) or inplace
            handler = getattr(self, f"_f_{name}", None) if ours else None
        if handler is None:
            return self._cut_or_refuse(node, name, args)
        result = handler(*args, **kwargs)
        if inplace:
            self._in_place(args, result)
        return result

    def _in_place(self, args: tuple[Any, ...], result: Any) -> None:
        """Later readers of the same tensor see the new values."""
        if isinstance(result, Tensor):
            before = next(a for a in args if isinstance(a, Tensor))
            for other, value in self.values.items():
                if value is before:
                    self.values[other] = result

    def _registered(self, node: Any) -> tuple[str, Registered] | None:
        """The name and rule that the user has registered for a node, if there is one."""
        if node.op == "call_module":
            module = self.modules[node.target]
            names = [type(module).__name__, kind_of(module)]
        else:
            names = [node.target if isinstance(node.target, str) else node.target.__name__]
        return next(((n, TORCH[n]) for n in names if n in TORCH), None)

    def _by_rule(self, node: Any, name: str, mine: Registered, args: Any, kwargs: Any) -> Any:
        """A node by a rule of the user's: an activation is compared with the node itself."""
        torch, where = self.torch, _where(node)
        module = self.modules[node.target] if node.op == "call_module" else None
        if isinstance(mine.rule, Activation):
            rest = args[1:]

            def run(x: FloatArray) -> FloatArray:
                import copy

                given = torch.from_numpy(x.copy())  # an operation in place changes it
                if module is not None:
                    return to_numpy(torch, copy.deepcopy(module).double()(given), where)
                if node.op == "call_method":
                    return to_numpy(torch, getattr(given, node.target)(*rest, **kwargs), where)
                return to_numpy(torch, node.target(given, *rest, **kwargs), where)

            with torch.no_grad():
                check_activation(mine, run, where)
        attributes = dict(kwargs)
        if module is not None:
            attributes |= {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
            attributes |= dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
        operands = [self._plain(a) for a in args]
        made = call_rule(mine, self.graph, operands, {k: self._plain(v) for k, v in attributes.items()}, where)
        self.added[name] = said_of(name, mine)
        if attributes.get("inplace"):
            self._in_place(args, made)
        return made

    def _plain(self, value: Any) -> Any:
        return to_numpy(self.torch, value, "a constant") if isinstance(value, self.torch.Tensor) else value

    def _constant(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor):
            value = value.detach().cpu().clone()
            return value.to(self.torch.float64) if value.is_floating_point() else value
        return value

    def _on_constants(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.torch.no_grad():
            if node.op == "call_function":
                return node.target(*args, **kwargs)
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            import copy

            return copy.deepcopy(self.modules[node.target]).double()(*args, **kwargs)

    def _cut_or_refuse(self, node: Any, name: str, args: tuple[Any, ...]) -> Any:
        final = _FINAL.get(name)
        if final is not None and self._ends(node):
            self.cut.append(final)
            return next(a for a in args if isinstance(a, Tensor))
        cut = "it may stand at the very end, where it is cut off"
        hint = cut if final else "rs.formats.register_operation teaches load one more"
        raise UnsupportedError(f"{_where(node)} is {name}, which is not a known piecewise-affine operation; {hint}")

    def _ends(self, node: Any) -> bool:
        """Whether only data movement lies between this node and the output."""
        todo = [node]
        while todo:
            for user in todo.pop().users:
                if user.op == "output":
                    continue
                if user.op == "call_module":
                    moves = kind_of(self.modules[user.target]) in _MOVES
                else:
                    name = user.target if isinstance(user.target, str) else user.target.__name__
                    moves = name in _MOVES
                if not moves:
                    return False
                todo.append(user)
        return True

    # -- constants and shapes --

    def _array(self, value: Any, name: str = "a constant") -> FloatArray:
        return real_array(to_numpy(self.torch, value, name) if hasattr(value, "detach") else value, name)

    def _operand(self, value: Any) -> Any:
        return value if isinstance(value, Tensor) else self._array(value)

    def _pads(self, padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
        if padding == "valid":
            padding = 0
        if padding == "same":
            total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
            return [t // 2 for t in total] + [t - t // 2 for t in total]
        return [*_tuple(padding, len(kernel))] * 2

    def _window(
        self, size: Any, n: int, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Window:
        kernel, dilations = _tuple(size, n), _tuple(dilation, n)
        strides = _tuple(kernel if stride is None or stride == [] else stride, n)
        return Window(kernel, strides, self._pads(padding, kernel, dilations), dilations, bool(ceil_mode))

    # -- affine modules and functions --

    def _f_linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        y = self.graph.matmul(x, self._array(weight).T)
        return y if bias is None else self.graph.add(y, self._array(bias))

    def _f_conv(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        W = self._array(weight)
        window = self._window(W.shape[2:], W.ndim - 2, stride, padding, dilation)
        return self.graph.conv(x, W, None if bias is None else self._array(bias), window, int(groups))

    def _convolution(self, m: Any, x: Any) -> Any:
        padding = m.padding
        if m.padding_mode != "zeros":
            pads = self._pads(padding, m.kernel_size, m.dilation)
            n = len(m.kernel_size)
            around = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
            x, padding = self._f_pad(x, around, m.padding_mode), 0
        return self._f_conv(x, m.weight, m.bias, m.stride, padding, m.dilation, m.groups)

    def _f_conv_transpose(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        W = self._array(weight)
        window = self._window(W.shape[2:], W.ndim - 2, stride, padding, dilation)
        b = None if bias is None else self._array(bias)
        return self.graph.conv_transpose(x, W, b, window, int(groups), _tuple(output_padding, W.ndim - 2))

    def _f_batch_norm(
        self,
        x: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        if training or running_mean is None or running_var is None:
            raise UnsupportedError("a batch norm without running statistics depends on the whole batch")
        mean, var = self._array(running_mean), self._array(running_var)
        scale = np.ones(len(mean)) if weight is None else self._array(weight)
        shift = np.zeros(len(mean)) if bias is None else self._array(bias)
        return self.graph.batch_norm(x, scale, shift, mean, var, float(eps))

    def _f_add(self, a: Any, b: Any, *, alpha: float = 1) -> Any:
        return self.graph.add(self._operand(a), self._times(b, alpha))

    def _f_sub(self, a: Any, b: Any, *, alpha: float = 1) -> Any:
        return self.graph.subtract(self._operand(a), self._times(b, alpha))

    def _f_rsub(self, a: Any, b: Any, *, alpha: float = 1) -> Any:
        return self._f_sub(b, a, alpha=alpha)

    def _times(self, b: Any, alpha: float) -> Any:
        return self._operand(b) if alpha == 1 else self._f_mul(b, alpha)

    def _f_mul(self, a: Any, b: Any) -> Any:
        for mask, value in ((a, b), (b, a)):
            if isinstance(mask, Comparison):
                return self._f_where(mask, value, 0.0)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            raise UnsupportedError("a product of two values that both depend on the input is not piecewise affine")
        t, factor = (a, b) if isinstance(a, Tensor) else (b, a)
        by = self._array(factor)
        return self.graph.scale(t, by) if isinstance(t, Tensor) else self._array(t) * by

    def _f_truediv(self, a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
        if isinstance(b, Tensor) or rounding_mode is not None:
            raise UnsupportedError("division by a value that depends on the input is not piecewise affine")
        return self.graph.scale(a, 1.0 / self._array(b))

    def _f_neg(self, x: Any) -> Any:
        return self.graph.scale(x, -1.0)

    def _f_matmul(self, a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            raise UnsupportedError("a product of two values that both depend on the input is not piecewise affine")
        if isinstance(a, Tensor):
            return self.graph.matmul(a, self._array(b))
        return self.graph.matmul_left(self._array(a), b)

    def _f_addmm(self, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        return self.graph.add(self._times(c, beta), self._times(self._f_matmul(a, b), alpha))

    def _f_mean(self, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return self.graph.reduce_mean(x, _axes(dim), bool(keepdim))

    def _f_sum(self, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return self.graph.reduce_sum(x, _axes(dim), bool(keepdim))

    # -- pooling --

    def _f_avg_pool(
        self,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        if divisor_override is not None:
            raise UnsupportedError("average pooling with divisor_override is not known")
        window = self._window(kernel_size, len(x.shape) - 2, stride, padding, 1, ceil_mode)
        return self.graph.average_pool(x, window, bool(count_include_pad))

    def _f_max_pool(
        self,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if return_indices:
            raise UnsupportedError("max pooling that returns indices is not known")
        window = self._window(kernel_size, len(x.shape) - 2, stride, padding, dilation, ceil_mode)
        return self.graph.max_pool(x, window)

    def _adaptive(self, x: Any, output_size: Any, pool: Callable[..., Any]) -> Any:
        spatial = x.shape[2:]
        sizes = [s if o is None else int(o) for o, s in zip(_tuple(output_size, len(spatial)), spatial, strict=True)]
        if any(s % o for o, s in zip(sizes, spatial, strict=True)):
            raise UnsupportedError(f"adaptive pooling from {spatial} to {tuple(sizes)} has windows of unequal size")
        return pool(x, tuple(s // o for o, s in zip(sizes, spatial, strict=True)))

    def _f_adaptive_avg_pool(self, x: Any, output_size: Any) -> Any:
        return self._adaptive(x, output_size, self._f_avg_pool)

    def _f_adaptive_max_pool(self, x: Any, output_size: Any, return_indices: bool = False) -> Any:
        return self._adaptive(x, output_size, lambda t, k: self._f_max_pool(t, k, return_indices=return_indices))

    # -- activations --

    def _f_relu(self, x: Any) -> Any:
        return self.graph.activate(x, relu())

    def _f_relu6(self, x: Any) -> Any:
        return self.graph.activate(x, relu6())

    def _f_leaky_relu(self, x: Any, negative_slope: float = 0.01) -> Any:
        return self.graph.activate(x, leaky_relu(float(negative_slope)))

    def _f_rrelu(self, x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
        if training:
            raise UnsupportedError("a randomised leaky ReLU in training mode is random")
        return self._f_leaky_relu(x, (lower + upper) / 2)

    def _f_prelu(self, x: Any, weight: Any) -> Any:
        slopes = self._array(weight).ravel()
        each = np.array([leaky_relu(s) for s in slopes.tolist()], dtype=object)
        if len(each) > 1 or len(x.shape) > 1:
            each = each.reshape(-1, *(1,) * (len(x.shape) - 2))  # channels are axis 1
        return self.graph.activate(x, each)

    def _f_hardtanh(self, x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
        return self.graph.activate(x, clip(float(min_val), float(max_val)))

    def _f_hardsigmoid(self, x: Any) -> Any:
        return self.graph.activate(x, hard_sigmoid())

    def _f_threshold(self, x: Any, threshold: float, value: float) -> Any:
        if threshold != value:
            raise UnsupportedError(f"Threshold jumps from {value} to {threshold}; only continuous units are known")
        return self.graph.activate(x, clip(float(threshold), math.inf))

    def _f_softshrink(self, x: Any, lambd: float = 0.5) -> Any:
        act = Activation((-lambd, lambd), (1.0, 0.0, 1.0), (lambd, 0.0, -lambd), f"softshrink({lambd:g})")
        return self.graph.activate(x, act)

    def _f_abs(self, x: Any) -> Any:
        return self.graph.activate(x, absolute())

    def _f_clamp(self, x: Any, min: Any = None, max: Any = None) -> Any:
        numbers = all(v is None or isinstance(v, (int, float)) for v in (min, max))
        if numbers and isinstance(x, Tensor):
            low, high = (-math.inf if min is None else float(min)), (math.inf if max is None else float(max))
            if low < high:
                return self.graph.activate(x, clip(low, high))
        if min is not None:
            x = self._f_maximum(x, min)
        return x if max is None else self._f_minimum(x, max)

    def _f_clamp_min(self, x: Any, min: Any) -> Any:
        return self._f_maximum(x, min)

    def _f_clamp_max(self, x: Any, max: Any) -> Any:
        return self._f_minimum(x, max)

    def _f_maximum(self, a: Any, b: Any) -> Any:
        return self.graph.maximum(self._operand(a), self._operand(b))

    def _f_minimum(self, a: Any, b: Any) -> Any:
        return self.graph.minimum(self._operand(a), self._operand(b))

    def _f_max(self, a: Any, *rest: Any, **named: Any) -> Any:
        return self._extreme(self.graph.reduce_max, self._f_maximum, a, rest, named)

    def _f_min(self, a: Any, *rest: Any, **named: Any) -> Any:
        return self._extreme(self.graph.reduce_min, self._f_minimum, a, rest, named)

    def _extreme(self, over: Any, between: Any, a: Any, rest: Any, named: Any) -> Any:
        """`max(a, b)`, `max(a)`, or `max(a, dim)`, which gives values and their indices."""
        if len(rest) == 1 and not isinstance(rest[0], int) and not named:
            return between(a, rest[0])
        named = dict(zip(("dim", "keepdim"), rest, strict=False)) | named
        if not named:
            return over(a, None)
        return _Extremes(over(a, [int(named["dim"])], bool(named.get("keepdim", False))))

    def _f_amax(self, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
        return self.graph.reduce_max(x, _axes(dim), bool(keepdim))

    def _f_amin(self, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
        return self.graph.reduce_min(x, _axes(dim), bool(keepdim))

    # -- choices --

    def _f_gt(self, a: Any, b: Any) -> Any:
        return self.graph.compare(self._operand(a), self._operand(b), True)

    def _f_ge(self, a: Any, b: Any) -> Any:
        return self.graph.compare(self._operand(a), self._operand(b), False)

    def _f_lt(self, a: Any, b: Any) -> Any:
        return self._f_gt(b, a)

    def _f_le(self, a: Any, b: Any) -> Any:
        return self._f_ge(b, a)

    def _f_where(self, condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition, Comparison):
            return self.graph.select(condition, self._operand(a), self._operand(b))
        chosen = self._array(condition) != 0
        first, second = self.graph.scale(self._operand(a), chosen.astype(float)), self._operand(b)
        return self.graph.add(first, self.graph.scale(second, (~chosen).astype(float)))

    def _f_masked_fill(self, x: Any, mask: Any, value: Any) -> Any:
        return self._f_where(mask, value, x)

    # -- data movement --

    def _same(self, x: Any, *details: Any, **named: Any) -> Any:
        for dtype in (*details, *named.values()):
            if isinstance(dtype, self.torch.dtype) and not dtype.is_floating_point:
                raise UnsupportedError(f"a conversion to {dtype} rounds, which is not piecewise affine")
        return x

    _f_contiguous = _f_clone = _f_detach = _f_float = _f_double = _f_to = _f_type_as = _f_type = _f_cpu = _same
    _f_requires_grad = _same

    def _f_dropout(self, x: Any, p: float = 0.5, training: bool = True) -> Any:
        if training:
            raise UnsupportedError("dropout is on in evaluation mode (training=True), so the output is random")
        return x

    def _f_reshape(self, x: Any, *shape: Any) -> Any:
        wanted = [int(n) for n in (shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)]
        return self.graph.apply_move(x, lambda i: i.reshape(wanted))

    def _f_flatten(self, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
        n = max(len(x.shape), 1)
        first, last = start_dim % n, end_dim % n
        shape = x.shape or (1,)
        return self.graph.reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))

    def _f_unflatten(self, x: Any, dim: int, sizes: Any) -> Any:
        at = dim % len(x.shape)
        wanted = (*x.shape[:at], *(int(n) for n in sizes), *x.shape[at + 1 :])
        return self.graph.apply_move(x, lambda i: i.reshape(wanted))

    def _f_permute(self, x: Any, *dims: Any) -> Any:
        axes = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        return self.graph.apply_move(x, lambda i: i.transpose([int(a) for a in axes]))

    def _f_transpose(self, x: Any, dim0: int, dim1: int) -> Any:
        return self.graph.apply_move(x, lambda i: i.swapaxes(dim0, dim1))

    def _f_t(self, x: Any) -> Any:
        return self.graph.apply_move(x, lambda i: i.T)

    def _f_movedim(self, x: Any, source: Any, destination: Any) -> Any:
        return self.graph.apply_move(x, lambda i: np.moveaxis(i, source, destination))

    def _f_squeeze(self, x: Any, dim: Any = None) -> Any:
        chosen = range(len(x.shape)) if dim is None else [d % len(x.shape) for d in _tuple(dim, None)]
        shape = [n for i, n in enumerate(x.shape) if not (i in chosen and n == 1)]
        return self.graph.reshape(x, shape)

    def _f_unsqueeze(self, x: Any, dim: int) -> Any:
        return self.graph.apply_move(x, lambda i: np.expand_dims(i, dim))

    def _f_expand(self, x: Any, *sizes: Any) -> Any:
        wanted = [int(n) for n in (sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)]
        missing = len(wanted) - len(x.shape)
        full = [n if n != -1 else x.shape[k - missing] for k, n in enumerate(wanted)]
        return self.graph.apply_move(x, lambda i: np.broadcast_to(i, full))

    def _f_repeat(self, x: Any, *sizes: Any) -> Any:
        times = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        return self.graph.apply_move(x, lambda i: np.tile(i, [int(n) for n in times]))

    def _f_flip(self, x: Any, *dims: Any) -> Any:
        axes = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        return self.graph.apply_move(x, lambda i: np.flip(i, tuple(axes)))

    def _f_roll(self, x: Any, shifts: Any, dims: Any = None) -> Any:
        return self.graph.apply_move(x, lambda i: np.roll(i, shifts, dims))

    def _f_narrow(self, x: Any, dim: int, start: int, length: int) -> Any:
        return self.graph.apply_move(x, lambda i: np.take(i, np.arange(start, start + length), axis=dim))

    def _f_select(self, x: Any, dim: int, index: int) -> Any:
        return self.graph.apply_move(x, lambda i: np.take(i, index, axis=dim))

    def _f_index_select(self, x: Any, dim: int, index: Any) -> Any:
        return self.graph.apply_move(x, lambda i: np.take(i, index.numpy(), axis=dim))

    def _f_getitem(self, x: Any, index: Any) -> Any:
        if not isinstance(x, Tensor):
            return x[index]
        parts = index if isinstance(index, tuple) else (index,)
        plain = tuple(p.numpy() if hasattr(p, "numpy") else p for p in parts)
        return self.graph.apply_move(x, lambda i: i[plain])

    def _f_cat(self, tensors: Any, dim: int = 0) -> Any:
        return self.graph.concat([self._operand(t) for t in tensors], int(dim))

    def _f_stack(self, tensors: Any, dim: int = 0) -> Any:
        parts = [self.graph.add(self._operand(t), 0.0) for t in tensors]
        return self.graph.concat([self._f_unsqueeze(t, dim) for t in parts], int(dim))

    def _f_chunk(self, x: Any, chunks: int, dim: int = 0) -> Any:
        return self._f_split(x, -(-x.shape[dim] // int(chunks)), dim)

    def _f_split(self, x: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
        total = x.shape[dim]
        if isinstance(split_size_or_sections, int):
            step = split_size_or_sections
            sizes = [min(step, total - i) for i in range(0, total, step)]
        else:
            sizes = [int(n) for n in split_size_or_sections]
        starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        return tuple(self._f_narrow(x, dim, a, n) for a, n in zip(starts, sizes, strict=False))

    def _f_unbind(self, x: Any, dim: int = 0) -> Any:
        return tuple(self._f_select(x, dim, i) for i in range(x.shape[dim]))

    def _f_pad(self, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        pads = [int(p) for p in pad]
        width = [(0, 0)] * (len(x.shape) - len(pads) // 2)
        width += [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
        cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(width, x.shape, strict=True))
        around = [(max(a, 0), max(b, 0)) for a, b in width]
        index = np.arange(math.prod(x.shape)).reshape(x.shape)[cut]
        if mode in ("constant", "zeros"):
            return self.graph.move(x, np.pad(index, around, constant_values=-1), float(value or 0.0))
        kinds = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
        if mode not in kinds:
            raise UnsupportedError(f"padding mode {mode!r} is not known")
        return self.graph.move(x, np.pad(index, around, mode=kinds[mode]))  # type: ignore[call-overload]

    def _f_size(self, x: Any, dim: int | None = None) -> Any:
        return tuple(x.shape) if dim is None else x.shape[dim]

    def _f_dim(self, x: Any) -> int:
        return len(x.shape)

    def _f_numel(self, x: Any) -> int:
        return math.prod(x.shape)

    def _f_getattr(self, x: Any, name: str) -> Any:
        if name == "shape":
            return tuple(x.shape)
        if isinstance(x, _Extremes):
            return x[("values", "indices").index(name)]
        if name in ("T", "mT"):
            return self._f_t(x) if name == "T" else self._f_transpose(x, -1, -2)
        if name == "ndim":
            return len(x.shape)
        if name in ("device", "dtype"):
            return self.torch.device("cpu") if name == "device" else self.torch.float64
        if name == "data":
            return x
        raise UnsupportedError(f"the attribute {name} of a tensor is not known")


ALIASES = {
    "view": "reshape", "absolute": "abs", "negative": "neg", "clip": "clamp", "subtract": "sub", "multiply": "mul",
    "div": "truediv", "divide": "truediv", "true_divide": "truediv", "mm": "matmul", "bmm": "matmul", "mv": "matmul",
    "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
    "tile": "repeat", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv", "ndimension": "dim",
    "alpha_dropout": "dropout", "feature_dropout": "dropout", "feature_alpha_dropout": "dropout",
}  # fmt: skip
_FINAL = {
    "Softmax": "Softmax", "softmax": "Softmax", "LogSoftmax": "LogSoftmax", "log_softmax": "LogSoftmax",
    "Sigmoid": "Sigmoid", "sigmoid": "Sigmoid",
}  # fmt: skip
_MOVES = frozenset(
    (
        "Identity", "Flatten", "Unflatten", "Dropout", "reshape", "view", "flatten", "unflatten", "squeeze",
        "unsqueeze", "permute", "transpose", "t", "contiguous", "clone", "detach", "getitem", "float", "double", "to",
    )
)  # fmt: skip
"""What may stand behind a final Softmax that is cut off."""


def without_dimension(name: str) -> str:
    """`Conv2d` -> `Conv`: the operations are the same in every dimension."""
    return name[:-2] if name[-2:] in ("1d", "2d", "3d") else name


def _same(t: Translation, m: Any, x: Any) -> Any:
    return x


MODULES: dict[str, Callable[[Translation, Any, Any], Any]] = {
    "Linear": lambda t, m, x: t._f_linear(x, m.weight, m.bias),
    "Conv": lambda t, m, x: t._convolution(m, x),
    "ConvTranspose": lambda t, m, x: t._f_conv_transpose(
        x, m.weight, m.bias, m.stride, m.padding, m.output_padding, m.groups, m.dilation
    ),
    "BatchNorm": lambda t, m, x: t._f_batch_norm(x, m.running_mean, m.running_var, m.weight, m.bias, False, 0.0, m.eps),
    "AvgPool": lambda t, m, x: t._f_avg_pool(
        x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad, getattr(m, "divisor_override", None)
    ),
    "MaxPool": lambda t, m, x: t._f_max_pool(
        x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
    ),
    "AdaptiveAvgPool": lambda t, m, x: t._f_adaptive_avg_pool(x, m.output_size),
    "AdaptiveMaxPool": lambda t, m, x: t._f_adaptive_max_pool(x, m.output_size, m.return_indices),
    "ReLU": lambda t, m, x: t._f_relu(x),
    "ReLU6": lambda t, m, x: t._f_relu6(x),
    "LeakyReLU": lambda t, m, x: t._f_leaky_relu(x, m.negative_slope),
    "RReLU": lambda t, m, x: t._f_rrelu(x, m.lower, m.upper),
    "PReLU": lambda t, m, x: t._f_prelu(x, m.weight),
    "Hardtanh": lambda t, m, x: t._f_hardtanh(x, m.min_val, m.max_val),
    "Hardsigmoid": lambda t, m, x: t._f_hardsigmoid(x),
    "Threshold": lambda t, m, x: t._f_threshold(x, m.threshold, m.value),
    "Softshrink": lambda t, m, x: t._f_softshrink(x, float(m.lambd)),
    "Flatten": lambda t, m, x: t._f_flatten(x, m.start_dim, m.end_dim),
    "Unflatten": lambda t, m, x: t._f_unflatten(x, m.dim, m.unflattened_size),
    "ZeroPad": lambda t, m, x: t._f_pad(x, m.padding),
    "ConstantPad": lambda t, m, x: t._f_pad(x, m.padding, "constant", m.value),
    "ReflectionPad": lambda t, m, x: t._f_pad(x, m.padding, "reflect"),
    "ReplicationPad": lambda t, m, x: t._f_pad(x, m.padding, "replicate"),
    "Identity": _same,
    "Dropout": _same,
    "AlphaDropout": _same,
    "FeatureAlphaDropout": _same,
}


def _is_torchs(target: Any) -> bool:
    return (getattr(target, "__module__", None) or "torch").split(".")[0] in ("torch", "_operator", "builtins", "math")


def _where(node: Any) -> str:
    """The place of a node in the user's words: the module path if it has one."""
    if node.op == "call_module":
        return f"module {node.target!r}"
    stack = node.meta.get("nn_module_stack") or {}
    inside = next(reversed(stack), "")
    return f"{node.op.removeprefix('call_')} {node.name!r}" + (f" in module {inside!r}" if inside else "")


def _flat(value: Any) -> list[Any]:
    found, todo = [], [value]
    while todo:
        item = todo.pop()
        if isinstance(item, (tuple, list)):
            todo.extend(item)
        elif isinstance(item, dict):
            todo.extend(item.values())
        else:
            found.append(item)
    return found


class _Extremes(tuple[Any, ...]):
    """Values of a maximum over an axis; their indices jump, and are nothing that a network can go on with."""

    def __new__(cls, values: Any) -> _Extremes:
        return super().__new__(cls, (values, None))

    def __getitem__(self, index: Any) -> Any:
        if index in (1, -1):
            raise UnsupportedError("the indices of a maximum jump: only its values can be used")
        return super().__getitem__(index)


def _tuple(value: Any, n: int | None) -> tuple[int, ...]:
    if isinstance(value, (tuple, list)):
        return tuple(value) * (n if n is not None and len(value) == 1 else 1)
    return (value,) * (1 if n is None else n)


def _axes(dim: Any) -> list[int] | None:
    return None if dim is None or dim in ((), []) else [int(d) for d in _tuple(dim, None)]
