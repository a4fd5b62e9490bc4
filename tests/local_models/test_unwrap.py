"""The region table, its certificate, new data, coverage, and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import reluscope as rs
from nets import integer_net, random_net
from reluscope.errors import InputError
from reluscope.local_models import _grouping, scores
from reluscope.local_models._grouping import Lookup, group, pack, unpack

ACTIVATIONS = ("relu", "leaky_relu", "hardtanh", "abs")


def sample(widths=(3, 8, 6, 1), n=400, seed=0, activation="relu"):
    net = random_net(widths, seed, activation)
    rng = np.random.default_rng(seed + 1)
    X = rng.normal(size=(n, widths[0]))
    return net, X, rng


@given(st.integers(0, 10_000), st.sampled_from(ACTIVATIONS))
def test_regions_are_the_distinct_patterns_and_the_models_are_exact(seed, activation):
    rng = np.random.default_rng(seed)
    widths = (int(rng.integers(1, 5)), *rng.integers(1, 9, rng.integers(1, 4)).tolist(), int(rng.integers(1, 4)))
    net = random_net(widths, seed, activation) if seed % 2 else integer_net(widths, seed, activation)
    X = rng.normal(size=(60, widths[0])).round(1)  # ties on break points happen
    u = rs.unwrap(net, X)
    patterns, inverse = np.unique(net.pattern(X), axis=0, return_inverse=True)
    assert len(u) == len(patterns)
    assert len({(a, b) for a, b in zip(u.region.tolist(), inverse.tolist(), strict=True)}) == len(u)
    assert (np.diff(u.count) <= 0).all() and u.count.sum() == 60
    assert np.array_equal(u.patterns()[u.region], net.pattern(X))
    assert u.certificate.absolute <= 1e-12 * max(u.certificate.scale, 1)
    local = np.einsum("nod,nd->no", u.coefficients[u.region], X) + u.intercepts[u.region]
    assert np.allclose(local, net(X), rtol=0, atol=1e-12 * max(1, np.abs(local).max()))


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from(ACTIVATIONS))
def test_packed_patterns_come_back(seed, activation):
    net = random_net((3, 5, 70, 2), seed, activation)
    pattern = net.pattern(np.random.default_rng(seed).normal(size=(20, 3)))
    assert np.array_equal(unpack(net, pack(net, pattern)), pattern)


def test_a_collision_of_hashes_does_no_harm(monkeypatch):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 3, (300, 2)).astype(np.uint64)
    right = group(words)
    expected = Lookup(words[right.first]).find(words)
    monkeypatch.setattr(_grouping, "hashes", lambda w: np.zeros(len(w), dtype=np.uint64))
    member, first, rows = group(words)
    assert np.array_equal(member, right.member) and np.array_equal(first, right.first)
    assert np.array_equal(rows, right.rows)
    assert np.array_equal(Lookup(words[first]).find(words), expected)
    assert (Lookup(words[first]).find(words + np.uint64(7)) == -1).all()


@pytest.mark.parametrize("n", [0, 1, 70_000])
def test_groups_are_numbered_by_size_and_first_row(n):
    words = np.random.default_rng(n).integers(0, 60, (n, 2)).astype(np.uint64)
    member, first, rows = group(words)
    assert np.array_equal(words[first][member], words)
    count = np.bincount(member, minlength=len(first))
    assert np.array_equal(np.lexsort((first, -count)), np.arange(len(first)))
    assert np.array_equal(rows, np.argsort(member, kind="stable")) and np.array_equal(
        first, rows[np.cumsum(count) - count]
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_table_of_two_classes_against_scikit_learn(weighted):
    net, X, rng = sample((2, 6, 5, 1), 500)
    y = (net(X)[:, 0] + rng.normal(size=500) > 0).astype(int)
    w = rng.uniform(0.1, 2, 500) if weighted else None
    table = rs.unwrap(net, X, y, sample_weight=w).summary(global_regions="all")
    u = rs.unwrap(net, X, y, sample_weight=w)
    ones = np.ones(500) if w is None else w
    for r in range(len(u)):
        own = u.region == r
        assert table["count"][r] == own.sum()
        assert table["share"][r] == pytest.approx(ones[own].sum() / ones.sum())
        mean = np.average(y[own], weights=ones[own])
        assert table["response_mean"][r] == pytest.approx(mean)
        assert table["response_std"][r] == pytest.approx(np.sqrt(mean * (1 - mean)), abs=1e-12)
        assert table["single_row"][r] == (own.sum() == 1)
        assert table["single_class"][r] == (len(set(y[own])) == 1)
        if table["single_class"][r]:
            assert np.isnan(table["local_auc"][r])
        else:
            here = roc_auc_score(y[own], net(X[own])[:, 0], sample_weight=ones[own])
            assert table["local_auc"][r] == pytest.approx(here, abs=1e-12)
        everywhere = X @ u.coefficients[r, 0] + u.intercepts[r, 0]
        assert table["global_auc"][r] == pytest.approx(roc_auc_score(y, everywhere, sample_weight=ones), abs=1e-12)
        assert np.allclose([table["x0"][r], table["x1"][r]], u.coefficients[r, 0])
    assert u.score == pytest.approx(roc_auc_score(y, net(X)[:, 0], sample_weight=ones))
    assert np.allclose(u.global_scores([3, 1]), table["global_auc"][[3, 1]])


@pytest.mark.parametrize("outputs", [1, 2])
def test_squared_errors_through_the_gram_matrix(outputs):
    net, X, rng = sample((3, 8, outputs), 300)
    X = X + 50  # far from the origin: the Gram matrix must be centred
    w = rng.uniform(0.1, 2, 300)
    y = net(X) + rng.normal(size=(300, outputs))
    u = rs.unwrap(net, X, y, sample_weight=w)
    assert u.task == "regression" and u.metric == "r2"
    for r in range(len(u)):
        everywhere = X @ u.coefficients[r].T + u.intercepts[r]
        direct = np.average(((y - everywhere) ** 2).mean(axis=1), weights=w)
        assert u.table["global_mse"][r] == pytest.approx(direct, rel=1e-9)
        own = u.region == r
        local = np.average(((y - net(X)) ** 2).mean(axis=1)[own], weights=w[own])
        assert u.table["local_mse"][r] == pytest.approx(local, rel=1e-9)


def test_several_classes():
    net, X, rng = sample((3, 8, 4), 300)
    y = np.array(list("abcd"))[net(X).argmax(axis=1)]
    y[:40] = rng.choice(list("abcd"), 40)
    u = rs.unwrap(net, X, y)
    assert u.task == "multiclass" and u.output_names == ("a", "b", "c", "d")
    assert u.score == pytest.approx(np.mean(np.array(list("abcd"))[net(X).argmax(axis=1)] == y))
    r = 0
    own = u.region == r
    labels, counts = np.unique(y[own], return_counts=True)
    assert u.table["majority"][r] == labels[counts.argmax()]
    assert u.table["majority_share"][r] == pytest.approx(counts.max() / own.sum())
    applied = X @ u.coefficients[r].T + u.intercepts[r]
    assert u.table["global_accuracy"][r] == pytest.approx(np.mean(np.array(list("abcd"))[applied.argmax(axis=1)] == y))
    one = u.summary(output=2)
    assert one["response_mean"][r] == pytest.approx(np.mean(y[own] == "c"))
    assert one["global_auc"][r] == pytest.approx(roc_auc_score(y == "c", applied[:, 2]))


def test_two_logits_become_their_difference():
    net, X, _ = sample((3, 8, 2), 200)
    y = net(X).argmax(axis=1)
    u = rs.unwrap(net, X, y)
    assert u.task == "binary" and u.network.n_outputs == 1
    assert u.score == 1.0
    assert np.allclose(u.prediction[:, 0], net(X)[:, 1] - net(X)[:, 0])


def test_new_data_and_the_flag_no_data_here():
    net, X, rng = sample(n=200)
    y = (net(X)[:, 0] > 0).astype(int)
    u = rs.unwrap(net, X, y)
    new = 2 * rng.normal(size=(300, 3))
    truth = (net(new)[:, 0] > 0).astype(int)
    truth[:30] = 1 - truth[:30]
    e = u.evaluate(new, truth)
    known = {p.tobytes() for p in net.pattern(X)}
    assert np.array_equal(e.unseen, [p.tobytes() not in known for p in net.pattern(new)])
    assert e.unseen_share == e.unseen.mean() > 0
    assert e.score == pytest.approx(roc_auc_score(truth, net(new)[:, 0]))
    assert e.score_unseen == pytest.approx(roc_auc_score(truth[e.unseen], net(new)[e.unseen, 0]))
    assert e.table["count"].sum() == (~e.unseen).sum()
    assert e.table["global_auc"][0] == pytest.approx(roc_auc_score(truth, new @ u.coefficients[0, 0]))
    again = u.evaluate(X, y)
    assert np.array_equal(again.region, u.region) and not again.unseen.any()
    assert np.array_equal(again.table["count"], u.count)
    assert "without data" in repr(e)


def test_coverage_closed_form():
    """One unit at 0 on [-1, 3], data on the right only: a quarter of the box was never seen."""
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    u = rs.unwrap(net, np.array([[1.0], [3.0], [2.0]]))
    found = u.coverage([[-0.5], [0.5], [-3.0]], box=(-1.0, 3.0))
    assert found.n_regions == 2 and found.seen_regions == 1
    assert found.unseen_volume.value == pytest.approx(0.25) and found.unseen_volume.guarantee == "exact"
    assert found.unseen_rows == pytest.approx(2 / 3) and found.unseen.tolist() == [True, False, True]


def test_coverage_exact_and_drawn_agree():
    net, X, _ = sample((3, 8, 6, 1), 150)
    u = rs.unwrap(net, X)
    exact = u.coverage()
    assert exact.n_regions == len(rs.regions(net, (X.min(axis=0), X.max(axis=0))))
    drawn = u.coverage(budget="1 regions", draws=20_000, rng=3)
    assert drawn.n_regions is None and drawn.unseen_volume.guarantee == "confidence"
    # The interval misses with probability 1e-3; the seed is fixed.
    assert drawn.unseen_volume.lower <= exact.unseen_volume.value <= drawn.unseen_volume.upper
    assert f"{exact.seen_regions} of its {exact.n_regions} regions hold data" in str(exact)


def test_coverage_with_an_input_that_does_not_vary():
    net, X, _ = sample((3, 6, 1), 100)
    X[:, 1] = 0.5
    found = rs.unwrap(net, X).coverage()
    assert found.n_regions is not None and 0 <= found.unseen_volume.value < 1


def test_memory_maps_are_read_in_chunks(tmp_path):
    net, X, _ = sample((4, 20, 20, 1), 9000)
    X32 = X.astype(np.float32)
    np.save(tmp_path / "x.npy", X32)
    u = rs.unwrap(net, np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(u.X, np.memmap)
    v = rs.unwrap(net, X32.astype(np.float64))
    assert np.array_equal(u.region, v.region) and np.array_equal(u.coefficients, v.coefficients)
    assert np.allclose(u.importance().variance, v.importance().variance)


def test_tables_go_out(tmp_path):
    net, X, _ = sample(n=80)
    y = (net(X)[:, 0] > 0).astype(int)
    u = rs.unwrap(net, X, y, feature_names=["a", "=b", "c"])
    frame = u.to_pandas()
    assert len(frame) == len(u) and list(frame)[-3:] == ["a", "=b", "c"]
    u.table.to_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[0].endswith("a,'=b,c")
    u.table.to_json(tmp_path / "t.json")
    rows = json.loads((tmp_path / "t.json").read_text())
    assert len(rows) == len(u) and all("local_auc" in row for row in rows)
    assert f"{len(u)} regions" in repr(u.table) and "binary" in repr(u)
    assert f"the first 3 of {len(u)} regions" in repr(u.table.head(3)) and len(u.table.head(3)) == 3
    assert u.describe()["single_row_share"] == pytest.approx((u.count == 1).mean())
    with pytest.raises(InputError, match="no column"):
        u.table["nonsense"]


def test_names_come_from_a_data_frame():
    pandas = pytest.importorskip("pandas")
    net, X, _ = sample(n=20)
    u = rs.unwrap(net, pandas.DataFrame(X, columns=["p", "q", "r"]))
    assert u.feature_names == ("p", "q", "r") and u.task == "none"


@settings(max_examples=40)
@given(st.integers(0, 1000))
def test_auc_against_scikit_learn_with_ties(seed):
    rng = np.random.default_rng(seed)
    s, y, w = rng.integers(0, 6, 40) / 2.0, rng.random(40) < 0.4, rng.uniform(0.1, 3, 40)
    if y.all() or not y.any():
        assert np.isnan(scores.auc(s, y))
        return
    assert scores.auc(s, y) == pytest.approx(roc_auc_score(y, s))
    assert scores.auc(s, y, w) == pytest.approx(roc_auc_score(y, s, sample_weight=w))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((5, 2))}, "X must have shape"),
        ({"X": np.full((5, 3), np.nan)}, "X must be finite"),
        ({"X": np.zeros((0, 3))}, "n >= 1"),
        ({"y": [1, 2]}, "y must"),
        ({"y": [0.0, 1.0, np.nan, 1.0, 0.0], "task": "binary"}, "nan"),
        ({"y": [0, 1, 2, 1, 0], "task": "binary"}, "3 different labels"),
        ({"y": [0, 1, 1, 1, 0], "classes": [0, 5]}, "not one of the classes"),
        ({"task": "ranking"}, "task must be one of"),
        ({"task": "binary"}, "needs y"),
        ({"feature_names": ["a"]}, "feature_names must be 3 names"),
        ({"sample_weight": [-1, 1, 1, 1, 1]}, "sample_weight"),
        ({"sample_weight": [0, 0, 0, 0, 0]}, "sample_weight"),
        ({"scaler": ([0, 0, 0], [1, 0, 1])}, "scaler"),
        ({"net": "nowhere.onnx"}, "nowhere"),
    ],
)
def test_bad_input_gets_one_clear_message(change, message):
    arguments = {"net": random_net((3, 4, 1), 0), "X": np.ones((5, 3))} | change
    with pytest.raises(InputError, match=message):
        rs.unwrap(arguments.pop("net"), arguments.pop("X"), **arguments)


def test_one_row_and_no_hidden_layer():
    net = rs.Network([([[1.0, 2.0]], [0.5])])
    u = rs.unwrap(net, [[1.0, 1.0]], [3.0])
    assert len(u) == 1 and u.table["local_mse"][0] == pytest.approx(0.25)
    assert u.explain(0).distance == np.inf and u.explain(0).nearest is None
    assert u.margins().distance[0] == np.inf


@pytest.mark.needs_data
def test_digits_and_a_convolutional_network(data_folder):
    import gzip

    images = gzip.decompress((data_folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data_folder / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())
    X = np.frombuffer(images, np.uint8, 28 * 28 * 200, offset=16).reshape(200, 784) / 255
    y = np.frombuffer(labels, np.uint8, 200, offset=8)
    dense = rs.unwrap(data_folder / "nets" / "mnist_fc" / "onnx" / "mnist-net_256x2.onnx", X, y)
    conv = rs.unwrap(
        data_folder / "nets" / "marabou" / "onnx" / "cnn_max_mninst3.onnx", X[:60].reshape(60, 28, 28, 1), y[:60]
    )
    for u in (dense, conv):
        assert u.task == "multiclass" and u.score > 0.95
        assert u.certificate.relative < 1e-12
        e = u.explain(0)
        assert e.output.argmax() == y[0] and e.nearest is not None
        assert np.allclose(e.contribution.sum(axis=1) + e.d, e.output)
