"""Table 1 and Figure 3 in their reduced versions, and the files that hold images."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from reluscope.errors import InputError
from reluscope.reproduce import reproduce
from reluscope.reproduce._images import images
from reluscope.reproduce.spectrum import _distance, _pooled


def test_table_1_on_digits(tmp_path):
    done = reproduce("mnist", tmp_path, quick=True, rng=0)
    assert [row["class"] for row in done.rows] == list(range(10))
    assert "0.4 paper" not in done.rows[3]  # other data: the published table is not beside it
    tops = [[float(row[f"{t} data"].split("-")[1]) for row in done.rows] for t in (0.1, 0.2, 0.3, 0.4)]
    # A larger threshold frees more units, and the sets grow (up to the cap, which 16 units hardly reach).
    assert (np.diff(np.mean(tops, axis=1)) > 0).all()
    assert 0.0 < np.mean(tops[0]) < 0.5 < np.mean(tops[3]) <= 1.0
    assert "a reduced run" in str(done)
    assert {p.name for p in tmp_path.iterdir()} == {"table-1.png"}


def test_figure_3_on_digits(tmp_path):
    (row,) = (done := reproduce("spectrum", tmp_path, quick=True, rng=0)).rows
    assert row["accuracy"] > 0.85
    # Lines and draws have one law. Eight images with 16 lines and 400 draws each: 0.013 here, 0.006 between draws.
    assert row["lines to draws"] < 0.05
    assert row["between draws"] < 0.05
    assert row["mean Jacobian to draws"] > 2 * row["lines to draws"]
    assert {p.name for p in tmp_path.iterdir()} == {"figure-3.png"}
    assert "Algorithm 1" in str(done)


@pytest.mark.slow
def test_table_1_beside_the_published_one(tmp_path, data_folder):
    """The whole of it, about half a minute: 25 of the 40 published entries were in our range when it was written."""
    done = reproduce("mnist", tmp_path, rng=0)
    assert "0.4 paper" in done.rows[3] and not done.quick
    inside = int(next(line for line in done.compared if "published entries" in line).split()[0])
    assert inside >= 15


@pytest.mark.slow
def test_figure_3_on_both_sets(tmp_path, data_folder):
    rows = reproduce("spectrum", tmp_path, rng=0).rows
    assert [row["data"] for row in rows] == ["mnist", "fashion_mnist"]
    for row in rows:
        assert row["lines to draws"] < 0.01 and row["between draws"] < 0.01
        # Algorithm 1's own weights are near the truth, and the mean Jacobian is another thing.
        assert row["lines to draws"] < row["Algorithm 1 to draws"] < 0.1 < row["mean Jacobian to draws"]


def test_distance_of_two_laws():
    """Two points against two: by hand."""
    a = _pooled([(np.array([[0.0, 1.0]]), np.ones(1))])
    b = _pooled([(np.array([[0.5, 3.0]]), np.ones(1))])
    assert _distance(a, b) == pytest.approx(0.5 * 0.5 + 0.5 * 2.0)
    assert _distance(a, a) == 0.0


def _write(path, array):
    shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()))


def test_images_from_a_folder(tmp_path, monkeypatch):
    folder = tmp_path / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, n in (("train", 6), ("t10k", 3)):
        _write(folder / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28)))
        _write(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(n))
    monkeypatch.setenv("RELUSCOPE_DATA", str(tmp_path))
    found = images("mnist")
    assert found.train.shape == (6, 784)
    assert found.test.shape == (3, 784)
    assert found.train.max() <= 1.0
    assert found.test_label.tolist() == [0, 1, 2]
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x09abc"))
    with pytest.raises(InputError, match="not an idx file"):
        images("mnist")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match="RELUSCOPE_DATA"):
        images("mnist")
