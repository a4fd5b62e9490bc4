"""The table of layers: every column against plain numpy, channels, odd networks, the shell, the pictures."""

import csv
import json
import math
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from scipy import sparse

import reluscope as rs
from nets import random_net
from reluscope.cli import main
from reluscope.errors import InputError
from reluscope.reporting.layers import read_points
from reluscope.representation.channels import channels_of
from reluscope.representation.layers import COLUMNS


@pytest.fixture(scope="module")
def measured():
    net = random_net((4, 9, 7, 6, 3), 2, bias=0.4)
    X = np.random.default_rng(0).normal(size=(600, 4))
    return net, X, rs.layers(net, X, box=(-1, 1), jacobians=600, rng=0)


def test_columns_are_what_plain_numpy_says(measured):
    net, X, found = measured
    hs = net.preactivations(X)
    clouds = [X, *(np.maximum(h, 0) for h in hs[:-1]), hs[-1]]
    assert [row.kind for row in found.rows] == ["input", "relu", "relu", "relu", "output"]
    for k, Z in enumerate(clouds):
        row = found.rows[k]
        s = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
        u = np.linalg.svd(Z, compute_uv=False)
        assert row.units == Z.shape[1]
        assert row.mean_norm == pytest.approx(np.linalg.norm(Z, axis=1).mean())
        assert row.stable_rank == pytest.approx((s**2).sum() / s[0] ** 2)
        assert row.stable_rank_uncentred == pytest.approx((u**2).sum() / u[0] ** 2)
        assert row.participation_ratio == pytest.approx((s**2).sum() ** 2 / (s**4).sum())
        assert row.nonzero_eigenvalues == np.linalg.matrix_rank(Z - Z.mean(axis=0), tol=1e-10 * u[0])
        if 0 < k < len(clouds) - 1:
            on = hs[k - 1] > 0
            assert np.allclose(found.activity[k], on.mean(axis=0))
            assert row.activity == pytest.approx(on.mean())
            assert row.always_on == on.all(axis=0).sum()
            assert row.always_off == (~on).all(axis=0).sum()
            assert row.active == pytest.approx(on.sum(axis=1).mean())
            share = on.mean(axis=0)
            assert row.polarised == pytest.approx(((share <= 0.05) | (share >= 0.95)).mean())
        else:
            assert row.activity is None
    assert found.rows[0].distance_factor == 1.0
    assert np.allclose(found.ratios[0], 1.0)
    # All pairs: E|z - z'|^2 = 2 trace cov. 2,000 random pairs are within 6 standard errors of that.
    for k, Z in enumerate(clouds):
        base = 2 * np.trace(np.atleast_2d(np.cov(X.T)))
        assert found.rows[k].distance_factor == pytest.approx(2 * np.trace(np.atleast_2d(np.cov(Z.T))) / base, rel=0.25)


def test_cell_dimension_two_ways_and_its_bound(measured):
    net, X, found = measured
    for k in (1, 2, 3):
        part = rs.Network([(p.weight, p.bias, p.units) for p in net.layers[:k]])
        ranks = [np.linalg.matrix_rank(J) if J.any() else 0 for J in part.jacobian(X)]
        assert found.rows[k].rank == pytest.approx(np.mean(ranks))
        assert found.rows[k].rank_max == max(ranks)
        assert found.rows[k].rank_bound_holds
        assert found.rows[k].rank <= found.rows[k].rank_bound <= found.rows[k].active + 1e-9


def test_certified_units_are_among_the_stable_ones(measured):
    net, _, found = measured
    inside = np.random.default_rng(5).uniform(-1, 1, (3000, 4))
    on = net.pattern(inside) > 0
    for k in (1, 2, 3):
        row = found.rows[k]
        part = on[:, net.offsets[k - 1] : net.offsets[k]]
        assert row.undecided == 0
        assert row.certified_on <= part.all(axis=0).sum()
        assert row.certified_off <= (~part).all(axis=0).sum()
        assert row.certified_on + row.certified_off + row.certified_switching == row.units
    assert found.stability is not None


def test_same_seed_same_table_and_the_rest_of_the_record(measured):
    net, X, found = measured
    again = rs.layers(net, X, box=(-1, 1), jacobians=600, rng=0)
    assert again.to_dict() == found.to_dict()
    free = rs.layers(net, X, jacobians=0)
    assert rs.layers(net, X, jacobians=0, rng=free.seed).to_dict() == free.to_dict()
    assert [row.name for row in found.rows] == ["input", "layer 0", "layer 1", "layer 2", "output"]
    assert found.hidden == (0, 1, 2)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["layer"] == [None, 0, 1, 2, 3]
    assert list(found.to_pandas().columns) == list(COLUMNS)
    assert "600 inputs" in repr(found)
    assert "stable_rank" in str(found)
    share, edges = found.histogram(1, bins=10)
    assert share.tolist() == (np.histogram(found.activity[2], 10, (0, 1))[0] / 7).tolist()
    assert len(edges) == 11
    assert found.histogram()[0].sum() == pytest.approx(1.0)
    assert found.pca.shape == found.coordinates.shape == (5, 500, 2)
    assert np.isnan(found["activity"][0])
    law = rs.layers(net, rs.Gaussian(np.zeros(4), 1.0), jacobians=0, pairs=50)
    assert law.n_points == 2000
    assert law.rows[1].rank is None


def test_a_random_bias_free_network_follows_the_expected_angle():
    net = random_net((50, *[400] * 4, 1), 0, bias=0.0)
    found = rs.layers(net, np.random.default_rng(1).normal(size=(300, 50)), jacobians=0, pairs=4000, rng=0)
    from reluscope.representation.metrics import expected_angle

    # Width 400: each layer's angle fluctuates by about 1/sqrt(400) of itself.
    for k in range(1, 5):
        assert found["angle_mean"][k] == pytest.approx(float(expected_angle(found.angles[0], k).mean()), rel=0.15)


def dead_net():
    return rs.Network(
        [(np.eye(2), None), (-np.ones((3, 2)), -np.ones(3)), (np.ones((3, 3)), None), (np.ones((1, 3)), None)]
    )


@pytest.mark.parametrize(
    ("net", "X"),
    [
        (dead_net(), np.random.default_rng(0).normal(size=(30, 2))),
        (random_net((1, 1, 1), 0), [[0.0], [1.0]]),
        (random_net((2, 3, 1), 0), np.ones((5, 2))),
        (random_net((3, 4, 4, 2), 0, "leaky_relu"), np.random.default_rng(0).normal(size=(20, 3))),
        (random_net((3, 4, 4, 2), 0, "hardtanh"), np.random.default_rng(0).normal(size=(20, 3))),
        (rs.Network([(np.eye(2), None)]), np.random.default_rng(0).normal(size=(20, 2))),
        (random_net((2, 3, 1), 0), 1e-200 * np.random.default_rng(0).normal(size=(9, 2))),
        (random_net((2, 3, 1), 0, bias=0.0), 1e150 * np.random.default_rng(0).normal(size=(9, 2))),
    ],
)
def test_odd_networks_and_clouds_give_finite_tables_and_pictures(net, X):
    found = rs.layers(net, X)
    json.dumps(found.to_dict(), allow_nan=False)
    if found.hidden:
        assert found.plot().shape == (2, 4)
        assert found.histogram()[0].sum() == pytest.approx(1.0)
    else:
        with pytest.raises(InputError, match="no layer"):
            found.plot()
    assert len(found.plot_clouds()) == len(found)
    from reluscope.plot.layers import plot_geometry

    assert len(plot_geometry(found)) == 2


def test_a_dead_layer_shows():
    found = rs.layers(dead_net(), np.random.default_rng(0).normal(size=(30, 2)))
    row = found.rows[2]
    assert (row.always_off, row.nonzero_eigenvalues, row.mean_norm, row.mean_width, row.rank) == (3, 0, 0.0, 0.0, 0.0)
    assert row.angle_mean is None


def convolution(channels, size, kernel, rng, pad=0):
    """The matrix of a convolution of one image, and its bias, as the loaders would write it: (channel, position)."""
    w = rng.normal(size=(channels, kernel, kernel))
    b = np.repeat(rng.normal(size=channels), (size + 2 * pad - kernel + 1) ** 2)
    out = size + 2 * pad - kernel + 1
    M = np.zeros((channels, out, out, size, size))
    for c, i, j, p, q in np.ndindex(channels, out, out, kernel, kernel):
        y, x = i + p - pad, j + q - pad
        if 0 <= y < size and 0 <= x < size:
            M[c, i, j, y, x] = w[c, p, q]
    return sparse.csr_array(M.reshape(channels * out * out, size * size)), b


@pytest.mark.parametrize("pad", [0, 1])
def test_channels_are_found_again_and_used(pad):
    rng = np.random.default_rng(0)
    M, b = convolution(5, 8, 3, rng, pad)
    net = rs.Network([(M, b), (rng.normal(size=(10, M.shape[0])), rng.normal(size=10)), (np.ones((1, 10)), None)])
    assert [channels_of(layer) for layer in net.layers] == [5, None, None]
    X = rng.normal(size=(200, 64))
    found = rs.layers(net, X)
    Z = np.maximum(X @ M.T + b, 0).reshape(200, 5, -1)
    assert np.allclose(found.activity[1], (Z > 0).mean(axis=(0, 2)))
    cloud = Z.transpose(0, 2, 1).reshape(-1, 5)
    s = np.linalg.svd(cloud - cloud.mean(axis=0), compute_uv=False)
    assert found.rows[1].channels == 5
    assert found.rows[1].stable_rank == pytest.approx((s**2).sum() / s[0] ** 2)
    assert found.rows[1].mean_norm == pytest.approx(np.linalg.norm(Z.reshape(200, -1), axis=1).mean())
    plain = rs.layers(net, X, channels=None)
    assert plain.rows[1].channels is None
    assert len(plain.activity[1]) == M.shape[0]
    given = rs.layers(net, X, channels=[5, 2])
    assert len(given.activity[2]) == 2


def test_many_inputs_through_a_wide_layer_are_thinned_but_all_counted(monkeypatch):
    module = import_module("reluscope.representation.layers")
    net = random_net((3, 40, 5, 1), 0)
    X = np.random.default_rng(0).normal(size=(1000, 3))
    monkeypatch.setattr(module, "_MOST_NUMBERS", 40 * 100)
    found = rs.layers(net, X)
    assert "100 of 1,000" in found.note
    assert np.allclose(found.activity[1], (net.preactivations(X)[0] > 0).mean(axis=0))
    assert found.n_points == 1000


@pytest.mark.needs_data
def test_a_trained_convolutional_network(data_folder):
    net = rs.load(data_folder / "nets/oval21/onnx/cifar_base_kw.onnx")
    X = np.random.default_rng(0).normal(size=(60, net.n_inputs))
    found = rs.layers(net, X)
    assert [row.channels for row in found.rows[1:4]] == [8, 16, None]
    assert all(row.activity is None or 0 < row.activity < 1 for row in found.rows)


@pytest.fixture
def files(tmp_path):
    random_net((2, 6, 5, 1), 0).save(tmp_path / "small.npz")
    X = np.random.default_rng(0).normal(size=(80, 2))
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", header="first,second", comments="")
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def test_the_command_writes_table_and_pictures(files, capsys):
    out = files / "out"
    call = ["layers", str(files / "small.npz"), "--data", str(files / "x.csv"), "--box", "-1", "1", "--out", str(out)]
    assert main([*call, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["points"] == 80
    assert facts["layers"]["kind"] == ["input", "relu", "relu", "output"]
    assert set(facts["files"]) == {p.name for p in out.iterdir()}
    with (out / "small-layers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert float(rows[1]["stable_rank"]) == pytest.approx(facts["layers"]["stable_rank"][1])
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in facts["files"] if name.endswith("png"))
    assert main(["layers", str(files / "small.npz"), "--data", str(files / "x.npy")]) == 0
    assert "80 inputs" in capsys.readouterr().out
    assert main(["layers", str(files / "small.npz"), "--box", "-1,-1", "1,2", "--points", "50"]) == 0
    assert "50 inputs" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "a,b\n", "1,2\n3\n", "1,2\nx,y\n", "1,2,3\n", "1,nan\n", "\xff\xfe"])
def test_bad_tables_are_refused(text, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"bad\.csv"):
        read_points(path, 2)


def test_bad_npy_files_and_columns(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(InputError, match=r"x\.npy"):
        read_points(tmp_path / "x.npy", 2)
    (tmp_path / "one.csv").write_text("1\n2\n3\n")
    assert read_points(tmp_path / "one.csv", 1).shape == (3, 1)
    (tmp_path / "blank.txt").write_text("1 2\n\n3 4\n")
    assert read_points(tmp_path / "blank.txt", 2).tolist() == [[1, 2], [3, 4]]


def test_the_shell_refuses_in_one_line(files, capsys):
    for extra in ([], ["--data", str(files / "none.csv")], ["--data", str(files / "small.npz")], ["--box", "1", "0"]):
        assert main(["layers", str(files / "small.npz"), *extra]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    done = subprocess.run([sys.executable, "-m", "reluscope", "layers", "--help"], capture_output=True, text=True)
    assert 0 < done.stdout.count("\n") <= 30


@pytest.mark.parametrize(
    "change",
    [
        {"X": [[1.0, 2.0]]},
        {"X": [[1.0, math.nan], [0.0, 0.0]]},
        {"X": np.zeros((4, 3))},
        {"net": "net"},
        {"directions": 1},
        {"pairs": 0},
        {"jacobians": -1},
        {"zero_below": 2.0},
        {"channels": "rgb"},
        {"channels": [2]},
        {"channels": [4, None]},
        {"modules": ["a"]},
        {"box": (1, 0)},
        {"rng": -1},
    ],
)
def test_bad_input_is_one_clear_error(change):
    call = {"net": random_net((2, 3, 3, 1)), "X": np.random.default_rng(0).normal(size=(9, 2))} | change
    with pytest.raises(InputError):
        rs.layers(call.pop("net"), call.pop("X"), **call)


def test_panels_take_and_return_axes():
    from reluscope.plot import layers as draw

    found = rs.layers(random_net((2, 5, 5, 1)), np.random.default_rng(0).normal(size=(50, 2)))
    ax = draw.plot_activity(found)
    for call in (draw.plot_heat, draw.plot_ranks, draw.plot_width, draw.plot_dimensions, draw.plot_angles):
        assert call(found, draw.axes()).get_xlabel()
    assert draw.plot_activity(found, ax, layer=1) is ax
    assert draw.plot_column(found, "mean_norm").get_ylabel() == "mean norm"
    with pytest.raises(InputError):
        draw.plot_clouds(found, "umap")
    with pytest.raises(InputError):
        found["colour"]
    with pytest.raises(InputError):
        found.histogram(2)  # the output has no units


def test_ranks_say_at_how_many_points_they_were_found():
    net = random_net((3, 5, 4, 1), seed=0)
    X = np.random.default_rng(0).normal(size=(50, 3))
    assert "are those at 16 of the 50 inputs" in str(rs.layers(net, X, rng=0))
    assert "are those at" not in str(rs.layers(net, X, jacobians=50, rng=0))
