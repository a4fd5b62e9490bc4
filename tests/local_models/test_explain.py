"""Explanations: sums, scales, boundaries, neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import reluscope as rs
from nets import random_net


@settings(max_examples=25)
@given(st.integers(0, 300))
def test_contributions_boundary_and_neighbours_agree_with_the_enumeration(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    net = random_net((d, 5, 4, int(rng.integers(1, 3))), seed, ("relu", "hardtanh")[seed % 2])
    X = rng.normal(size=(30, d))
    u = rs.unwrap(net, X)
    every = rs.regions(net)
    e = u.explain(0)
    assert np.allclose(e.contribution.sum(axis=1) + e.d, net(X[0]))
    assert np.allclose(e.path.sum(axis=1) + e.base, net(X[0])) and np.allclose(e.base, net(X.mean(axis=0)))
    assert e.region == u.region[0] and e.count == u.count[u.region[0]] and e.error < 1e-12
    home = int(every.find(X[:1])[0])
    A, b = every.half_spaces(home)
    facets = every.facets(home)
    slack = b - A @ X[0]
    assert e.distance == pytest.approx(slack.min(), abs=1e-9)
    found = e.neighbours()
    assert {(n.layer, n.unit, n.step) for n in found} == {(f["layer"], f["unit"], f["break"]) for f in facets}
    theirs = {i for i in every.neighbours(home).tolist() if i >= 0}
    assert set(every._lookup(np.array([n.pattern for n in found])).tolist()) == theirs
    for n in found:
        # Continuity: the coefficients change along the facet's normal only.
        assert np.allclose(n.jump, np.outer(n.jump @ n.normal, n.normal), atol=1e-9)
        there = every.find(every.interior)[[int(every._lookup(n.pattern[None])[0])]]
        assert np.allclose(every.C[there[0]] - e.C, n.jump)


def test_margins_are_those_of_the_explanations():
    net = random_net((4, 10, 8, 2), 3)
    X = np.random.default_rng(0).normal(size=(40, 4))
    u = rs.unwrap(net, X)
    m = u.margins()
    for i in range(40):
        e = u.explain(i)
        assert m.distance[i] == pytest.approx(e.distance, rel=1e-9)
        assert (m.layer[i], m.unit[i], m.step[i]) == (e.nearest.layer, e.nearest.unit, e.nearest.step)
    # A step of 99.9 % of the distance never leaves the region, whatever the direction.
    step = np.random.default_rng(1).normal(size=X.shape)
    step *= 0.999 * m.distance[:, None] / np.linalg.norm(step, axis=1, keepdims=True)
    assert np.array_equal(net.pattern(X + step), net.pattern(X))


def test_closed_form():
    """max(x - 1, 0) + 2 max(-x - 3, 0) at x = 4: slope 1, boundary at 3, across it slope 0."""
    net = rs.Network([([[1.0], [-1.0]], [-1.0, -3.0]), ([[1.0, 2.0]], [0.0])])
    u = rs.unwrap(net, [[4.0], [0.0], [-5.0]])
    e = u.explain(0)
    assert e.C.tolist() == [[1.0]] and e.d.tolist() == [-1.0] and e.distance == pytest.approx(3.0)
    near = e.nearest
    assert (near.layer, near.unit, near.region, near.count) == (0, 0, int(u.region[1]), 1)
    assert near.jump.tolist() == [[-1.0]] and near.jump_size == 1.0
    outside = u.explain([0.5])
    assert outside.has_data and outside.C.tolist() == [[0.0]]
    assert [n.distance for n in outside.neighbours()] == pytest.approx([0.5, 3.5])


def test_facets_of_units_that_coincide():
    """Two units with one hyperplane, and one that feeds on the first: crossing flips all three."""
    net = rs.Network([([[1.0, 0.0], [2.0, 0.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]), ([[1.0]], [0.0])])
    u = rs.unwrap(net, [[-1.0, 0.0], [1.0, 0.0]])
    found = u.explain(0).neighbours()
    assert len(found) == 1
    assert found[0].pattern.tolist() == [1, 1, 1] and found[0].region == u.region[1]
    assert found[0].jump.tolist() == [[3.0, 0.0]]


@pytest.mark.parametrize("kind", [StandardScaler, MinMaxScaler, "pair"])
def test_original_units(kind):
    rng = np.random.default_rng(0)
    original = rng.normal(size=(50, 3)) * [1, 10, 100] + [5, 0, -7]
    if kind == "pair":
        scaler = (original.mean(axis=0), original.std(axis=0))
        X = (original - scaler[0]) / scaler[1]
    else:
        scaler = kind().fit(original)
        X = scaler.transform(original)
    net = random_net((3, 6, 1), 0)
    e = rs.unwrap(net, X, scaler=scaler).explain(7)
    value, coefficient, intercept = e.original
    assert np.allclose(value, original[7])
    assert np.allclose(coefficient @ value + intercept, net(X[7]))
    assert sum(row["local"] for row in e.rows()) + intercept[0] == pytest.approx(net(X[7])[0])
    assert len(e.to_pandas()) == 3 and "the nearest boundary is" in repr(e)


def test_a_region_without_data():
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    e = rs.unwrap(net, [[1.0]]).explain([-2.0])
    assert not e.has_data and e.region == -1 and e.count == 0 and "without data" in repr(e)


# -- contributions from a common reference -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relu", "hardtanh"])
def test_path_contributions_are_the_integral_of_the_gradient_and_add_up(kind):
    rng = np.random.default_rng(0)
    net = random_net((4, 9, 7, 2), 5, kind)
    X = rng.normal(size=(40, 4)) * 2
    u = rs.unwrap(net, X)
    found = u.contributions(reference=X[3])
    assert found.parts.shape == (40, 2, 4) and found.error < 1e-12
    assert np.abs(found.base + found.parts.sum(axis=2) - net(X)).max() < 1e-12
    assert np.allclose(found.base, net(X[3])) and not found.parts[3].any()
    t = (np.arange(20_000) + 0.5) / 20_000
    for i in (0, 17):
        C = net.local(X[3] + t[:, None] * (X[i] - X[3])).C
        assert np.allclose(found.parts[i], C.mean(axis=0) * (X[i] - X[3]), atol=3e-3)
    one = u.explain(X[17], reference=3)
    assert np.allclose(one.path, found.parts[17]) and np.allclose(one.base, found.base)
    assert one.reference.name == "row 3 of the data" and "row 3 of the data" in repr(one)


def test_the_base_is_the_network_at_the_reference_not_an_extrapolation():
    """The local model of a steep region, extended to the mean, gives what the network never takes; the same base serves
    all rows.
    """
    net = rs.Network([([[1.0]], [-3.0]), ([[10.0]], [1.0])])  # 1, and steep beyond 3
    X = np.array([[0.0], [0.5], [1.0], [4.0]])
    u = rs.unwrap(net, X)
    steep = u.explain(3)
    assert (steep.C @ u.centre + steep.d)[0] < -15  # what used to be called "at the mean"
    assert [u.explain(i).base[0] for i in range(4)] == [1.0] * 4
    assert steep.path[0, 0] == pytest.approx(10.0) and u.explain(0).path[0, 0] == 0.0
    assert [row["path"] for row in steep.rows()] == [pytest.approx(10.0)]


def test_references_and_groups():
    net = random_net((5, 8, 1), 2)
    X = np.random.default_rng(1).normal(size=(30, 5))
    u = rs.unwrap(net, X, feature_names=list("abcde"))
    for given_, x in (("mean", X.mean(axis=0)), ("median", np.median(X, axis=0)), (-1, X[-1]), (X[4], X[4])):
        assert np.allclose(u.contributions(reference=given_).reference, x)
        assert np.allclose(u.explain(0, reference=given_).base, net(x))
    plain = u.contributions().parts
    joined = u.contributions(groups={"both": ["b", "d"], "one": "e"})
    assert joined.names == ("a", "both", "c", "one")
    assert np.allclose(joined.parts[..., 1], plain[..., 1] + plain[..., 3])
    assert np.allclose(joined.parts[..., 3], plain[..., 4])
    assert len(joined.rows()) == 30 and joined.rows()[2]["output"] == pytest.approx(net(X[2])[0])
    assert "the mean of the data" in repr(joined)
    with pytest.raises(rs.InputError, match="groups must not share"):
        u.contributions(groups={"p": ["a", "b"], "q": ["b"]})
    with pytest.raises(rs.InputError, match="reference must be one row"):
        u.contributions(reference=X[:2])
    with pytest.raises(rs.InputError, match="reference must be one of 'mean', 'median'"):
        u.contributions(reference="mode")


def test_shapley_values_by_enumeration():
    """Against the definition, order by order; and for an additive network every way of sharing out is the same."""
    from itertools import permutations

    net = random_net((4, 7, 5, 1), 9)
    X = np.random.default_rng(3).normal(size=(6, 4))
    u = rs.unwrap(net, X)
    found = u.contributions(method="shapley", reference=X[0])
    want = np.zeros((6, 4))
    for order in permutations(range(4)):
        point = np.tile(X[0], (6, 1))
        before = net(point)[:, 0]
        for j in order:
            point[:, j] = X[:, j]
            after = net(point)[:, 0]
            want[:, j] += (after - before) / 24
            before = after
    assert np.allclose(found.parts[:, 0], want) and found.error < 1e-12
    additive = rs.Network([(np.eye(4), np.zeros(4)), (np.array([[1.0, -2.0, 3.0, 0.5]]), [0.0])])
    u = rs.unwrap(additive, X)
    assert np.allclose(u.contributions().parts, u.contributions(method="shapley").parts)
    pair = u.contributions(method="shapley", groups={"p": [0, 1]})
    assert np.allclose(pair.parts[..., 0], u.contributions().parts[..., :2].sum(axis=-1))
    wide = rs.unwrap(random_net((13, 4, 1), 0), np.zeros((2, 13)))
    with pytest.raises(rs.InputError, match="at most 12 features"):
        wide.contributions(method="shapley")


# -- reason codes --------------------------------------------------------------------------------------------------


def test_reasons_are_the_largest_contributions_towards_the_adverse_class():
    net = random_net((5, 9, 1), 4)
    X = np.random.default_rng(0).normal(size=(80, 5))
    y = np.where(net(X)[:, 0] > 0, "bad", "good")
    u = rs.unwrap(net, X, y, classes=["good", "bad"], feature_names=list("abcde"))
    parts = u.contributions(reference="median").parts[:, 0]
    for adverse, sign in ((None, 1.0), ("bad", 1.0), ("good", -1.0)):
        found = u.reasons(k=3, adverse=adverse, reference="median")
        assert found.feature.shape == found.push.shape == (80, 3)
        for i in range(80):
            pushes = sorted((p for p in (sign * parts[i]).tolist() if p > 0), reverse=True)[:3]
            assert np.allclose(found.push[i][found.feature[i] >= 0], pushes)
            assert all(sign * parts[i, j] > 0 for j in found.feature[i] if j >= 0)
    first = found.words(0)[0]
    name = found.names[found.feature[0, 0]]
    assert first.startswith(f"{name} is {X[0, 'abcde'.index(name)]:.6g} (reference") and "class good" in first
    assert found.rows()[0]["rank"] == 1 and len(found.to_pandas()) == (found.feature >= 0).sum()
    assert "against the median of the data" in repr(found)
    with pytest.raises(rs.InputError, match="adverse must be one of the classes"):
        u.reasons(adverse="ugly")
    with pytest.raises(rs.InputError, match="between classes"):
        rs.unwrap(net, X).reasons()


def test_reasons_join_the_inputs_of_a_category_and_speak_in_levels_and_units():
    schema = rs.Schema([rs.Column("SEX", "category", levels=["m", "f"]), rs.Column("debt", unit="k", scale=0.1)])
    net = rs.Network([([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 0.0]), ([[0.5, 1.0]], [-1.0])], schema=schema)
    table = {"SEX": ["m", "f", "m", "f"], "debt": [30.0, 5.0, 0.0, 10.0]}
    u = rs.unwrap(net, table, [1, 0, 0, 1])
    found = u.reasons(table, reference={"SEX": ["f"], "debt": [0.0]})
    assert found.names == ("SEX", "debt")
    assert found.words(0) == [
        "debt is 30 k (reference 0 k): raises the logit of class 1 by 3",
        "SEX is m (reference f): raises the logit of class 1 by 0.5",
    ]
    assert found.words(3) == ["debt is 10 k (reference 0 k): raises the logit of class 1 by 1"]
    assert np.allclose(found.contributions.base + found.contributions.parts.sum(axis=2), net(table))
