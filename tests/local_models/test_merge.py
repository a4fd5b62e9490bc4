"""Merging, pruning, flattening, saving."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_circles

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError
from reluscope.local_models import MergedModels, _adjacency, merge
from reluscope.local_models._agglomerate import Polish, agglomerate
from reluscope.local_models._grouping import pack
from reluscope.local_models.merge import candidates
from reluscope.local_models.table import pooled


def slow_agglomeration(theta, gram, edges):
    """The definition, by trying all pairs at every step."""
    n = len(theta)
    nodes = {i: (theta[i], gram[i]) for i in range(n)}
    links = {tuple(sorted(e)) for e in edges.tolist()}
    merges, costs = [], []
    for k in range(n - 1):
        best = None
        for a, b in links:
            (ta, A), (tb, B) = nodes[a], nodes[b]
            gap = ta - tb
            cost = np.sum(gap * (A @ np.linalg.solve(A + B, B @ gap)))
            if best is None or cost < best[0]:
                best = (cost, a, b)
        cost, a, b = best
        (ta, A), (tb, B) = nodes.pop(a), nodes.pop(b)
        nodes[n + k] = (np.linalg.solve(A + B, A @ ta + B @ tb), A + B)
        rename = {a: n + k, b: n + k}
        links = {tuple(sorted((rename.get(i, i), rename.get(j, j)))) for i, j in links}
        links = {link for link in links if link[0] != link[1]}
        merges.append({a, b})
        costs.append(cost)
    return merges, costs


@settings(max_examples=25)
@given(st.integers(0, 500))
def test_agglomeration_by_definition(seed):
    rng = np.random.default_rng(seed)
    n, p, m = int(rng.integers(2, 14)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    theta = rng.normal(size=(n, p, m))
    factor = rng.normal(size=(n, p, p + 2))
    gram = factor @ factor.transpose(0, 2, 1)
    tree = np.column_stack([np.arange(1, n), [rng.integers(0, k) for k in range(1, n)]])
    extra = rng.integers(0, n, (n, 2))
    edges = np.concatenate([tree, extra[extra[:, 0] != extra[:, 1]]])
    expected, theirs = slow_agglomeration(theta, gram, edges)
    # Bounds on the costs only spare work: any floor below the smallest eigenvalues gives the same merges.
    for floor in (None, 0.5 * np.linalg.eigvalsh(gram)[:, 0], np.linalg.eigvalsh(gram)[:, 0] * (1 - 1e-9)):
        merges, costs = agglomerate(theta, gram, edges, floor)
        assert [set(pair) for pair in merges.tolist()] == expected
        assert np.allclose(costs, theirs)


def test_polishing_never_raises_the_cost():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(40, 2, 1))
    factor = rng.normal(size=(40, 2, 3))
    gram = factor @ factor.transpose(0, 2, 1)
    edges = np.column_stack([np.arange(39), np.arange(1, 40)])

    def cost(label):
        total = 0.0
        for k in range(4):
            A, t = gram[label == k], theta[label == k]
            common = np.linalg.solve(A.sum(axis=0), (A @ t).sum(axis=0))
            total += sum(((x - common).T @ B @ (x - common)).item() for x, B in zip(t, A, strict=True))
        return total

    label = np.repeat(np.arange(4), 10)
    costs = [cost(Polish(theta, gram, edges)(label, r)) for r in (0, 1, 2, 10)]
    assert costs[0] > costs[-1]
    assert (np.diff(costs) <= 1e-9).all()
    assert set(Polish(theta, gram, edges)(label, 10)) == {0, 1, 2, 3}


def folded(n=300, seed=0, noise=0.0):
    """|x0| + x1 by a network that cuts its two halves into many regions; the truth is two linear models."""
    rng = np.random.default_rng(seed)
    cuts = np.linspace(-0.9, 0.9, 6)
    W = np.vstack([[[1.0, 0.0]], [[-1.0, 0.0]], np.tile([[0.0, 1.0]], (6, 1)), [[0.0, 1.0]], [[0.0, -1.0]]])
    b = np.concatenate([[0.0, 0.0], -cuts, [0.0, 0.0]])
    top = np.array([[1.0, 1.0, *([0.0] * 6), 1.0, -1.0]])
    net = rs.Network([(W, b), (top, [0.0])])
    X = rng.uniform(-1, 1, (n, 2))
    return net, X, net(X)[:, 0] + noise * rng.normal(size=n)


@pytest.mark.parametrize("adjacency", ["facets", "nearest"])
def test_regions_of_the_same_function_are_merged(adjacency):
    net, X, y = folded()
    u = rs.unwrap(net, X, y, task="regression")
    assert len(u) == 16
    m = u.merge(2, adjacency=adjacency, penalty=1e-9)
    assert m.adjacency == adjacency and len(m) == 2 and m.count.sum() == 300
    assert np.allclose(np.abs(m.C[:, 0, 0]), 1, atol=1e-6) and np.allclose(m.C[:, 0, 1], 1, atol=1e-6)
    new = np.random.default_rng(5).uniform(-1, 1, (500, 2))
    assert np.allclose(m.predict(new), np.abs(new[:, 0]) + new[:, 1], atol=1e-5)
    assert 1 - m.score(new, np.abs(new[:, 0]) + new[:, 1]) < 1e-9
    assert m.intervals(0).rows_used == m.count[0]


def test_cross_validation_finds_two_models():
    net, X, y = folded(400, 1, 0.05)
    m = rs.unwrap(net, X, y, task="regression").merge(most=8)
    assert len(m) == 2
    by_n = {v.n: v for v in m.validation}
    best = min(m.validation, key=lambda v: v.loss)
    assert by_n[2].chosen and by_n[2].loss <= best.loss + best.error < by_n[1].loss
    assert candidates(20) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 19, 20]


def circles(seed=0):
    X, y = make_circles(500, noise=0.1, factor=0.5, random_state=seed)
    model = rs.ReluClassifier((12, 12), epochs=80, rate=1e-2, batch=50).fit(X, y)
    return model.network_, X, y


def test_classes_pruning_and_flattening():
    net, X, y = circles()
    labels = np.array(["no", "yes"])[y]
    u = rs.unwrap(net, X, labels)
    m = u.merge(6)
    assert m.adjacency == "facets" and set(m.predict(X)) <= {"no", "yes"}
    assert m.score(X, labels) > 0.9
    proba = m.predict_proba(X)
    assert np.allclose(proba.sum(axis=1), 1) and np.array_equal(proba[:, 1] > 0.5, m.predict(X) == "yes")
    assert np.array_equal(m.assign(X), m.cluster_of_region[u.region])
    far = np.random.default_rng(0).uniform(-1.2, 1.2, (400, 2))
    assert (u.find(far) < 0).any() and m.assign(far).max() < 6  # rows in regions without data get a model too
    small = u.prune(10)
    large = np.flatnonzero(u.count >= 10)
    assert len(small) == len(large)
    rows = np.isin(u.region, large)
    assert np.allclose(small.outputs(X[rows]), net(X[rows]))  # large regions keep the network's own models
    assert u.prune(10, refit=True).score(X, labels) > 0.9
    with pytest.raises(InputError, match="no region has"):
        u.prune(10_000)
    flat = m.flatten(epochs=60)
    assert isinstance(flat, rs.Network) and len(flat.hidden) == 1 and flat.hidden[0].width == 12
    assert rs.unwrap(flat, X, labels).score > 0.9
    start = m.flatten(tune=False)
    assert np.allclose(np.abs(start.layers[0].weight[:6]), np.abs(start.layers[0].weight[6:]))


def test_several_classes_and_weights():
    net = random_net((3, 8, 3), 2)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = net(X).argmax(axis=1)
    u = rs.unwrap(net, X, y, sample_weight=rng.uniform(0.5, 1.5, 300))
    m = u.merge(5)
    assert m.adjacency == "facets" and m.metric == "accuracy" and m.score(X, y) > 0.9
    assert m.predict_proba(X).shape == (300, 3)
    assert u.flatten(3, epochs=20).n_outputs == 3


def test_saved_models_predict_the_same(tmp_path):
    net, X, y = circles()
    m = rs.unwrap(net, X, y).merge(5)
    m.save(tmp_path / "m.npz")
    back = rs.local_models.MergedModels.load(tmp_path / "m.npz")
    new = np.random.default_rng(0).uniform(-1.5, 1.5, (300, 2))
    assert np.array_equal(back.outputs(new), m.outputs(new)) and np.array_equal(back.predict(new), m.predict(new))
    assert back.score(X, y) == m.score(X, y) and back.table_rows() == m.table_rows()
    with pytest.raises(InputError, match="needs the data"):
        back.flatten()
    with pytest.raises(InputError, match=r"saved as \.npz"):
        m.save(tmp_path / "m.csv")


PLACES = ("owner", "cluster_of_centroid", "cluster_of_region", "tree.merges")


@pytest.mark.parametrize("field", [*PLACES, "C", "words", "centroid", "facts"])
def test_damaged_files_are_refused(tmp_path, field):
    net, X, y = circles()
    rs.unwrap(net, X, y).merge(5).save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as file:
        arrays = dict(file)
    arrays[field] = arrays[field] + 100 if field in PLACES else arrays[field][:-1]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match="damaged"):
        rs.local_models.MergedModels.load(tmp_path / "bad.npz")


def test_what_cannot_be_merged():
    net, X, y = folded()
    with pytest.raises(InputError, match="needs a response"):
        rs.unwrap(net, X).merge(2)
    u = rs.unwrap(net, X, y, task="regression")
    with pytest.raises(InputError, match="between 1 and 16"):
        u.merge(17)
    with pytest.raises(InputError, match="adjacency must be one of"):
        u.merge(2, adjacency="near")
    with pytest.raises(InputError, match="predict_proba is for classes"):
        u.merge(2).predict_proba(X)
    with pytest.raises(InputError, match="could not all be listed"):
        u.merge(2, adjacency="facets", budget="1 regions")


def test_dendrogram_in_scipys_form():
    from scipy.cluster.hierarchy import is_valid_linkage

    net, X, y = circles()
    tree = rs.unwrap(net, X, y).merge(4).dendrogram
    Z, weight = tree.linkage(12)
    assert is_valid_linkage(Z) and weight.sum() == 500 and (np.diff(Z[:, 2]) >= 0).all()
    for n in (1, 5, len(tree)):
        assert len(np.unique(tree.nodes(n))) == n


def test_empty_regions_belong_to_the_side_with_the_same_function():
    net, X, y = folded(600)
    hole = (X[:, 1] > 0.17) & (X[:, 1] < 0.55)  # one strip of regions on either side of the fold
    m = rs.unwrap(net, X[~hole], y[~hole], task="regression").merge(2, adjacency="facets", penalty=1e-9)
    new = np.column_stack([np.linspace(-0.95, 0.95, 40), np.full(40, 0.35)])
    assert (m.unwrapped.find(new) < 0).all()
    assert np.allclose(m.predict(new), np.abs(new[:, 0]) + new[:, 1], atol=1e-5)


def test_the_seed_of_a_merge_repeats_it():
    net, X, y = folded(300, 3, 0.5)
    m = rs.unwrap(net, X, y, task="regression").merge(most=10)
    again = rs.unwrap(net, X, y, task="regression").merge(most=10, rng=m.seed)
    other = rs.unwrap(net, X, y, task="regression").merge(most=10, rng=m.seed + 1)
    assert again.validation == m.validation and again.seed == m.seed
    assert other.validation != m.validation
    assert m.unwrapped.merge(2).seed is None  # nothing was drawn


def test_two_merges_of_the_same_data_agree_and_say_how_the_number_was_chosen():
    net, X, y = folded(300, 3, 0.5)
    first, second = (rs.unwrap(net, X, y, task="regression").merge(most=10, penalty=1e-3) for _ in range(2))
    assert first.seed == second.seed == 0 and first.validation == second.validation
    assert np.array_equal(first.C, second.C)
    best = min(first.validation, key=lambda v: v.loss)
    good = [v.n for v in first.validation if v.loss <= best.loss + best.error]
    assert len(good) > 2 and good == list(range(good[0], good[-1] + 1))
    assert first.within_one_error() == good and good[0] == len(first)
    head = repr(first).splitlines()[0]
    says = f"{good[0]} to {good[-1]} are within one standard error of the best ({best.n})"
    assert f"; {len(first)} chosen by cross-validation (seed 0): {says}; " in head
    assert "chosen by" not in repr(first.unwrapped.merge(2)) and first.unwrapped.merge(2).within_one_error() == []


def test_levels_with_one_class_are_named_beside_the_models():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [100, 60, 3])
    X = np.column_stack([kind == 0, kind == 1, kind == 2, rng.normal(size=163)]).astype(float)
    y = np.where(kind == 2, 0, rng.integers(0, 2, 163))
    names = ["A=0", "A=1", "A=2", "b"]
    u = rs.unwrap(random_net((4, 3, 1), 0), X, y, feature_names=names)
    m = u.merge(1)
    assert m.single_class_levels() == [{"cluster": 0, "feature": "A=2", "rows": 3, "class": 0}]
    assert "only the ridge gives them their size: A=2 in cluster 0 (3 rows, all 0)" in repr(m)
    assert "no finite estimate: A=2 in cluster 0" in repr(u.merge(1, penalty=0.0))
    fine = rs.unwrap(random_net((4, 3, 1), 0), X, np.where(np.arange(163) == 162, 1, y), feature_names=names).merge(1)
    assert fine.single_class_levels() == [] and "one class alone" not in repr(fine)


def test_the_held_out_losses_by_definition():
    net, X, y = folded(60, 3, 0.5)
    w = np.random.default_rng(1).uniform(0.5, 2, 60)
    u = rs.unwrap(net, X, y, task="regression", sample_weight=w)
    m = u.merge(most=2, folds=3, repeats=2, penalty=0.0, rng=5)
    rng, loss = np.random.default_rng(5), np.zeros((2, 60))
    clusters = [u.merge(k).cluster_of_region[u.region] for k in (1, 2)]
    for _ in range(2):
        fold = np.empty(60, dtype=int)
        fold[rng.permutation(60)] = np.arange(60) % 3
        for (f, k), c in zip(np.ndindex(3, 2), clusters * 3, strict=True):
            for own in np.unique(c):
                fit, held = (fold != f) & (c == own), (fold == f) & (c == own)
                Z = np.column_stack([X, np.ones(60)])
                root = np.sqrt(w[fit])[:, None]
                beta = np.linalg.lstsq(root * Z[fit], root[:, 0] * y[fit], rcond=None)[0]
                loss[k, held] += (y[held] - Z[held] @ beta) ** 2 / 2
    for v, rows in zip(m.validation, loss, strict=True):
        mean = np.average(rows, weights=w)
        error = np.sqrt(60 / 59 * (w**2 @ (rows - mean) ** 2)) / w.sum()
        assert (v.loss, v.error) == (pytest.approx(mean, rel=1e-9), pytest.approx(error, rel=1e-9))


def test_the_rule_of_one_standard_error():
    net, X, y = folded(300, 3, 0.5)  # noise, so that the best number is not the smallest good one
    m = rs.unwrap(net, X, y, task="regression").merge(most=10, penalty=1e-3, rng=0)
    best = min(m.validation, key=lambda v: v.loss)
    chosen = min(v.n for v in m.validation if v.loss <= best.loss + best.error)
    assert len(m) == chosen < best.n
    assert [v.n for v in m.validation if v.chosen] == [chosen]


@settings(max_examples=20)
@given(st.integers(0, 300))
def test_polishing_by_definition(seed):
    """Rounds of trying every neighbouring cluster, with all sums made anew."""
    rng = np.random.default_rng(seed)
    n, p, m, k = 30, int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(2, 6))
    theta, factor = rng.normal(size=(n, p, m)), rng.normal(size=(n, p, p + 1))
    gram = factor @ factor.transpose(0, 2, 1)
    edges = np.concatenate([np.column_stack([np.arange(n - 1), np.arange(1, n)]), rng.integers(0, n, (20, 2))])
    label = rng.permutation(np.arange(n) % k)
    expected = label.copy()
    for _ in range(4):
        common = [
            np.linalg.solve(gram[expected == c].sum(axis=0), (gram[expected == c] @ theta[expected == c]).sum(axis=0))
            for c in range(k)
        ]
        best = expected.copy()
        for i in range(n):
            beside = {expected[b] for a, b in edges if a == i} | {expected[a] for a, b in edges if b == i}
            cost = {c: np.sum((theta[i] - common[c]) * (gram[i] @ (theta[i] - common[c]))) for c in beside | {best[i]}}
            best[i] = min(cost, key=cost.get)
        for c in set(expected) - set(best):
            best[expected == c] = c
        expected = best
    assert np.array_equal(Polish(theta, gram, edges)(label, 4), expected)


@pytest.mark.parametrize("inputs", [3, 14])
def test_nearest_points_by_trees_and_by_pairs(inputs):
    points = np.random.default_rng(0).normal(size=(700, inputs)) + 100
    near = np.sort(_adjacency._nearest(points, 6), axis=1)
    apart = ((points[:, None] - points) ** 2).sum(axis=2)
    assert np.array_equal(near, np.sort(np.argsort(apart, axis=1)[:, :6], axis=1))


def test_a_merge_is_not_made_twice(monkeypatch):
    net, X, y = circles()
    u = rs.unwrap(net, X, y)
    made = []
    slow = merge.agglomerate
    monkeypatch.setattr(merge, "agglomerate", lambda *a: made.append(len(a[0])) or slow(*a))
    notes = []
    m = u.merge(most=5, progress=lambda done, text: notes.append(text))
    assert any("fold 3 of 25" in text for text in notes) and any("cutting the tree" in text for text in notes)
    assert u.merge(most=5) is m and len(made) == 1
    assert u.merge(4) is u.merge(4) and len(made) == 1  # another number of models: the same tree
    u.flatten(4, tune=False)
    assert len(made) == 1
    fitted = []
    monkeypatch.setattr(merge, "_validate", lambda *a: fitted.append(1))
    u.merge(4)
    assert not fitted
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    assert u.merge(most=3, rng=rng) is not u.merge(most=3, rng=rng)  # a generator goes on
    assert u.merge(4, penalty=7.0) is not u.merge(4)
    fresh = rs.unwrap(net, X, y).merge(4)
    assert np.array_equal(fresh.C, u.merge(4).C)
    for n in range(1, 9):
        u.merge(n)
    assert len(u._memory["merge"]) == 4 and len(u._memory["tree"]) == 1


def test_cross_validation_reports_its_progress(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    net, X, y = folded()
    rs.unwrap(net, X, y, task="regression").merge(most=3, progress="auto")
    assert "merge" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_dropped_regions_are_adopted_where_they_cost_least(task, weighted):
    outputs = 3 if task == "multiclass" else 1
    net = random_net((3, 7, outputs), 4)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 3))
    eta = net(X)
    y = {"regression": eta[:, 0], "binary": (eta[:, 0] > 0) * 1, "multiclass": eta.argmax(axis=1), "none": None}[task]
    w = rng.uniform(0.2, 2, 250) if weighted else np.ones(250)
    u = rs.unwrap(net, X, y, sample_weight=w if weighted else None)
    m = u.prune(12, breadth=0.3)
    kept = np.flatnonzero(u.count >= 12)
    assert sorted(m.kept_region.tolist()) == kept.tolist() and np.array_equal(m.own_count, u.count[m.kept_region])
    if task in ("regression", "none"):
        h = w
    else:
        p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True) if outputs == 3 else 1 / (1 + np.exp(-eta))
        h = w * (p * (1 - p)).mean(axis=1)  # of two classes: the same for both
    centre = np.eye(3) - 1 / 3 if outputs == 3 else np.eye(1)
    C, d = u.maps()
    for r in range(len(u)):
        if u.count[r] >= 12:
            assert m.kept_region[m.cluster_of_region[r]] == r
            continue
        rows = u.region == r
        costs = []
        for k in kept:
            gap = (X @ (C[k] - C[r]).T + d[k] - d[r]) @ centre  # difference of the two models on all rows
            square = (gap**2).sum(axis=1)
            costs.append(h[rows] @ square[rows] + 0.3 * h[rows].sum() * np.average(square, weights=w))
        assert m.kept_region[m.cluster_of_region[r]] == kept[np.argmin(costs)]
    assert np.allclose(m.outputs(X)[np.isin(u.region, kept)], eta[np.isin(u.region, kept)])


def test_pruned_tables_tell_own_rows_from_adopted_ones(tmp_path):
    net, X, y = circles()
    u = rs.unwrap(net, X, y)
    m = u.prune(10)
    rows = m.table_rows()
    assert list(rows[0])[:5] == ["cluster", "region", "own", "adopted", "count"]
    assert all(row["own"] + row["adopted"] == row["count"] and row["own"] == u.count[row["region"]] for row in rows)
    own = int(u.count[u.count >= 10].sum())
    text = repr(m)
    assert f"{len(m)} of {len(u)} regions kept" in text and f"{own} rows of their own, {500 - own} rows" in text
    assert m.data_score == pytest.approx(m.score(X, y))
    assert f"auc {m.data_score:.4f} on these data (network {u.score:.4f})" in text
    assert f"auc {u.merge(3).data_score:.4f} on these data" in repr(u.merge(3)) and "adopted" not in repr(u.merge(3))
    m.save(tmp_path / "m.npz")
    back = rs.local_models.MergedModels.load(tmp_path / "m.npz")
    assert back.table_rows() == rows and np.isnan(back.data_score) and "on these data" not in repr(back)
    with np.load(tmp_path / "m.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "bad.npz", **(arrays | {"own_count": arrays["own_count"][:-1]}))
    with pytest.raises(InputError, match="damaged"):
        rs.local_models.MergedModels.load(tmp_path / "bad.npz")


def test_regions_are_adopted_by_the_side_with_the_same_function():
    """|x0| + x1, few regions kept: each strip joins a kept one of its own slope, however near the other side is."""
    net, X, y = folded(400)
    u = rs.unwrap(net, X, y, task="regression")
    slope = u.coefficients[:, 0, 0]
    both = next(k for k in range(2, 17) if len(set(slope[:k])) == 2)  # the first regions that hold both slopes
    m = u.prune(int(u.count[both - 1]))
    assert len(m) < 8 and m.data_score == 1.0
    assert np.array_equal(m.C[m.cluster_of_region, 0, 0], slope)


def test_the_heading_says_that_refits_are_shrunk(tmp_path):
    net, X, y = circles()
    u = rs.unwrap(net, X, y)
    m = u.merge(3)
    assert m.penalty == 1.0 and "ridge of 1 towards the one model of all rows" in repr(m)
    m.save(tmp_path / "m.npz")
    assert "ridge of 1 towards" in repr(MergedModels.load(tmp_path / "m.npz"))
    free = u.merge(3, penalty=0.0)
    assert free.penalty == 0.0 and "maximum likelihood" in repr(free)
    own = u.prune(5)
    assert own.penalty is None and "refitted" not in repr(own) and u.prune(5, refit=True).penalty == 1.0


# -- model files hold no data --------------------------------------------------------------------------------------


def held(thing, depth=0):
    """All arrays of numbers that a pickled object holds, however deep."""
    if isinstance(thing, np.ndarray):
        return [thing] if thing.dtype.kind == "f" else []
    inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else []
    state = thing.__reduce_ex__(4)[2] if not inside and hasattr(thing, "__dict__") and depth < 12 else None
    parts = [*inside, *((state,) if isinstance(state, dict) else state if isinstance(state, tuple) else ())]
    return [a for part in parts for a in held(part, depth + 1)]


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_pickled_estimators_and_saved_models_hold_no_rows(kind, tmp_path):
    """Most regions hold one row here, and the mean of one row is that row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    make = rs.LocalLinearClassifier if kind == "classifier" else rs.LocalLinearRegressor
    model = make(3, hidden=(16, 8), epochs=10, random_state=0).fit(X, y > 1 if kind == "classifier" else y)
    assert (model.models_.unwrapped.count == 1).mean() > 0.5
    data = pickle.dumps(model)
    assert b"Unwrapped" not in data
    again = pickle.loads(data)
    model.models_.save(tmp_path / "m.npz")
    loaded = MergedModels.load(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as file:
        saved = [file[name] for name in file.files if file[name].dtype.kind == "f"]
    found = held(again)
    assert sum(a.size for a in found) > 1000  # the walk does see the models
    for arrays in (found, saved):
        numbers = np.concatenate([a.ravel() for a in arrays])
        assert not np.isin(X, numbers).any()
        assert not np.isin(y.round(12), numbers.round(12)).any()
    new = rng.normal(size=(300, 6)) * 1.5
    assert (model.models_._lookup.find(pack(model.network_, model.network_.pattern(new))) < 0).any()
    want = model.models_.outputs(new)
    assert np.array_equal(again.models_.outputs(new), want) and np.array_equal(loaded.outputs(new), want)
    assert np.array_equal(again.predict(new), model.predict(new))
    with pytest.raises(InputError, match="needs the data"):
        again.models_.intervals(0)


def test_centroids_stand_for_five_rows_or_more():
    rng = np.random.default_rng(1)
    for n, clusters in ((400, 7), (60, 9), (3, 2), (9, 1)):
        centroid, count = rng.normal(size=(n, 3)), rng.choice([1, 1, 1, 2, 4, 5, 30], n)
        cluster = rng.integers(0, clusters, n)
        mean, of = pooled(centroid, np.ones(3), count, cluster)
        assert len(mean) == len(of) > 0 and set(of.tolist()) <= set(cluster.tolist())
        large = count >= 5
        assert np.array_equal(mean[: large.sum()], centroid[large])
        if n >= 60:  # the means of the small ones, weighted by some rows each, lie among them
            rest = mean[large.sum() :]
            assert len(rest) > 0 and not np.isin(rest, centroid).any()
            assert (rest <= centroid.max(axis=0)).all() and (rest >= centroid.min(axis=0)).all()
            for k in range(clusters):
                mine = (cluster == k) & ~large
                assert (of[large.sum() :] == k).sum() <= count[mine].sum() // 5
