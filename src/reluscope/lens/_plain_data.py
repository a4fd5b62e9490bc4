"""Plain data from a file in Python's serialisation format, read without running any of it.

A file can make the standard reader call functions; this one knows only the instructions that build None, booleans,
numbers, text, bytes, lists, tuples, sets and dicts. Every other instruction is refused by name, so nothing in a file
can be run.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

from reluscope.errors import InputError

_MARK = object()

_VALUES = frozenset(
    {
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
        "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
        "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_plain(content: bytes, name: str) -> Any:
    """The value that `content` describes; `InputError` when it is anything but plain data."""
    try:
        return _run(content, name)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name} does not hold plain data that can be read ({type(error).__name__})") from error


def _run(content: bytes, name: str) -> Any:
    stack: list[Any] = []
    memory: dict[Any, Any] = {}
    for instruction, value, _ in pickletools.genops(content):
        code = instruction.name
        if code in ("PROTO", "FRAME"):
            continue
        if code == "STOP":
            if len(stack) != 1 or stack[0] is _MARK:
                raise InputError(f"{name} ends in the middle of a value")
            return stack[0]
        if code in _VALUES:
            stack.append(value)
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code == "MARK":
            stack.append(_MARK)
        elif code in ("PUT", "BINPUT", "LONG_BINPUT"):
            memory[value] = stack[-1]
        elif code == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif code in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memory[value])
        elif code in _SHORT_TUPLES:
            count = _SHORT_TUPLES[code]
            stack[-count:] = [tuple(stack[-count:])]
        elif not _build(code, stack):
            raise InputError(
                f"{name} holds the instruction {code}; only plain containers, numbers and text are read, nothing is run"
            )
    raise InputError(f"{name} ends early")


def _build(code: str, stack: list[Any]) -> bool:
    """Instructions that put items into containers; False for one that is not known."""
    if code == "APPEND":
        item = stack.pop()
        _expect(stack[-1], list).append(item)
    elif code == "SETITEM":
        item, key = stack.pop(), stack.pop()
        _expect(stack[-1], dict)[key] = item
    elif code in ("APPENDS", "SETITEMS", "ADDITEMS", "TUPLE", "LIST", "DICT"):
        items = _to_mark(stack)
        if code == "APPENDS":
            _expect(stack[-1], list).extend(items)
        elif code == "ADDITEMS":
            _expect(stack[-1], set).update(items)
        elif code == "SETITEMS":
            _expect(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif code == "DICT":
            stack.append(dict(zip(items[::2], items[1::2], strict=True)))
        else:
            stack.append(tuple(items) if code == "TUPLE" else items)
    else:
        return False
    return True


def _to_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1
    while stack[place] is not _MARK:
        place -= 1
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}")
    return value
