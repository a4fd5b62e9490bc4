"""Operations and file formats that users add: what `load` looks up beside its own.

A *rule* says what an operation does to the tensors of our graph (`reluscope.formats.graph.GraphBuilder`): it is given
the builder, the operands (symbolic `Tensor`s, or arrays where they do not depend on the input) and the operation's
attributes by name, and returns what the operation returns. One rule serves torch and ONNX alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reluscope._check import describe, real, several, text
from reluscope.activations import Activation
from reluscope.errors import InputError, InputTypeError
from reluscope.formats._onnx_ops import OPERATIONS
from reluscope.formats._rules import FORMATS, ONNX, TORCH, Registered
from reluscope.formats._torch_ops import ALIASES, MODULES, Translation, without_dimension

__all__ = ["register_format", "register_operation"]


OWN_ENDINGS = (".onnx", ".npz", ".safetensors", ".pt", ".pth", ".gz")


def register_operation(
    rule: Any, *, torch: Any = (), onnx: Any = (), error: float = 0.0, replace: bool = False
) -> None:
    """Teach `load` an operation that it does not know, for torch modules and ONNX files alike.

    Parameters
    ----------
    rule : Activation or callable
        A piecewise-linear function for every entry, or `rule(graph, *operands, **attributes)` that builds the result
        from the operations of a `GraphBuilder`: `add`, `scale`, `matmul`, `conv`, `activate`, `maximum`, `reduce_max`,
        `select`, `reshape`, `move` and more. Operands that do not depend on the input are arrays. Attributes are those
        of an ONNX node, the keywords of a torch function, or the public attributes of a torch module.
    torch : str or sequence of str
        Class names of modules ("Hardswish", a class of your own), or names of functions and methods ("hardswish").
    onnx : str or sequence of str
        Names of operations ("HardSwish"), with "domain::Name" outside of standard ONNX.
    error : float
        By how much any entry of the result may differ from the operation: 0 says that the rule is exact. An operation
        that is not piecewise linear has a rule with an error only; the network says so in its notes, a warning says so
        when it is loaded, and `net.approximation` bounds what it does to each output.
    replace : bool
        Whether a rule that is there already, ours or yours, may be replaced.

    Raises
    ------
    InputError
        If there is a rule already, or nothing to register it for.

    Notes
    -----
    An activation is compared with the operation itself on 20,001 numbers in [-50, 50] when it is used, and refused
    where it differs by more than `error`; so is a network that differs from the module (or, for standard ONNX, from
    the model run by the onnx package) at two random inputs by more than its bound. Operations of another domain cannot
    be run, and the network's notes say that they are taken on trust. The bound follows the error through the layers by
    absolute weights and the steepest slope of each unit; it holds for every input, and grows quickly with depth.

    Examples
    --------
    >>> import numpy as np
    >>> import reluscope as rs
    >>> from reluscope.activations import piecewise
    >>> t = np.linspace(-3, 3, 25)                       # Hardswish is x relu6(x + 3) / 6: a parabola between -3 and 3
    >>> slopes = np.diff(t * (t + 3) / 6) / np.diff(t)
    >>> by_segments = piecewise(t, [0.0, *slopes, 1.0])
    >>> rs.formats.register_operation(
    ...     by_segments, torch=["Hardswish", "hardswish"], onnx="HardSwish", error=0.0027, replace=True
    ... )
    """
    names = {"torch": _names(torch, "torch"), "onnx": _names(onnx, "onnx")}
    if not any(names.values()):
        raise InputError("name an operation to register the rule for: torch=..., onnx=...")
    if not isinstance(rule, Activation) and (not callable(rule) or isinstance(rule, type)):
        raise InputTypeError(f"rule must be an Activation or a function rule(graph, *operands), got {describe(rule)}")
    made = Registered(rule, real(error, "error", low=0.0))
    if not isinstance(replace, bool):
        raise InputTypeError(f"replace must be True or False, got {describe(replace)}")
    for kind, table in (("torch", TORCH), ("onnx", ONNX)):
        for name in names[kind]:
            if not replace and (name in table or _is_ours(kind, name)):
                raise InputError(f"{kind} operation {name!r} has a rule already; pass replace=True to replace it")
    for name in names["torch"]:
        TORCH[name] = made
    for name in names["onnx"]:
        ONNX[name.removeprefix("ai.onnx::").removeprefix("::")] = made


def register_format(ending: str, loader: Callable[..., Any], *, replace: bool = False) -> None:
    """Teach `load` a file format: a function for the files with one ending.

    Parameters
    ----------
    ending : str
        Such as ".nnet"; upper and lower case are the same, and files may have ".gz" after it.
    loader : callable
        `loader(path, *, limits, **options)` returns a `Network`, or anything else that `load` takes, such as a list of
        `(W, b)`. `limits` says what a file may make it read; options of `load` are passed on by name.
    replace : bool
        Whether a loader that is there already may be replaced. Our own formats stay.

    Raises
    ------
    InputError
        If the ending is ours, or taken.

    Notes
    -----
    The loader is the caller's own code: what it does with a file that is not trusted is up to it.

    Examples
    --------
    >>> import numpy as np
    >>> import reluscope as rs
    >>> def rows(path, *, limits):                       # one layer: each line has the weights and then the bias
    ...     table = np.loadtxt(path, ndmin=2)
    ...     return [(table[:, :-1], table[:, -1])]
    >>> rs.formats.register_format(".rows", rows, replace=True)
    """
    name = text(ending, "ending").lower()
    if not name.startswith(".") or len(name) < 2 or name.count(".") > 1:
        raise InputError(f'ending must be one ending such as ".nnet", got {ending!r}')
    if name in OWN_ENDINGS:
        raise InputError(f"{name} files are read already, and their loader stays; choose another ending")
    if not callable(loader) or isinstance(loader, type):
        raise InputTypeError(f"loader must be a function loader(path, *, limits), got {describe(loader)}")
    if not isinstance(replace, bool):
        raise InputTypeError(f"replace must be True or False, got {describe(replace)}")
    if name in FORMATS and not replace:
        raise InputError(f"{name} has a loader already; pass replace=True to replace it")
    FORMATS[name] = (loader, f"a {name} file")


def _names(given: Any, name: str) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else several(given, name, "names of operations")
    for word in listed:
        if not isinstance(word, str) or not word:
            raise InputTypeError(f"{name} must name operations, got {describe(word)}")
    return tuple(listed)


def _is_ours(kind: str, name: str) -> bool:
    if kind == "onnx":
        return name in OPERATIONS
    plain = without_dimension(name)
    return plain in MODULES or name in MODULES or hasattr(Translation, f"_f_{ALIASES.get(plain, plain)}")
