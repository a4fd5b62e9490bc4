"""A look at the pickles of a torch file before torch reads them, without running them.

`torch.load(weights_only=True)` runs no code from a file, but it builds what the file describes. A tuple of tuples of
tuples, each named twice, takes a few bytes a level and twice the time of the level before when it becomes the key of a
dictionary. State dicts have no use for tuples that deep, so they are refused here.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from typing import Any

from reluscope._files import check_zip
from reluscope.errors import InputError
from reluscope.limits import Limits

_DEEPEST = 8
_PICKLES = 5
"""A file in torch's old format starts with this many pickles, one after the other."""


def check_pickles(data: bytes, limits: Limits, what: str) -> None:
    """Refuse a torch file (zip, or the old format) that is larger than the limits or builds deep tuples."""
    if not data.startswith(b"PK"):
        _scan(data, _PICKLES, limits, what)
        return
    check_zip(data, limits, what)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            pickles = [archive.read(member) for member in archive.infolist() if member.filename.endswith(".pkl")]
    except Exception as error:  # zipfile lets errors of many kinds through
        raise InputError(f"{what} is damaged or cut short: {str(error)[:120]}") from error
    for text in pickles:
        _scan(text, 1, limits, what)


def _scan(data: bytes, count: int, limits: Limits, what: str) -> None:
    stream = io.BytesIO(data)
    for _ in range(count):
        try:
            _follow(stream, limits, what)
        except InputError:
            raise
        except Exception as error:  # what cannot be followed here is not given to torch either
            raise InputError(f"{what} is damaged or not a torch file: it is not a whole pickle") from error


def _follow(stream: io.BytesIO, limits: Limits, what: str) -> None:
    """Go through one pickle, with the depth of the tuple in the place of each value."""
    stack: list[int] = []
    marks: list[int] = []
    memory: dict[Any, int] = {}
    for number, (code, value, _) in enumerate(pickletools.genops(stream)):
        if not number % 1024:
            limits.check_time(what)
        name = code.name
        if name == "MARK":
            marks.append(len(stack))
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memory.get(value, 0))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memory[value] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [1 + max(stack[-count:])]
        elif name == "TUPLE":
            stack.append(1 + max(_to_mark(stack, marks), default=0))
        elif name == "DUP":
            stack.append(stack[-1])
        else:
            before = code.stack_before
            marked = next((i for i, kind in enumerate(before) if kind is pickletools.markobject), None)
            if marked is not None:
                _to_mark(stack, marks)
            taken = len(before) if marked is None else marked
            if taken > len(stack) - (marks[-1] if marks else 0):
                raise IndexError(name)  # it would take a mark
            del stack[len(stack) - taken :]
            stack += [0] * len(code.stack_after)
        if stack and stack[-1] > _DEEPEST:
            raise InputError(f"{what} holds tuples nested more than {_DEEPEST} deep; save model.state_dict() instead")


def _to_mark(stack: list[int], marks: list[int]) -> list[int]:
    """Take everything above the last mark."""
    at = marks.pop()
    taken = stack[at:]
    del stack[at:]
    return taken
