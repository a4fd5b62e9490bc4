"""Equality and distance of networks."""

import json
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from nets import random_net
from reluscope.cells.compare import distance, equivalent
from reluscope.cells.regions import regions
from reluscope.errors import InputError
from reluscope.network import Network


def disguised(net, seed):
    """The same function: hidden ReLU units permuted and rescaled."""
    rng = np.random.default_rng(seed)
    layers = [(layer.dense().copy(), layer.bias.copy()) for layer in net.layers]
    for i in range(len(layers) - 1):
        order, scale = rng.permutation(len(layers[i][1])), rng.uniform(0.2, 5, len(layers[i][1]))
        layers[i] = layers[i][0][order] * scale[:, None], layers[i][1][order] * scale
        layers[i + 1] = layers[i + 1][0][:, order] / scale, layers[i + 1][1]
    return Network(layers)


def changed(net, by, layer=0, row=0, column=0):
    """One weight moved."""
    layers = [(part.dense().copy(), part.bias.copy()) for part in net.layers]
    layers[layer][0][row, column] += by
    return Network(layers)


def affine(C, d):
    return Network([(C, d)])


# -- side by side --------------------------------------------------------------------------------------------------


# -- equality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "widths", [(1, 8, 8, 2), (2, 10, 10, 2), (2, 8, 8, 8, 1), (3, 6, 6, 1), (4, 4, 4, 2), (6, 3, 1)]
)
def test_permuted_and_rescaled_units_change_nothing(widths):
    for seed in range(3):
        net = random_net(widths, seed, bias=0.5)
        found = equivalent(net, disguised(net, seed), (-3, 3))
        assert found.equal is True
        assert found.complete
        assert found.difference <= found.rounding < 1e-11
        # The hyperplanes coincide up to rounding, so the common refinement is that of one network. (Two points of a
        # line that differ by a rounding are two points, though.)
        assert widths[0] == 1 or found.cells == len(regions(net, (-3, 3), progress=None))


def test_above_six_inputs_linear_programs_decide():
    net = random_net((8, 4, 3, 1), 1, bias=0.5)
    found = equivalent(net, disguised(net, 0), (-1, 1))
    assert found.equal is True
    other = changed(net, 1e-3, row=1)
    found = equivalent(net, other, (-1, 1))
    assert found.equal is False
    # An independent look: the difference is piecewise affine, and no point of a large sample beats the witness.
    X = np.random.default_rng(0).choice([-1.0, 1.0], size=(20_000, 8))
    assert np.abs(net(X) - other(X)).max() <= found.difference + found.rounding
    assert abs(net(found.witness) - other(found.witness))[0] == found.difference


def test_linear_programs_look_at_both_ends():
    # The difference runs from -9 to 7 on the cube, or from -7 to 9: either way 9 is the largest.
    zero = affine(np.zeros((1, 8)), [0.0])
    for sign in (1.0, -1.0):
        found = equivalent(affine(np.full((1, 8), sign), [sign]), zero, (-1, 1))
        assert found.difference == pytest.approx(9.0, rel=1e-14)
        np.testing.assert_array_equal(found.witness, np.ones(8))


def test_linear_programs_and_vertices_find_the_same_maximum():
    # Two idle inputs carry a six-dimensional problem into eight dimensions.
    small = random_net((6, 4, 2), 3, bias=0.5)
    other = changed(small, 0.3, row=2)

    def widened(net):
        first = net.layers[0]
        return Network([(np.pad(first.dense(), ((0, 0), (0, 2))), first.bias), *net.layers[1:]])

    low, high = equivalent(small, other, (-1, 1)), equivalent(widened(small), widened(other), (-1, 1))
    assert low.difference == pytest.approx(high.difference, rel=1e-12)
    assert low.cells == high.cells


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([(1, 5, 5, 1), (2, 6, 6, 2), (3, 4, 4, 1)]), st.integers(1, 5))
def test_one_changed_weight_gives_a_witness(seed, widths, digits):
    net = random_net(widths, seed, bias=0.5)
    other = changed(net, 10.0**-digits, layer=len(widths) - 2)
    found = equivalent(net, other, (-2, 3))
    top = np.random.default_rng(seed).uniform(-2, 3, size=(2000, widths[0]))
    seen = np.abs(net(top) - other(top)).max()
    assert seen <= found.difference + found.rounding
    if found.equal is False:
        np.testing.assert_array_equal(found.first - found.second, net(found.witness) - other(found.witness))
        assert np.abs(found.first - found.second).max() == found.difference > 1e-9
        assert ((found.witness >= -2) & (found.witness <= 3)).all()
    else:  # the unit is dead in the box
        assert seen == 0.0


def test_a_difference_in_a_tiny_corner_is_found():
    # relu(x + y - 1.999) lives on a triangle of area 5e-7 of the square: samples miss it.
    plain = random_net((2, 6, 1), 0)
    first, last = plain.layers
    corner = Network(
        [
            (np.vstack([first.dense(), [1.0, 1.0]]), np.append(first.bias, -1.999)),
            (np.append(last.dense(), [[1.0]], axis=1), last.bias),
        ]
    )
    found = equivalent(plain, corner, (-1, 1))
    assert found.equal is False
    np.testing.assert_array_equal(found.witness, [1.0, 1.0])
    assert found.difference == pytest.approx(0.001, rel=1e-10)
    assert equivalent(plain, corner, (-1, 0.9)).equal is True


def test_different_architectures_of_one_function():
    # |x| - |y| by absolute values, by pairs of ReLUs, and by ReLUs with an extra layer and slack for dead units.
    one = Network([(np.eye(2), [0, 0], "abs"), ([[1, -1]], [0])])
    pairs = ([[1, 0], [-1, 0], [0, 1], [0, -1]], [0, 0, 0, 0])
    two = Network([pairs, ([[1, 1, -1, -1]], [0])])
    three = Network([pairs, (np.vstack([np.eye(4), -np.ones((1, 4))]), [0] * 5), ([[1, 1, -1, -1, 7]], [0])])
    for a, b in ((one, two), (two, three), (one, three)):
        assert equivalent(a, b, (-5, 4)).equal is True
        assert float(distance(a, b, (-5, 4), 2)) < 1e-14


def test_max_difference_and_rounding():
    net, other = affine([[1.0]], [0.0]), affine([[1.0]], [1e-6])
    assert equivalent(net, other, (-1, 1)).equal is False
    assert equivalent(net, other, (-1, 1), max_difference=2e-6).equal is True
    # Outputs of 1e9 carry a rounding of 1e-6 or so: a difference of 1e-9 is beyond them.
    scaled = random_net((2, 5, 1), 0).then([[1e9]])
    found = equivalent(scaled, disguised(scaled, 1), (-1, 1))
    assert found.equal is None
    assert "rounding" in found.guarantee
    assert found.rounding > 1e-9
    assert equivalent(scaled, disguised(scaled, 1), (-1, 1), max_difference=1e-3).equal is True


def test_budgets():
    net = random_net((2, 16, 16, 1), 0, bias=0.5)
    stopped = equivalent(net, disguised(net, 0), (-3, 3), budget="5 regions")
    assert stopped.equal is None
    assert not stopped.complete
    assert stopped.cells == 5
    assert "budget" in stopped.guarantee
    shifted = Network([*net.layers[:-1], (net.layers[-1].dense(), net.layers[-1].bias + 1.0)])
    known = equivalent(net, shifted, (-3, 3), budget="5 regions")
    assert known.equal is False
    assert known.difference == pytest.approx(1.0)
    other = changed(net, 0.1)
    for p in (1, 2, inf):
        full, part = distance(net, other, (-3, 3), p), distance(net, other, (-3, 3), p, budget="40 regions")
        assert part.guarantee == "sound"
        assert part.lower <= full.value <= part.upper
        assert "budget" in part.note


# -- distances -----------------------------------------------------------------------------------------------------


def test_closed_forms_in_one_dimension():
    relu, zero = Network([([[1.0]], [0.0]), ([[1.0]], [0.0])]), affine([[0.0]], [0.0])
    # relu(x) on [-1, 2]: sup 2, int 2, int of squares 8/3.
    assert distance(relu, zero, (-1, 2)).value == 2.0
    assert distance(relu, zero, (-1, 2), 1).value == pytest.approx(2.0, rel=1e-15)
    assert distance(relu, zero, (-1, 2), 2).value == pytest.approx(np.sqrt(8 / 3), rel=1e-15)
    assert distance(relu, zero, (-1, 2), 1, normalised=True).value == pytest.approx(2 / 3, rel=1e-15)
    assert distance(relu, zero, (-1, 2), 2, normalised=True).value == pytest.approx(np.sqrt(8 / 9), rel=1e-15)
    # |x| against 1/2 on [-1, 1]: the sign changes inside the pieces. int ||x| - 1/2| = 1/2, int (|x| - 1/2)^2 = 1/6.
    absolute = Network([([[1.0]], [0.0], "abs"), ([[1.0]], [0.0])])
    half = affine([[0.0]], [0.5])
    assert distance(absolute, half, (-1, 1), 1).value == pytest.approx(0.5, rel=1e-15)
    assert distance(absolute, half, (-1, 1), 2).value == pytest.approx(np.sqrt(1 / 6), rel=1e-15)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_closed_forms_in_more_dimensions(d):
    # x_1 on [-1, 1]^d, one hidden layer of planes that cut the box but not the function.
    cuts = np.random.default_rng(d).normal(size=(3, d))
    one = Network([(np.vstack([np.eye(1, d), cuts]), [5.0, 0, 0.1, 0.2]), ([[1.0, 0, 0, 0]], [-5.0])])
    zero = affine(np.zeros((1, d)), [0.0])
    volume = 2.0**d
    assert distance(one, zero, (-1, 1)).value == pytest.approx(1.0, rel=1e-14)
    assert distance(one, zero, (-1, 1), 1).value == pytest.approx(volume / 2, rel=1e-12)
    assert distance(one, zero, (-1, 1), 2).value == pytest.approx(np.sqrt(volume / 3), rel=1e-12)
    assert distance(one, zero, (-1, 1), 1, normalised=True).value == pytest.approx(1 / 2, rel=1e-12)
    # Two outputs, (x_1, -2 x_1): their length is sqrt(5) |x_1|; joined by the same p, sums and the larger one.
    two, none = affine(np.vstack([np.eye(1, d), -2 * np.eye(1, d)]), [0.0, 0.0]), affine(np.zeros((2, d)), [0.0, 0.0])
    assert distance(two, none, (-1, 1)).value == pytest.approx(np.sqrt(5), rel=1e-14)
    found = distance(two, none, (-1, 1), 1)
    assert found.lower <= np.sqrt(5) * volume / 2 <= found.upper and found.guarantee == "sound"
    assert distance(two, none, (-1, 1), norm="p").value == 2.0
    assert distance(two, none, (-1, 1), 1, norm="p").value == pytest.approx(3 * volume / 2, rel=1e-12)
    for norm in ("euclidean", "p"):
        assert distance(two, none, (-1, 1), 2, norm=norm).value == pytest.approx(np.sqrt(5 * volume / 3), rel=1e-12)


def test_the_length_of_several_outputs_in_many_dimensions_is_bracketed():
    rng = np.random.default_rng(0)
    net, other = random_net((8, 3, 2), 0, bias=0.5), random_net((8, 3, 2), 1, bias=0.5)
    found, largest = distance(net, other, (-1, 1)), distance(net, other, (-1, 1), norm="p")
    X = rng.choice([-1.0, 1.0], size=(20_000, 8)) * rng.uniform(size=(20_000, 8)) ** rng.choice([0, 1], (20_000, 1))
    drawn = float(np.linalg.norm(net(X) - other(X), axis=1).max())
    assert largest.guarantee == "exact" and found.guarantee == "sound"
    assert drawn <= found.upper * (1 + 1e-12) and largest.value <= found.value <= found.upper
    assert found.upper <= np.sqrt(2) * largest.value * (1 + 1e-12)
    one, zero = affine(np.vstack([np.eye(1, 8), np.eye(1, 8, 1)]), [0.0, 0.0]), affine(np.zeros((2, 8)), [0.0, 0.0])
    bracket = distance(one, zero, (-1, 1))  # attained at a corner: both ends meet, or the corner was not looked at
    assert bracket.lower <= np.sqrt(2) <= bracket.upper * (1 + 1e-12)
    alone = distance(affine(np.eye(1, 8), [0.0]), affine(np.zeros((1, 8)), [0.0]), (-1, 1))
    assert alone.guarantee == "exact" and alone.value == pytest.approx(1.0)  # one output: no length to bracket


def test_cross_polytope_volume():
    # int relu(1 - |x| - |y| - |z|) is the volume of a pyramid in four dimensions: 2^3 / 4!.
    d = 3
    net = Network([(np.eye(d), np.zeros(d), "abs"), (-np.ones((1, d)), [1.0]), ([[1.0]], [0.0])])
    found = distance(net, affine(np.zeros((1, d)), [0.0]), (-1.5, 1.5), 1)
    assert found.value == pytest.approx(8 / 24, rel=1e-13)
    assert found.lower <= 1 / 3 <= found.upper


@pytest.mark.parametrize("seed", range(3))
def test_quadrature_agrees_in_one_dimension(seed):
    one, two = random_net((1, 6, 6, 2), seed, bias=0.5), random_net((1, 5, 2), seed + 100, bias=0.5)
    kinks = np.unique(np.concatenate([regions(n, (-2, 3), progress=None).cells.low for n in (one, two)]))
    pieces = [*kinks.tolist(), 3.0]

    def gap(x):
        return one([x]) - two([x])

    # Between kinks the difference is affine: quadrature is exact there for squares, and told where signs change.
    square = sum(
        integrate.fixed_quad(lambda t: np.array([(gap(x) ** 2).sum() for x in t]), a, b, n=3)[0]
        for a, b in pairwise(pieces)
    )
    assert distance(one, two, (-2, 3), 2).value == pytest.approx(np.sqrt(square), rel=1e-12)
    plain = 0.0
    for a, b in pairwise(pieces):
        for left, right in zip(gap(a), gap(b), strict=True):
            roots = [a - left * (b - a) / (right - left)] if left * right < 0 else []
            line = np.poly1d(np.polyfit([a, b], [left, right], 1))
            for lo, hi in zip([a, *roots], [*roots, b], strict=True):
                plain += abs(integrate.quad(line, lo, hi)[0])
    assert distance(one, two, (-2, 3), 1, norm="p").value == pytest.approx(plain, rel=1e-9)


def test_quadrature_agrees_in_the_plane():
    one, two = random_net((2, 4, 1), 0, bias=0.5), random_net((2, 3, 3, 1), 5, bias=0.5)
    # A fine product rule: the integrand has kinks, so the error falls with the square of the step.
    n = 800
    nodes = -1 + (np.arange(n) + 0.5) * (2.5 / n)
    X = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    gap = np.abs(one(X) - two(X))[:, 0]
    cell = (2.5 / n) ** 2
    assert distance(one, two, (-1, 1.5), 1).value == pytest.approx(gap.sum() * cell, rel=1e-5)
    assert distance(one, two, (-1, 1.5), 2).value == pytest.approx(np.sqrt((gap**2).sum() * cell), rel=1e-5)
    assert 0 <= distance(one, two, (-1, 1.5)).value - gap.max() < 0.02


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([(2, 5, 2), (3, 4, 3, 1)]))
def test_distances_are_metrics(seed, widths):
    nets = [random_net(widths, seed + i, bias=0.5) for i in range(3)]
    volume, outputs = 8.0 if widths[0] == 3 else 4.0, widths[-1]
    size = {}
    for p in (1, 2, inf):
        ab, bc, ac_ = (distance(nets[i], nets[j], (-1, 1), p) for i, j in ((0, 1), (1, 2), (0, 2)))
        closed = p != 1 or outputs == 1
        assert ab.guarantee == ("exact" if closed else "sound")
        assert ab.lower <= ab.value <= ab.upper
        assert ab.upper - ab.lower < (1e-9 if closed else 1e-5 * ab.value)
        assert ac_.lower <= ab.upper + bc.upper + 1e-9
        assert distance(nets[1], nets[0], (-1, 1), p).value == pytest.approx(ab.value, rel=1e-12 if closed else 1e-6)
        size[p] = ab.value
    assert size[1] <= np.sqrt(volume) * size[2] * (1 + 1e-6)
    assert size[2] <= np.sqrt(volume) * size[inf] * (1 + 1e-12)


def test_any_p_and_the_euclidean_norm_in_closed_form():
    net = Network([([[1.0], [-1.0]], None), ([[1.0, 1.0]], None)])  # |x|
    line = Network([([[1.0]], None)])
    for p in (1.5, 3, 7.25):  # the difference is 2 |x| on the left half: its p-th power has the integral 2^p / (p + 1)
        found = distance(net, line, (-1, 1), p)
        truth = (2**p / (p + 1)) ** (1 / p)
        assert found.lower <= truth <= found.upper and found.width < 1e-5 and found.guarantee == "sound"
    one, two = affine([[1.0], [0.0]], [0.0, 1.0]), affine([[0.0], [0.0]], [0.0, 0.0])  # the difference is (x, 1)
    found = distance(one, two, (0, 1), 1)
    truth = (np.sqrt(2) + np.arcsinh(1)) / 2
    assert found.lower <= truth <= found.upper and found.width < 1e-5
    assert distance(one, two, (0, 1)).value == pytest.approx(np.sqrt(2), rel=1e-15)
    assert distance(one, two, (0, 1), norm="p").value == 1.0


@pytest.mark.parametrize("p, norm", [(1, "euclidean"), (1.5, "p"), (3, "euclidean"), (4, "p"), (inf, "euclidean")])
def test_any_p_against_a_fine_grid(p, norm):
    net, other = random_net((2, 6, 2), 1), random_net((2, 5, 4, 2), 2)
    found = distance(net, other, (-1, 1), p, norm=norm)
    t = (np.arange(1000) + 0.5) / 500 - 1
    X = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    g = np.abs(net(X) - other(X))
    length = np.linalg.norm(g, axis=1)
    if p == inf:
        assert length.max() <= found.upper and length.max() == pytest.approx(found.value, rel=5e-3)
        return
    truth = (4 * (length**p if norm == "euclidean" else (g**p).sum(axis=1)).mean()) ** (1 / p)
    assert found.lower * (1 - 1e-4) <= truth <= found.upper * (1 + 1e-4) and found.width < 1e-4 * found.value
    mean = distance(net, other, (-1, 1), p, norm=norm, normalised=True)
    assert mean.value == pytest.approx(found.value / 4 ** (1 / p), rel=1e-9)


def test_a_budget_keeps_the_bracket_of_any_p():
    net, other = random_net((2, 12, 12, 2), 1), random_net((2, 12, 2), 2)
    whole = distance(net, other, (-1, 1), 3)
    part = distance(net, other, (-1, 1), 3, budget="10 regions")
    assert part.lower <= whole.lower <= whole.upper <= part.upper and part.note


# -- records and refusals ------------------------------------------------------------------------------------------


def test_records():
    found = equivalent(affine([[1.0]], [0.0]), affine([[1.0]], [1.0]), (0, 1))
    assert json.loads(json.dumps(found.to_dict()))["equal"] is False
    assert "different: largest difference 1 " in repr(found)
    assert "(1 cells)" in distance(affine([[1.0]], [0.0]), affine([[1.0]], [1.0]), (0, 1), 1).method


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: equivalent("a", affine([[1.0]], [0.0]), (0, 1)), "net must be a Network"),
        (lambda: equivalent(affine([[1.0]], [0.0]), affine([[1.0, 1.0]], [0.0]), (0, 1)), "inputs and outputs"),
        (lambda: equivalent(affine([[1.0]], [0.0]), affine([[1.0], [2.0]], [0.0, 0.0]), (0, 1)), "inputs and outputs"),
        (lambda: equivalent(affine([[1.0]], [0.0]), affine([[1.0]], [0.0]), None), "box must be a pair"),
        (
            lambda: equivalent(affine([[1.0]], [0.0]), affine([[1.0]], [0.0]), (0, 1), max_difference=-1.0),
            "max_difference",
        ),
        (lambda: distance(affine([[1.0]], [0.0]), affine([[1.0]], [0.0]), (0, 1), 0.5), "at least 1"),
        (lambda: distance(affine([[1.0]], [0.0]), affine([[1.0]], [0.0]), (0, 1), "2"), "p must be a number"),
        (lambda: distance(affine(np.ones((1, 7)), [0.0]), affine(np.ones((1, 7)), [0.0]), (0, 1), 2), "p=inf works"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(InputError, match=text):
        call()
