"""Counterfactuals: against mixed-integer programs that share no code with the search, against all whole-number changes
one by one, and against what they say of themselves."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

import reluscope as rs
from reluscope.answer import Status
from reluscope.errors import InputError
from reluscope.schema import Column, Output, Schema


def _net(rng: np.random.Generator, widths: tuple[int, ...]) -> rs.Network:
    layers = [(rng.normal(size=(o, i)) / np.sqrt(i), 0.5 * rng.normal(size=o)) for i, o in itertools.pairwise(widths)]
    return rs.Network(layers)


def _by_milp(net: rs.Network, x: np.ndarray, scale: np.ndarray, norm: str, box: float, target: int) -> float:
    """Least distance to the other side of 0 by big-M constraints and HiGHS' own branch and bound, in x itself."""
    d, M = net.n_inputs, 200.0
    sizes = [layer.width for layer in net.hidden]
    # Variables: x (d), u >= |x - x0| / scale (d) or their maximum (1), h and z and switch per layer.
    n_u = d if norm == "l1" else 1
    n = d + n_u + 3 * sum(sizes)
    cost = np.zeros(n)
    cost[d : d + n_u] = 1.0
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    low[:d], high[:d] = x - box, x + box
    low[d : d + n_u] = 0.0
    rows, lower, upper = [], [], []

    def add(entries: dict[int, float], lo: float, hi: float) -> None:
        row = np.zeros(n)
        for k, v in entries.items():
            row[k] += v
        rows.append(row)
        lower.append(lo)
        upper.append(hi)

    for j in range(d):
        u = d + (j if norm == "l1" else 0)
        add({j: 1 / scale[j], u: -1.0}, -np.inf, x[j] / scale[j])
        add({j: -1 / scale[j], u: -1.0}, -np.inf, -x[j] / scale[j])
    whole = np.zeros(n)
    before = list(range(d))
    at = d + n_u
    for layer in net.hidden:
        w = layer.width
        h, z, s = (range(at + i * w, at + (i + 1) * w) for i in range(3))
        at += 3 * w
        for i in range(w):
            W = layer.dense()[i]
            entries = dict(zip(before, W.tolist(), strict=True))
            entries[h[i]] = -1.0
            add(entries, -layer.bias[i], -layer.bias[i])
            low[z[i]], low[s[i]], high[s[i]], whole[s[i]] = 0.0, 0.0, 1.0, 1.0
            add({z[i]: 1.0, h[i]: -1.0}, 0.0, np.inf)
            add({z[i]: 1.0, h[i]: -1.0, s[i]: M}, -np.inf, M)
            add({z[i]: 1.0, s[i]: -M}, -np.inf, 0.0)
        before = list(z)
    last = net.layers[-1]
    out = dict(zip(before, last.dense()[0].tolist(), strict=True))
    add(out, -last.bias[0] if target == 1 else -np.inf, np.inf if target == 1 else -last.bias[0])
    done = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), lower, upper),
        integrality=whole,
        bounds=Bounds(low, high),
        options={"mip_rel_gap": 1e-9},
    )
    return float(done.fun) if done.status == 0 else np.inf


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_agrees_with_a_mixed_integer_program(norm):
    rng = np.random.default_rng(5)
    met = 0
    for _ in range(12):
        d = int(rng.integers(2, 5))
        net = _net(rng, (d, 8, 5, 1))
        x, scale = rng.normal(size=d), rng.uniform(0.5, 2.0, size=d)
        target = int(net(x[None])[0, 0] <= 0)
        truth = _by_milp(net, x, scale, norm, 3.0, target)
        names = [f"x{i}" for i in range(d)]
        found = rs.counterfactuals(
            net, x, scale=scale.tolist(), norm=norm, bounds={n: (v - 3, v + 3) for n, v in zip(names, x, strict=True)},
            budget="90s",
        )[0][0]  # fmt: skip
        assert found.proved
        if np.isinf(truth):
            assert found.x is None
            assert found.lower == np.inf
            continue
        met += 1
        assert found.distance == pytest.approx(truth, rel=3e-4, abs=1e-6)
        assert found.lower <= truth * (1 + 1e-6) + 1e-6
        gap = np.abs(found.x - x) / scale
        assert (gap.sum() if norm == "l1" else gap.max()) == pytest.approx(found.distance, rel=1e-9)
        assert int(net(found.x[None])[0, 0] > 0) == target
    assert met >= 5


def _mixed(rng: np.random.Generator) -> rs.Network:
    """Two whole numbers, a category of three levels, and one output with a cut-off on probabilities."""
    schema = Schema(
        (
            Column("age", "integer", "years", scale=0.5, shift=-1.0, support=(0, 6)),
            Column("job", "category", levels=["a", "b", "c"]),
            Column("late", "integer", support=(-2, 3)),
        ),
        (Output("PD", link="sigmoid"),),
        classes=("good", "bad"),
        cutoff=0.4,
    )
    return _net(rng, (5, 10, 6, 1)).with_schema(schema)


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_agrees_with_all_whole_number_changes(norm):
    rng = np.random.default_rng(8)
    flipped = none = 0
    for _ in range(30):
        net = _mixed(rng)
        ages, jobs, lates = range(7), "abc", range(-2, 4)
        all_rows = pd.DataFrame(list(itertools.product(ages, jobs, lates)), columns=["age", "job", "late"])
        decided = net.schema.decide(net(net.schema.encode(all_rows, quiet=True)))
        start = all_rows.iloc[[int(rng.integers(len(all_rows)))]]
        own = decided[start.index[0]]
        parts = np.stack(
            [
                (all_rows.age - start.age.iloc[0]).abs() / 2.0,
                (all_rows.job != start.job.iloc[0]) / 1.5,
                (all_rows.late - start.late.iloc[0]).abs() / 1.0,
            ]
        )
        distance = parts.sum(axis=0) if norm == "l1" else parts.max(axis=0)
        truth = distance[decided != own].min(initial=np.inf)
        found = rs.counterfactuals(net, start, scale={"age": 2.0, "job": 1.5, "late": 1.0}, norm=norm)[0][0]
        assert found.proved
        assert found.decision == ("good", "bad")[own]
        if np.isinf(truth):
            none += 1
            assert found.x is None
            assert "proved" in found.words()
            continue
        flipped += 1
        assert found.distance == pytest.approx(truth, rel=1e-9)
        moved = start.copy()
        for name, (old, new) in found.changes.items():
            assert start[name].iloc[0] == old
            moved[name] = new
        assert net.schema.decide(net(net.schema.encode(moved)))[0] != own
        assert (found.after > 0.4) == (own == 0)
        assert (found.before > 0.4) == (own == 1)
    assert flipped >= 8
    assert none + flipped == 30


def test_several_classes_reach_the_nearest_or_the_one_asked_for():
    rng = np.random.default_rng(4)
    net = _net(rng, (2, 6, 3))
    net = net.then(np.eye(3), -net(rng.normal(size=(200, 2))).mean(axis=0))
    grid = np.stack(np.meshgrid(*[np.linspace(-3, 3, 301)] * 2), axis=-1).reshape(-1, 2)
    decided = net(grid).argmax(axis=1)
    assert len(np.unique(decided)) == 3
    x = np.array([0.1, -0.2])
    own = int(net(x[None]).argmax())
    distance = np.abs(grid - x).sum(axis=1)
    box = {"x0": (-3, 3), "x1": (-3, 3)}
    for target in (None, *(k for k in range(3) if k != own)):
        truth = distance[decided != own if target is None else decided == target].min()
        found = rs.counterfactuals(net, x, target=target, bounds=box, scale=[1.0, 1.0])[0][0]
        assert found.proved
        assert truth - 0.05 <= found.distance <= truth
        assert int(net(found.x[None]).argmax()) == found.wanted
    assert rs.counterfactuals(net, x, target=own)[0][0].distance == 0.0


def test_diverse_ones_are_the_nearest_that_keep_a_changed_feature():
    net = rs.Network([(np.eye(3), np.zeros(3)), ([[1.0, 0.8, 0.5]], [-2.0])])  # for positive inputs linear
    found = rs.counterfactuals(net, [1.0, 0.1, 0.1], scale=[1.0] * 3, count=3)[0]
    assert [set(c.changes) for c in found] == [{"x0"}, {"x1"}, {"x2"}]
    need = 2.0 - (1.0 + 0.08 + 0.05)
    assert [c.distance for c in found] == pytest.approx([need, need / 0.8, need / 0.5], rel=1e-4)
    assert all(c.proved for c in found)
    assert [c.rank for c in found] == [1, 2, 3]


def test_chosen_features_directions_bounds_and_steps_are_kept():
    net = rs.Network([(np.eye(2), np.zeros(2)), ([[1.0, 1.0]], [-3.0])])
    x = [1.0, 1.0]
    assert set(rs.counterfactuals(net, x, change=["x1"])[0][0].changes) == {"x1"}
    assert set(rs.counterfactuals(net, x, change=1)[0][0].changes) == {"x1"}
    none = rs.counterfactuals(net, x, direction={"x0": "down"}, bounds={"x0": (0, 5), "x1": (0, 1.9)})[0][0]
    assert none.x is None
    assert none.proved
    assert none.lower == np.inf
    stepped = rs.counterfactuals(net, x, change=["x0"], steps={"x0": 0.4})[0][0]
    assert stepped.changes["x0"][1] == pytest.approx(2.2)  # 1 + 3 * 0.4 is the first above 2
    assert rs.counterfactuals(net, x, cutoff=1.0, change=["x0"])[0][0].changes["x0"][1] == pytest.approx(3.0, rel=1e-3)
    weighted = rs.counterfactuals(net, x, scale={"x0": 1.0, "x1": 10.0})[0][0]
    assert set(weighted.changes) == {"x1"}
    assert weighted.distance == pytest.approx(0.1, rel=1e-3)


def test_an_ended_budget_gives_the_best_so_far_and_a_sound_bound():
    rng = np.random.default_rng(11)
    net = _net(rng, (6, 24, 12, 1))
    x = rng.normal(size=6)
    net = net.then([[1.0]], -net(rng.normal(size=(200, 6))).mean(axis=0))
    box = {f"x{i}": (v - 4, v + 4) for i, v in enumerate(x)}
    short = rs.counterfactuals(net, x, bounds=box, scale=[1.0] * 6, budget="1 region")
    full = rs.counterfactuals(net, x, bounds=box, scale=[1.0] * 6, budget="30s")[0][0]
    first = short[0][0]
    assert full.proved
    assert not first.proved
    assert short.status is Status.BUDGET
    assert first.lower <= full.distance <= first.distance
    assert "best so far" in first.words()


def test_other_activations_are_cut_at_their_own_breaks():
    rng = np.random.default_rng(2)
    from reluscope.activations import hardtanh, leaky_relu

    layers = [
        (rng.normal(size=(6, 2)), rng.normal(size=6), hardtanh()),
        (rng.normal(size=(4, 6)), rng.normal(size=4), leaky_relu(0.1)),
        (rng.normal(size=(1, 4)), rng.normal(size=1)),
    ]
    net = rs.Network(layers)
    grid = np.stack(np.meshgrid(*[np.linspace(-3, 3, 401)] * 2), axis=-1).reshape(-1, 2)
    x = np.array([0.2, 0.4])
    side = net(grid)[:, 0] > 0
    assert 0 < side.mean() < 1
    own = bool(net(x[None])[0, 0] > 0)
    truth = np.abs(grid - x).sum(axis=1)[side != own].min()
    found = rs.counterfactuals(net, x, bounds={"x0": (-3, 3), "x1": (-3, 3)}, scale=[1.0, 1.0])[0][0]
    assert found.proved
    assert truth - 0.04 <= found.distance <= truth


def test_a_tie_is_no_other_decision():
    # Where both outputs are 0 the first of them still decides.
    net = rs.Network([([[1.0]], [2.0]), ([[-3.0], [-3.0]], [0.0, 0.0])])
    (found,) = rs.counterfactuals(net, [[1.0]], budget="0.5s")[0]
    assert found.x is None and found.distance == np.inf


def test_the_table_and_the_words():
    net = _mixed(np.random.default_rng(0))
    rows = pd.DataFrame({"age": [2, 3], "job": ["a", "c"], "late": [0, 1]})
    found = rs.counterfactuals(net, rows, data=rows)
    frame = found.to_pandas()
    assert list(frame["row"]) == [0, 1]
    assert {"decision", "wanted", "distance", "lower", "proved", "changes", "before", "after"} <= set(frame)
    assert "proved nearest" in repr(found)
    assert len(found) == 2
    assert found.proved == 2
    assert set(found.scale) == {"age", "job", "late"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "ugly"}, "target must be one of the classes"),
        ({"change": ["height"]}, "change: there is no column 'height'"),
        ({"bounds": {"age": (3, 1)}}, "bounds of age"),
        ({"bounds": {"job": ["z"]}}, "bounds of job"),
        ({"direction": {"job": "up"}}, "job is a category"),
        ({"direction": {"age": "left"}}, "direction of age"),
        ({"scale": {"age": 0.0}}, "scale of age"),
        ({"change": ["age"], "bounds": {"late": (0, 1)}}, "may not change"),
        ({"norm": "l7"}, "norm"),
        ({"count": 0}, "count"),
    ],
)
def test_bad_arguments_are_named(options, words):
    net = _mixed(np.random.default_rng(0))
    row = pd.DataFrame({"age": [2], "job": ["a"], "late": [0]})
    with pytest.raises(InputError, match=words):
        rs.counterfactuals(net, row, **options)


def test_a_fractional_value_in_a_whole_number_column_is_refused():
    net = _mixed(np.random.default_rng(0))
    row = pd.DataFrame({"age": [2.5], "job": ["a"], "late": [0]})
    with pytest.raises(InputError, match="whole numbers"):
        rs.counterfactuals(net, row)


def test_a_network_without_hidden_units():
    net = rs.Network([([[2.0, -1.0], [2.0, -1.0]], [0.5, 0.5])])  # always a tie
    (found,) = rs.counterfactuals(net, [[1.0, 0.0]], budget="0.5s")[0]
    assert found.x is None and "tie" in found.note
    net = rs.Network([([[2.0, -1.0]], [-3.0])])
    (found,) = rs.counterfactuals(net, [[1.0, 0.0]])[0]
    assert found.proved and found.distance == pytest.approx(0.5, rel=1e-4)


def test_ranges_and_whole_numbers_come_from_the_rows_and_are_said():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(1, 50, 80) * 1000.0, rng.integers(-2, 4, 80).astype(float), rng.normal(size=80)])
    net = rs.Network([(np.diag([1e-4, 1.0, 1.0]), np.zeros(3)), ([[-1.0, 1.3, 0.4]], [-1.0])])
    y = (net(X)[:, 0] > 0) * 1
    u = rs.unwrap(net, X, y, feature_names=["limit", "delay", "z"])
    i = int(np.flatnonzero(y == 1)[0])
    found = u.counterfactuals(i, change=["limit", "delay"])
    assert found.bounds == {"limit": (X[:, 0].min(), X[:, 0].max()), "delay": (-2.0, 3.0)}
    assert found.steps == {"limit": 1.0, "delay": 1.0}
    assert "limit 1000 to 49000 in steps of 1, delay -2 to 3 in steps of 1 (bounds=, steps=)" in repr(found)
    assert len(found[0][0].changes) >= 1
    for name, (_, new) in found[0][0].changes.items():
        assert new == round(new) and found.bounds[name][0] <= new <= found.bounds[name][1]
    free = u.counterfactuals(i, change=["limit", "delay"], steps={"delay": 0}, bounds={"limit": (-np.inf, np.inf)})
    assert free.steps["delay"] == 0 and free[0][0].distance < found[0][0].distance
    assert u.counterfactuals(i, change=["z"]).steps == {"z": 0.0}


def test_fewer_ways_than_asked_for_are_explained():
    net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [5.0, 5.0]), ([[1.0, 0.0]], [-5.0])])
    found = rs.counterfactuals(net, [[1.0, 1.0]], count=3, scale=[1.0, 1.0], bounds={"x0": (-3, 3), "x1": (-3, 3)})
    assert len(found[0]) == 1 and found[0][0].note.startswith("no further way was found")
    assert "1 rows have fewer than asked for: no further way was found" in repr(found)
