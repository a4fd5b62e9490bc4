"""A sound search that a deadline ends in the middle of a step: the bounds so far are whole, and they hold."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.events import as_event, place
from reluscope.measure.sound import linear
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
