"""One record of limits, for everything that reads untrusted files and for what an enumeration may hold in memory.

Each loader takes `limits=`; a breach raises `InputLimitError` through `Limits.check`, which names the limit, what
came, and how to raise it. `reluscope.regions` does not raise: it ends with what was found and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from reluscope.errors import InputLimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a loader may read or build before it refuses.

    The defaults admit every network that can sensibly be analysed on one machine and stop files that are built
    to exhaust it.

    Parameters
    ----------
    **limits : int
        The limits to change, by name; a breach is an `InputLimitError` that names the limit.

    Examples
    --------
    >>> Limits(layers=100).layers
    100
    """

    file_bytes: int = 1 << 30
    """Size of a file on disk, and of an archive's members once inflated, added up."""
    tensors: int = 100_000
    """Tensors (ONNX initialisers and constants, archive members, state-dict entries)."""
    elements: int = 1 << 28
    """Numbers held by the tensors of a file together; also the largest single intermediate tensor."""
    weights: int = 1 << 27
    """Non-zero weights of the layered network a graph is turned into (convolutions are counted unrolled)."""
    nodes: int = 100_000
    """Nodes of a graph."""
    layers: int = 10_000
    """Layers of a network."""
    depth: int = 200
    """Nesting of expressions in a property file."""
    tokens: int = 20_000_000
    """Tokens of a property file."""
    disjuncts: int = 100_000
    """Conjunctions a property may expand to in disjunctive normal form."""

    region_bytes: int = 4 << 30
    """Memory held by the regions of one enumeration (joining them at the end takes as much again for a moment)."""

    def check(self, limit: str, amount: int, what: str) -> None:
        """Raise `InputLimitError` when `amount` exceeds the limit of that name."""
        allowed: int = getattr(self, limit)
        if amount > allowed:
            raise InputLimitError(
                f"{what} has {amount:,} {_UNITS[limit]}, more than the limit of {allowed:,}; "
                f"if you trust it, pass limits=reluscope.Limits({limit}={amount})"
            )


_UNITS = {
    "file_bytes": "bytes",
    "tensors": "tensors",
    "elements": "elements",
    "weights": "unrolled weights",
    "nodes": "nodes",
    "layers": "layers",
    "depth": "levels of nesting",
    "tokens": "tokens",
    "disjuncts": "disjuncts",
    "region_bytes": "bytes",
}

DEFAULT_LIMITS = Limits()
