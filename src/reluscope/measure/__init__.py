"""How much probability a region holds. Specialists find `moments` here; `mass` is at the top of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door

if TYPE_CHECKING:
    from reluscope.measure.regions import moments

__all__ = ["moments"]

__getattr__ = lazy_door(__name__, {"moments": "regions"})
