"""Budgets: what their clock counts."""

from __future__ import annotations

import time

import numba
import numpy as np

from reluscope.budget import parse_budget


def test_compiling_is_not_counted():
    budget = parse_budget("10s")
    begin = time.monotonic()

    @numba.njit
    def total(x):
        s = 0.0
        for i in range(len(x)):
            s += x[i]
        return s

    assert total(np.ones(3)) == 3.0
    compiled = time.monotonic() - begin
    assert budget.elapsed() < 0.5 * compiled
    assert budget.spent() is None


def test_waiting_is_counted():
    budget = parse_budget("0.05s")
    time.sleep(0.1)
    assert budget.elapsed() >= 0.1
    assert budget.spent() == "budget of 0.05 s reached"
