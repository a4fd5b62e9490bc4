"""Random networks: sweeps are reproducible, the trends of the docs hold, the reproductions run."""

import numpy as np
import pytest

from reluscope.errors import InputError
from reluscope.representation.laboratory import layer_widths, random_cloud, random_network, sweep
from reluscope.reproduce import reproduce
from reluscope.reproduce.thesis4 import _plans


def test_clouds_and_networks():
    X = random_cloud("sphere", 100, 5, scale=3.0, rng=0)
    assert np.allclose(np.linalg.norm(X, axis=1), 3.0)
    assert np.abs(random_cloud("uniform", 100, 5, mean=1.0, rng=0) - 1).max() <= 1
    net = random_network([3, 4, 2], rng=0)
    assert not net.layers[0].bias.any()
    assert net.widths == (3, 4, 2)
    big = random_network([200, 300, 1], bias=0.5, rng=1)
    # 60,000 weights: the standard deviation is known to 0.3 %.
    assert big.layers[0].weight.std() == pytest.approx(np.sqrt(2 / 200), rel=0.02)
    for call in (
        lambda: random_cloud("cube", 1, 1),
        lambda: random_network([3]),
        lambda: random_network([3, 1], bias=-1.0),
        lambda: sweep(seeds=0),
        lambda: sweep(inputs=("heavy",), depths=(1,), widths=(2,)),
    ):
        with pytest.raises(InputError):
            call()


def test_a_row_does_not_depend_on_the_others():
    few = {"widths": (4,), "inputs": ("normal",), "biases": (0.1,), "seeds": 1, "points": 60, "rng": 0}
    one = sweep(depths=(3,), **few).trials[0]
    two = sweep(depths=(2, 3), **few).trials
    assert one == two[1]
    assert len(two) == 2


def test_trends_polarisation_collapse_and_width():
    found = sweep(depths=(3, 40), widths=(10, 60), inputs=("normal",), biases=(0.0, 0.1), seeds=2, points=200, rng=1)
    rows = {(r["depth"], r["width"]): r for r in found.means("depth", "width")}
    for width in (10, 60):  # depth polarises units, shrinks angles and ranks
        assert rows[40, width]["polarised"] > rows[3, width]["polarised"] + 0.3
        assert rows[40, width]["angle"] < 0.5 * rows[3, width]["angle"]
        assert rows[40, width]["stable_rank"] < rows[3, width]["stable_rank"]
    for depth in (3, 40):  # narrow networks collapse faster
        assert rows[depth, 10]["stable_rank"] < rows[depth, 60]["stable_rank"]
    assert rows[40, 10]["collapse"] < (rows[40, 60]["collapse"] or np.inf)
    assert len(found.to_pandas()) == len(found) == 16
    assert "polarised" in str(found)
    with pytest.raises(InputError):
        found.means("colour")


def test_growing_layers_keep_more_of_the_cloud():
    assert layer_widths(15, 4, 1.5) == [15, 22, 34, 51] and layer_widths(7, 2) == [7, 7]
    found = sweep(
        depths=(20,), widths=(10,), inputs=("normal",), biases=(0.0,), growths=(1.0, 1.15), seeds=4, points=200, rng=1
    )
    rows = {row["growth"]: row for row in found.means("growth")}
    # The cloud becomes a line later, and more directions are left.
    assert (rows[1.15]["collapse"] or np.inf) > rows[1.0]["collapse"]
    assert rows[1.15]["nonzero_eigenvalues"] > 2 * rows[1.0]["nonzero_eigenvalues"]
    assert all(0 <= t.stable_on + t.stable_off <= 1 for t in found.trials)
    # A row does not depend on which others were asked for.
    alone = sweep(depths=(20,), widths=(10,), inputs=("normal",), biases=(0.0,), seeds=4, points=200, rng=1)
    assert [t for t in found.trials if t.growth == 1.0] == list(alone.trials)
    with pytest.raises(InputError, match="growth"):
        sweep(depths=(100,), growths=(2.0,))


def test_boundedness_reproduction(tmp_path):
    done = reproduce("boundedness", tmp_path, quick=True, rng=0)
    assert all(row["holds"] for row in done.rows)
    assert (tmp_path / "boundedness.png").exists()


def test_figure_46_goes_to_layer_21_and_has_a_growing_network():
    panels = np.asarray(_plans(0, 60, 12)[6]())
    titles = [ax.get_title() for ax in panels.ravel()]
    assert panels.shape == (5, 6)
    assert titles[0] == "width 15, layer 0" and titles[23] == "width 100, layer 20"
    assert titles[-1] == "width 15 to 101, layer 20"
    for ax in panels[:, -1]:  # histograms of the share of inputs on which a unit is on: all units of the layer
        assert sum(bar.get_height() for bar in ax.patches) > 0


def test_thesis4_reproduction(tmp_path):
    done = reproduce("thesis4", tmp_path, quick=True, rng=0)
    assert {p.name for p in tmp_path.iterdir()} == {f"figure-4.{k}.png" for k in (1, 3, 7, 12)}
    assert sum("fails as printed" in line for line in done.remarks) == 12
    assert {row["depth"] for row in done.rows} == {3, 12}
