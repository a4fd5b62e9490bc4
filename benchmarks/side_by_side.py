"""Timing two things in one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from nets import random_net as random_net


def cpu_seconds(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Smallest CPU time of this process over some repeats, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        best = min(best, time.process_time() - started)
    return best, result
