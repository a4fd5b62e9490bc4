"""What is called complete is right, on small networks of mixed kinds; it may say incomplete, never be wrong."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from recovery_problems import BOX, KINDS, WIDTHS, largest_error, problem


def recovered(seed):
    task = problem(seed)
    return task, rs.recover(rs.Oracle(task.function, task.n_inputs, limit=300_000), BOX, rng=seed)


def test_the_problems_are_of_all_kinds():
    names = {problem(seed).name.rsplit(" ", 1)[0] for seed in range(len(WIDTHS) * len(KINDS))}
    assert len(names) == len(WIDTHS) * len(KINDS)
    task = problem(0)
    assert largest_error(task, task.function, 0) == 0.0
    # A function that is wrong on a thin slab only is noticed.
    assert largest_error(task, lambda X: task.function(X) + (np.abs(X[:, :1]) < 1e-3), 0) > 0.1


@pytest.mark.parametrize("seed", [1, 3, 5, 9, 13, 17, 21, 25, 29, 31])
def test_complete_is_right(seed):
    task, found = recovered(seed)
    assert found, found.statement
    assert largest_error(task, found, seed) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_complete_is_never_wrong(seed):
    task, found = recovered(seed)
    assert not found or largest_error(task, found, seed) < 1e-6, task.name
