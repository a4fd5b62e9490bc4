"""Budgets: what their clock counts."""

from __future__ import annotations

import subprocess
import sys
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


def test_a_budget_does_not_pay_for_first_imports():
    """In a fresh process the engines' imports take longer than this budget; the work takes milliseconds."""
    code = (
        "import reluscope as rs; e = rs.example('moons');"
        "print(rs.probability(e.network, e.law, 'y[0] > 0', budget='0.6s', rng=0).guarantee)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "exact"
