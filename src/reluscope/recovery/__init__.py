"""Recovery: a network from queries."""

from __future__ import annotations
