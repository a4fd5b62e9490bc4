"""What a terminal or a notebook shows of long work: done, left, and time to go."""

from __future__ import annotations

import io
import sys
import types

import pytest

from reluscope import progress


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(time=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.time)
    return now


def test_counts_get_what_is_left_and_the_time_to_go(clock):
    pace = progress._Pace()
    assert pace("0 of 1,000 regions measured") == "0 of 1,000 regions measured"
    clock.time += 10
    assert pace("200 of 1,000 regions measured") == "200 of 1,000 regions measured, 800 left, about 40 s to go"
    clock.time += 10
    assert pace("1,000 of 1,000 regions measured") == "1,000 of 1,000 regions measured"
    assert pace("12,345 found") == "12,345 found"


def test_another_count_begins_anew(clock):
    pace = progress._Pace()
    pace("0 of 10 rows")
    clock.time += 5
    assert pace("3 of 20 local models") == "3 of 20 local models"
    clock.time += 2
    assert pace("4 of 20 local models") == "4 of 20 local models, 16 left, about 32 s to go"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (59, "59 s"), (600, "10 min"), (9000, "2.5 h")])
def test_times_are_as_exact_as_a_guess_is(seconds, words):
    assert progress._duration(seconds) == words


def test_notebooks_show_a_line(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress.meter("auto", "work") as report:
        report(1, "1 of 2")
    assert shown.getvalue() == ""
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    with progress.meter("auto", "work") as report:
        report(1, "1 of 2")
    assert "work: 1 of 2" in shown.getvalue()
