"""A network as local linear models of a data set: table, explanation, importance, inference, merging, L1 training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door

if TYPE_CHECKING:
    from reluscope.local_models.merged import MergedModels

__all__ = ["MergedModels"]

__getattr__ = lazy_door(__name__, {"MergedModels": "merged"})
