"""JSON from untrusted files: without the extensions of Python's reader, and counted before it is unpacked."""

from __future__ import annotations

import json
from typing import Any

from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits

_NUMBERS_PER_VALUE = 8
"""A value takes up to 80 bytes: an empty list, or its share of a small table."""


def parse_json(text: str | bytes, what: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value of a JSON text: no NaN, no repeated keys, no deep nesting. `what` names it in errors."""
    limits.check("text_bytes", len(text), what)
    if isinstance(text, bytes):
        text = _decoded(text, what)
    values = sum(map(text.count, ",:[{"))
    limits.check("elements", _NUMBERS_PER_VALUE * values, f"{what} with {values:,} values")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        limits.check_time(what)
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
            raise InputError(f"{what} gives the key {twice[:60]!r} twice in one object")
        return made

    def refuse(constant: str) -> Any:
        raise InputError(f"{what} holds {constant}, which is not JSON; write null for an infinite side of a box")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError as error:
        raise InputError(f"{what} is nested too deeply") from error
    except InputError:
        raise
    except ValueError as error:  # bad JSON, a number of thousands of digits
        raise InputError(f"{what} is not valid JSON: {str(error)[:120]}") from error


def _decoded(text: bytes, what: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not valid JSON: byte {error.start} is not UTF-8") from error
