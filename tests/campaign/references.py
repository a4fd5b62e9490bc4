"""What the checks share: how many draws, how far chance may carry them, and what counts as an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import reluscope as rs

DRAWS = 20_000
DEVIATIONS = 6.0


def doubt(share: float, n: int) -> float:
    """What chance may add to or take from the share of n draws."""
    return float(DEVIATIONS * np.sqrt(max(share * (1 - share), 9.0 / n) / n))


def held(name: str, answer: Any, low: float, high: float, n: int) -> Iterator[str]:
    """The bracket and the shares of n draws must be compatible."""
    if not 0.0 <= answer.lower <= answer.value <= answer.upper <= 1.0:
        yield f"{name}: {answer!r} has no bracket"
    if answer.lower - doubt(high, n) > high or answer.upper + doubt(low, n) < low:
        yield f"{name}: [{answer.lower!r}, {answer.upper!r}] ({answer.guarantee}), draws [{low:.6g}, {high:.6g}]"


def asked(counts: Counter[str], call: Callable[[], Any]) -> Any:
    """The answer, or None where it is refused."""
    counts["answers"] += 1
    try:
        return call()
    except rs.InputError as error:
        counts[f"refused: {str(error)[:70]}"] += 1
        return None
