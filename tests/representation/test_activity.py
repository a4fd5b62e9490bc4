"""Units that never switch: certificates against samples, exact rational arithmetic and full region lists."""

from fractions import Fraction

import numpy as np
import pytest
from rational import rational_regions

import reluscope as rs
from nets import integer_net, random_net
from reluscope.cells.bounds import box_preactivations
from reluscope.errors import InputError
from reluscope.representation.activity import AFFINE, OFF, ON, SWITCHES, UNDECIDED, stable_units


@pytest.mark.parametrize("act", ["relu", "leaky_relu", "hardtanh", "abs", "relu6"])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_and_regions_settle_everything(act, seed):
    net = random_net((3, 6, 6, 6, 1), seed, act, bias=0.5)
    lower, upper = np.array([-0.5, -0.2, 0.0]), np.array([0.5, 0.3, 0.7])
    X = np.random.default_rng(seed).uniform(lower, upper, (5000, 3))
    for h, bound in zip(net.preactivations(X), box_preactivations(net, lower, upper), strict=False):
        assert (h >= bound.lower).all()
        assert (h <= bound.upper).all()
    found = stable_units(net, (lower, upper))
    high = rs.regions(net, (lower, upper)).pattern > 0
    exact = np.where(high.all(axis=0), ON, np.where(high.any(axis=0), SWITCHES, OFF))
    assert (np.concatenate(found.state) == exact).all()


@pytest.mark.parametrize("seed", range(6))
def test_whole_number_networks_agree_with_rational_arithmetic(seed):
    net = integer_net((2, 4, 3, 1), seed)
    patterns = np.array(sorted(rational_regions(net, -1.0, 1.0))) > 0
    exact = np.where(patterns.all(axis=0), ON, np.where(patterns.any(axis=0), SWITCHES, OFF))
    found = np.concatenate(stable_units(net, (-1.0, 1.0)).state)
    assert (found == exact).all()


def test_bounds_are_sound_at_the_edge_of_rounding():
    # The supremum of h is 0 exactly, reached at a corner: rounding must not certify the opposite sign.
    for scale in (1.0, 1e-8, 1e8):
        net = rs.Network([([[scale, scale]], [-2 * scale]), ([[1.0]], [0.0])])
        assert stable_units(net, (-1.0, 1.0), budget="1 regions").state[0][0] in (OFF, UNDECIDED)
        shifted = rs.Network([([[scale, scale]], [-2 * scale * (1 - 1e-12)]), ([[1.0]], [0.0])])
        assert stable_units(shifted, (-1.0, 1.0), budget="1 regions").state[0][0] != OFF


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_in_rational_arithmetic(seed):
    # The first units stay on, so the third layer is affine and its exact range over the box is a sum of rationals; its
    # bias puts 0 inside, so that the linear bounds are asked for, and they are tight up to rounding.
    rng = np.random.default_rng(seed)
    layers = [(rng.normal(size=(4, n)), 40.0 + rng.uniform(size=4)) for n in (3, 4, 4)]
    layers = [(np.abs(W), b) for W, b in layers[:2]] + layers[2:]
    middle = layers[1][0] @ layers[0][1] + layers[1][1]
    layers[2] = (layers[2][0], -layers[2][0] @ middle)
    net = rs.Network([*layers, (np.ones((1, 4)), None)])
    lower, upper = rng.uniform(-1, 0, 3), rng.uniform(0, 1, 3)
    C = [[Fraction(int(i == j)) for j in range(3)] for i in range(3)]
    d = [Fraction(0)] * 3
    for (W, b), bound in zip(layers, box_preactivations(net, lower, upper), strict=True):
        rows = [[Fraction(float(w)) for w in row] for row in W]
        d = [
            sum((w * v for w, v in zip(row, d, strict=True)), Fraction(float(c)))
            for row, c in zip(rows, b, strict=True)
        ]
        C = [[sum(w * C[k][j] for k, w in enumerate(row)) for j in range(3)] for row in rows]
        for i in range(4):
            ends = [
                sorted((c * Fraction(float(x)), c * Fraction(float(y))))
                for c, x, y in zip(C[i], lower, upper, strict=True)
            ]
            assert Fraction(float(bound.lower[i])) <= d[i] + sum(low for low, _ in ends)
            assert Fraction(float(bound.upper[i])) >= d[i] + sum(high for _, high in ends)
            if W is layers[2][0]:
                assert float(Fraction(float(bound.upper[i])) - d[i] - sum(high for _, high in ends)) < 1e-10


def test_linear_bounds_are_tighter_than_intervals_on_cancelling_layers():
    # y = relu(x) - relu(x) + 1 is 1: intervals alone leave it between -4 and 6.
    net = rs.Network([([[1.0], [1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [1.0]), ([[1.0]], [0.0])])
    bound = box_preactivations(net, np.array([0.5]), np.array([5.0]))[1]
    assert bound.lower[0] == pytest.approx(1.0)
    assert bound.upper[0] == pytest.approx(1.0)


def test_deep_networks_are_settled_as_far_as_the_budget_goes():
    net = random_net((2, *[10] * 20, 1), 1)
    found = stable_units(net, (-1.0, 1.0), budget="1200 regions")
    depth = found.settled_layers
    assert found.method == f"regions of the first {depth} layers"
    assert all((s != UNDECIDED).all() for s in found.state[:depth])
    assert found.count(UNDECIDED)[depth:].sum() > 0
    table = found.to_dict()
    total = table["always_on"] + table["always_off"] + table["switching"] + table["undecided"]
    assert (total == table["units"]).all()
    assert len(found.to_pandas()) == 20
    assert "undecided" in repr(found)


def test_many_inputs_use_bounds_and_affine_units_are_named():
    net = random_net((30, 20, 20, 1), 0, bias=3.0)
    found = stable_units(net, (-0.01, 0.01))
    assert found.method == "bounds"
    assert found.count(ON).sum() + found.count(OFF).sum() > 20
    carried = rs.Network([(np.eye(2), None, [rs.activations.relu(), rs.activations.identity()]), ([[1.0, 1.0]], None)])
    assert stable_units(carried, (-1.0, 1.0)).state[0].tolist() == [SWITCHES, AFFINE]


@pytest.mark.parametrize("box", [(1, 0), (0, np.inf), 3, ([0, 0, 0], 1)])
def test_bad_boxes_are_refused(box):
    with pytest.raises(InputError, match="box"):
        stable_units(random_net((2, 3, 1)), box)
    with pytest.raises(InputError, match="net must be"):
        stable_units("net", (0, 1))
