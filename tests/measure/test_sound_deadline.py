"""A sound search that a deadline ends in the middle of a step: the bounds so far are whole, and they hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.budget import Budget
from reluscope.events import as_event, place
from reluscope.measure.sound import linear
from reluscope.measure.sound.boxes import BoxSearch, _Round
from reluscope.measure.sound.components import slice_search, unit_search
from reluscope.measure.sound.frame import frames
from reluscope.measure.sound.seen import seen
from reluscope.measure.sound.units import Tree
from reluscope.threads import OutOfTimeError, deadline
from sound_problems import check_bracket, problem


def after(looks):
    """A deadline that has passed when it is looked at for the next time after so many."""
    left = [looks]

    def over():
        left[0] -= 1
        return left[0] < 0

    return over


def searches(net, law, event):
    placed = seen(place(net, law, as_event(event, net, law)))
    if not placed.n_cases or placed.everything:
        return []
    made = frames(law, placed.network, None)
    return [s for s in (unit_search(made, placed), slice_search(made, placed)) if s is not None]


def test_a_tree_is_as_it_was_before_the_step_that_was_cut_short():
    net, law = random_net((6, 20, 20, 2), 1), rs.Gaussian(np.zeros(6), 0.3)
    part = searches(net, law, "y[0] > y[1]")[0].parts[0]
    for looks in range(1, 120, 7):
        cut, whole = (Tree(part.form, 4.0) for _ in range(2))
        with suppress(OutOfTimeError), deadline(after(looks)):
            cut.grow(lambda cut=cut: cut.nodes >= 200, 0.0)
        whole.grow(lambda whole=whole, cut=cut: whole.nodes >= cut.nodes, 0.0)
        assert cut.nodes == whole.nodes
        assert cut.upper == pytest.approx(whole.upper, rel=1e-12)
        assert sorted(-v for v, *_ in cut.heap) == sorted(-v for v, *_ in whole.heap)


def test_bounds_cut_short_hold():
    cut = 0
    for seed in range(40):
        net, law, event, rng = problem(71, seed)
        for search in searches(net, law, event):
            try:
                with deadline(after(int(rng.integers(1, 300)))):
                    search.advance(lambda search=search: search.nodes > 60)
            except OutOfTimeError:
                cut += 1
            check_bracket(net, law, event, *search.bracket(), rng, seed)
    assert cut > 20


def test_units_in_parts_have_the_same_bounds(monkeypatch):
    """All units of a layer at once, or a few at a time, between which the clock is looked at."""
    net, law = random_net((8, 30, 30, 2), 2), rs.Gaussian(np.zeros(8), 0.3)
    part = searches(net, law, "y[0] > y[1] + 1")[0].parts[0]
    whole = Tree(part.form, 4.0)
    monkeypatch.setattr(linear, "_NUMBERS", 400)
    few = Tree(part.form, 4.0)
    assert few.upper == pytest.approx(whole.upper, rel=1e-9)
    assert few.lower == pytest.approx(whole.lower, rel=1e-9)


def test_a_layer_without_bent_units_has_bounds():
    """The raw error that was: no units, so no parts to join. (The second layer is affine.)"""
    rng = np.random.default_rng(4)
    shapes = [((4, 3), "relu"), ((4, 4), "identity"), ((2, 4), "identity")]
    net = rs.Network([(rng.normal(size=shape), rng.normal(size=shape[0]), kind) for shape, kind in shapes])
    part = searches(net, rs.Gaussian(np.zeros(3)), "y[0] > y[1] + 1")[0].parts[0]
    assert any(not len(layer.groups) for layer in part.form.layers[1:])
    tree = Tree(part.form, 4.0)
    assert 0.0 <= tree.lower <= tree.upper <= 1.0


def box_search(seed):
    net, law = random_net((4, 12, 12, 1), seed), rs.Gaussian(np.zeros(4))
    placed = seen(place(net, law, as_event("y[0] > 0.5", net, law)))
    return BoxSearch(placed, frames(law, placed.network, None), Budget(), 0.0, lambda done, text: None)


@dataclass(frozen=True)
class ByBoxes(Budget):
    """A clock that goes on by one with each box."""

    search: BoxSearch | None = None

    def elapsed(self):
        return float(self.search.boxes)


def test_boxes_go_on_with_the_round_that_was_cut_short():
    """Ten calls with a tenth of the time each come as far as one: no task is bisected twice to the same threshold."""
    for seed in range(2):
        once, often = box_search(seed), box_search(seed)
        once.advance(ByBoxes(seconds=100_000.0, search=once))
        for k in range(1, 11):
            often.advance(ByBoxes(seconds=10_000.0 * k, search=often), 100_000.0)
        widths = [high - low for low, high in (once.bracket(), often.bracket())]
        assert widths[1] <= 1.1 * widths[0]
        assert max(once.bracket()[0], often.bracket()[0]) <= min(once.bracket()[1], often.bracket()[1])


def test_the_closing_round_is_steered_to_the_end_of_the_budget():
    """A pace of half the expected one makes the rest of the round coarser, twice the pace finer."""
    search = box_search(0)
    search.costs = [10] * 100
    search.limit, search.horizon = Budget(seconds=100.0), 100.0
    now = _Round(1e-6, list(range(50, 100)), closing=True, done=500.0, done_here=5000.0)
    assert search._finer(now, 98.0, 5000) == pytest.approx(1.0, rel=0.01)
    assert search._finer(now, 2 * 98.0, 5000) == pytest.approx(0.5 ** (1 / 0.55), rel=0.01)
    assert search._finer(now, 0.5 * 98.0, 5000) == pytest.approx(2.0 ** (1 / 0.55), rel=0.01)
    now.closing = False
    assert search._finer(now, 2 * 98.0, 5000) == 1.0


def test_a_budget_of_regions_gives_the_same_bracket_for_any_number_of_workers(monkeypatch):
    net, law = random_net((4, 12, 12, 1), 5), rs.Gaussian(np.zeros(4))
    found = []
    for workers in (1, 2, 7):
        monkeypatch.setattr("os.cpu_count", lambda workers=workers: workers)
        answer = rs.probability(net, law, "y[0] > 0.5", guarantee="sound", tolerance=1e-9, budget="60000 regions")
        found.append((answer.lower, answer.upper, answer.evaluations))
    assert found[0] == found[1] == found[2]
