"""Where the sources are wrong: every row of docs/errata.md names a test that exists; and tests that stand nowhere else.

Each test computes what is printed and what holds, and sees that they differ.
"""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answers._marginals import marginals
from reluscope.reproduce.recover import conjectures

TESTS = Path(__file__).resolve().parent
ERRATA = TESTS.parent / "docs" / "errata.md"


def rows():
    text = ERRATA.read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if re.match(r"\| [RTS] ", line)
    ]


def test_every_row_names_a_test_that_exists():
    found = rows()
    assert len(found) >= 33
    for place, *_, pinned in found:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", pinned)
        assert named, f"{place}: no test is named"
        for file, test in named:
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (place, file, test)


def test_flipping_violated_bits_gives_the_pattern_in_one_layer_only():
    def flipped(net, x):
        start = net.pattern(np.zeros((1, net.n_inputs)))[0]
        h = np.concatenate([m.C @ x + m.d for m in [_hidden(net, start)]])
        return (h > 0).astype(start.dtype)

    X = np.random.default_rng(0).normal(size=(300, 2))
    shallow, deep = random_net((2, 6, 1), 1, bias=0.5), random_net((2, 6, 6, 1), 1, bias=0.5)
    assert all((flipped(shallow, x) == shallow.pattern(x[None])[0]).all() for x in X)
    wrong = [(flipped(deep, x) != deep.pattern(x[None])[0]) for x in X]
    assert not any(w[:6].any() for w in wrong)  # the first layer is right
    assert sum(w[6:].any() for w in wrong) > 30


class _hidden:
    """All hidden pre-activations `C x + d` of one pattern, written out."""

    def __init__(self, net, pattern):
        C, d, self.C, self.d, k = np.eye(net.n_inputs), np.zeros(net.n_inputs), [], [], 0
        for layer in net.hidden:
            C, d = layer.dense() @ C, layer.dense() @ d + layer.bias
            self.C.append(C)
            self.d.append(d)
            on = pattern[k : k + layer.width].astype(float)
            C, d, k = on[:, None] * C, on * d, k + layer.width
        self.C, self.d = np.concatenate(self.C), np.concatenate(self.d)


def test_algorithm_1_has_marginals_and_no_conditional_probabilities():
    # h0 = x, then h1 = relu(x) - 1/2 on x ~ N(0, 1). Given that the first unit is on, P(h1 > 0 | x > 0) = 2 Phi(-1/2);
    # the algorithm takes the whole Gaussian through the chosen map, Phi(-1/2).
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [-0.5]), ([[1.0]], None)])
    law = rs.Gaussian([0.0])
    half = 0.3085375387259869
    chosen = [np.array([[[1.0, -0.5]]])]  # the second unit's map on x > 0
    assert marginals(net.layers[1].units, chosen, np.ones(1))[0, 0, 1] == pytest.approx(half)
    both = rs.probability(net, law, "y[0] > 0").value / rs.probability(net, law, "x[0] > 0").value
    assert both == pytest.approx(2 * half)
    # So the sum of the set's own scores is not its mass.
    chosen_set = rs.support(net, law, 0.5)
    assert chosen_set.mass().value == pytest.approx(1)


def test_a_region_is_where_signs_agree_with_the_units():
    # Def. 2.3.13 as printed, (-1)^a (z - b) > 0 with a in {-1, 1}, has one sign for both values of a.
    net = random_net((2, 5, 1), 3, bias=0.7)
    X = np.random.default_rng(1).uniform(-2, 2, (400, 2))
    z, b = net.preactivations(X)[0], net.layers[0].bias
    a = np.where(net.pattern(X) > 0, 1, -1)
    assert (a * z > 0).all()
    assert not ((-1.0) ** np.abs(a) * (z - b) > 0).all(axis=1).any()


def test_bounded_functions_with_unbounded_slopes_have_no_limit():
    # Steps from 0 to 1 within 1/k: bounded by 1, far apart however large k is, so no subsequence converges.
    def step(k):
        return rs.Network([([[k], [k]], [0.0, -1.0]), ([[1.0, -1.0]], None)])

    for k in (2.0, 20.0, 200.0):
        gap = rs.distance(step(k), step(4 * k), (-1.0, 1.0), float("inf"))
        assert gap.lower >= 0.7
        assert np.abs(rs.regions(step(k), (-1.0, 1.0)).C).max() == pytest.approx(k)


def test_nearly_disjoint_balls_are_worse_than_a_constant():
    net = random_net((2, 8, 1), 2, bias=0.5)
    errors = {}
    for overlap in (0.3, 1.0):
        fit = rs.recover(
            rs.Oracle(net, gradient=True), (-2, 2), method="samples", samples=60, overlap=overlap, rng=0, check=0
        )
        errors[overlap] = np.sqrt(fit.result.objective) / fit.result.spread
    assert errors[0.3] > 1.0 > errors[1.0]


def test_the_count_of_interactions_does_not_follow_the_regions():
    few, many = (conjectures(widths, 40) for widths in ((2, 5, 1), (2, 30, 1)))
    assert many["regions"] > 10 * few["regions"]
    assert many["non-zero interactions"] < 3 * few["non-zero interactions"]


def test_the_count_of_lasso_weights_follows_the_samples():
    counts = [conjectures((2, 5, 1), samples)["non-zero weights"] for samples in (30, 90)]
    assert counts[0] > 2 * 5 and counts[1] > 1.5 * counts[0]


def test_regions_of_a_single_class_are_not_those_of_a_single_row():
    # The share of the slides is that of one class; rows that share a region have one class far more often than not.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int)
    net = random_net((2, 12, 12, 1), 0, bias=0.5)
    facts = rs.unwrap(net, X, y).describe()
    region = np.unique(net.pattern(X), axis=0, return_inverse=True)[1]
    sizes = np.bincount(region)
    classes = np.array([len(set(y[region == r])) for r in range(len(sizes))])
    assert facts["single_row_share"] == pytest.approx((sizes == 1).mean())
    assert facts["single_class_share"] == pytest.approx((classes == 1).mean())
    assert facts["single_class_share"] > facts["single_row_share"] + 0.1
