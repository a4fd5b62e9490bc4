import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reluscope import activations as ac
from reluscope.activations import Activation, Units
from reluscope.answers._event_cells import _relaxed
from reluscope.errors import InputError

H = np.linspace(-9, 9, 721)


@pytest.mark.parametrize(
    ("act", "formula"),
    [
        (ac.relu(), lambda h: np.maximum(h, 0)),
        (ac.leaky_relu(0.1), lambda h: np.where(h > 0, h, 0.1 * h)),
        (ac.leaky_relu(-0.5), lambda h: np.where(h > 0, h, -0.5 * h)),
        (ac.leaky_relu(0.0), lambda h: np.maximum(h, 0)),
        (ac.relu6(), lambda h: np.clip(h, 0, 6)),
        (ac.clip(-2, np.inf), lambda h: np.maximum(h, -2)),
        (ac.clip(-np.inf, 3), lambda h: np.minimum(h, 3)),
        (ac.clip(-1.5, 2.5), lambda h: np.clip(h, -1.5, 2.5)),
        (ac.hardtanh(), lambda h: np.clip(h, -1, 1)),
        (ac.hard_sigmoid(), lambda h: np.clip(h / 6 + 0.5, 0, 1)),
        (ac.hard_sigmoid(0.2, 0.5), lambda h: np.clip(0.2 * h + 0.5, 0, 1)),
        (ac.absolute(), np.abs),
        (ac.identity(), lambda h: h),
        (
            ac.piecewise([-1, 2], [1, 0, 3], at_zero=0.5),
            lambda h: np.where(h < -1, h + 1.5, np.where(h < 2, 0.5, 3 * h - 5.5)),
        ),
    ],
    ids=lambda a: getattr(a, "name", ""),
)
def test_activation_is_its_formula(act, formula):
    np.testing.assert_allclose(act(H), formula(H), rtol=1e-14, atol=1e-14)


def test_break_point_belongs_to_the_piece_below():
    assert ac.relu().piece([-1.0, 0.0, -0.0, 5e-324]).tolist() == [0, 0, 0, 1]
    assert ac.relu6().piece([0.0, 6.0, 6.1]).tolist() == [0, 1, 2]
    units = Units.of([ac.relu(), ac.relu6(), ac.identity()])
    assert units.pattern(np.array([[0.0, 6.0, 3.0], [1.0, 7.0, 3.0]])).tolist() == [[0, 1, 0], [1, 2, 0]]


def test_pieces_that_share_a_slope_stay_apart():
    flat = ac.leaky_relu(1.0)
    assert flat.pieces == 2
    assert flat.piece([-1.0, 1.0]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "arguments",
    [
        ((0.0,), (0.0, 1.0), (0.0, 1.0)),  # jumps
        ((1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)),  # unsorted
        ((0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)),  # repeated
        ((0.0,), (1.0,), (0.0,)),  # too few
        ((np.nan,), (0.0, 1.0), (0.0, 0.0)),
        ((0.0,), (0.0, np.inf), (0.0, 0.0)),
        ((), (), ()),
        (tuple(range(300)), (0.0,) * 301, (0.0,) * 301),
        (("a",), (0.0, 1.0), (0.0, 0.0)),
    ],
)
def test_bad_activations_are_refused(arguments):
    with pytest.raises(InputError):
        Activation(*arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ac.clip(1, 1),
        lambda: ac.clip(2, 1),
        lambda: ac.leaky_relu(np.nan),
        lambda: ac.leaky_relu("steep"),
        lambda: ac.hard_sigmoid(0.0),
        lambda: ac.activation("tanh"),
        lambda: ac.activation(3),
        lambda: ac.piecewise([0, 1], [1, 2]),
    ],
)
def test_bad_parameters_are_refused(call):
    with pytest.raises(InputError):
        call()


@given(
    st.lists(
        st.sampled_from([ac.relu(), ac.relu6(), ac.identity(), ac.absolute(), ac.leaky_relu(0.3)]),
        min_size=1,
        max_size=9,
    )
)
def test_units_apply_each_activation(each):
    units = Units.of(each)
    h = np.linspace(-8, 8, 33)[:, None] * np.ones(len(each))
    expected = np.column_stack([a(h[:, i]) for i, a in enumerate(each)])
    np.testing.assert_array_equal(units(h), expected)
    slopes, intercepts = units.on(units.pattern(h))
    np.testing.assert_allclose(slopes * h + intercepts, expected, rtol=1e-15)
    both = Units.concatenate([units, units])
    assert both[: len(each)] == units
    assert both[len(each) :] == units
    assert len(both) == 2 * len(each)


def test_units_tables_are_padded():
    units = Units.of([ac.relu(), ac.relu6(), ac.identity()])
    assert units.breaks.tolist() == [[0.0, np.inf], [0.0, 6.0], [np.inf, np.inf]]
    assert units.slopes.tolist() == [[0, 1, 1], [0, 1, 0], [1, 1, 1]]
    assert units.pieces.tolist() == [2, 3, 1]
    assert units.describe() == "relu x 1 + relu6 x 1 + identity x 1"


def test_units_with_many_pieces_find_them_as_comparisons_do():
    rng = np.random.default_rng(0)
    many = [ac.piecewise(np.sort(rng.normal(size=k)), rng.normal(size=k + 1)) for k in (40, 9, 1)]
    units = Units.of([many[0], ac.relu(), many[1], many[2], many[0]])
    h = rng.normal(size=(200, 5))
    h[:40, 0], h[:40, 4], h[3, 1], h[4] = many[0].breaks, many[0].breaks, 0.0, np.nan
    assert (units.pattern(h) == (h[:, :, None] > units.breaks).sum(axis=2)).all()
    assert (units.pattern(h[7]) == units.pattern(h)[7]).all()


def test_lines_around_units_with_many_pieces_hold():
    rng = np.random.default_rng(1)
    act = ac.piecewise(np.sort(rng.normal(size=30)), rng.normal(size=31))
    units = Units.of([act, ac.relu(), act])
    low = rng.normal(size=(50, 3))
    high = low + rng.exponential(size=(50, 3)) * (rng.random((50, 3)) < 0.9)
    slope, down, up = _relaxed(units, low, high)
    share = np.linspace(0, 1, 2001)[:, None, None]
    h = low + share * (high - low)
    rest = units(h) - slope * h
    assert (rest >= down - 1e-12).all() and (rest <= up + 1e-12).all()
    assert rest.min(axis=0) == pytest.approx(down, abs=0.01) and rest.max(axis=0) == pytest.approx(up, abs=0.01)
