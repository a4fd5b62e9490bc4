"""Networks on lines and planes through their inputs."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from nets import random_net
from reluscope.cells.regions import regions
from reluscope.cells.slices import slice
from reluscope.errors import InputError


def test_a_plane_through_three_points():
    net = random_net((8, 12, 10, 3), seed=0)
    points = np.random.default_rng(1).normal(size=(3, 8))
    plane = slice(net, points)
    np.testing.assert_allclose(plane.directions @ plane.directions.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(plane.to_inputs(plane.points), points, atol=1e-12)
    u = np.random.default_rng(2).normal(size=(50, 2))
    np.testing.assert_allclose(plane.network(u), net(plane.to_inputs(u)), atol=1e-9)
    np.testing.assert_allclose(plane.to_slice(plane.to_inputs(u)), u, atol=1e-12)
    found = plane.regions(progress=None)
    assert found.complete and len(found) > 20
    assert (net.pattern(plane.to_inputs(found.interior)) == found.pattern).all()


def test_a_line_and_a_subspace_of_given_directions():
    net = random_net((6, 10, 2), seed=3)
    D = np.random.default_rng(4).normal(size=(3, 6))
    part = slice(net, origin=np.ones(6), directions=D)
    u = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(part.network(u), net(np.ones(6) + u @ D), atol=1e-10)
    assert part.box is None and len(part.regions((-1, 1), progress=None)) == len(
        regions(part.network, (-1, 1), progress=None)
    )
    line = slice(net, np.random.default_rng(5).normal(size=(2, 6)))
    assert line.network.n_inputs == 1 and len(line.regions((-9, 9), progress=None)) > 3


def test_what_spans_no_slice_is_refused():
    net = random_net((4, 5, 1), seed=0)
    with pytest.raises(InputError, match="linearly dependent"):
        slice(net, [[0, 0, 0, 0], [1, 1, 0, 0], [2, 2, 0, 0]])
    with pytest.raises(InputError, match="linearly independent"):
        slice(net, directions=[[1, 0, 0, 0], [2, 0, 0, 0]])
    with pytest.raises(InputError, match="give either points"):
        slice(net)
    with pytest.raises(InputError, match=r"points must have shape \(2 or more, 4\)"):
        slice(net, [[0, 0, 0]])
    with pytest.raises(InputError, match="of 2 dimensions can be drawn"):
        slice(net, directions=np.eye(4)[:3]).plot((-1, 1))


def test_a_picture_of_a_slice_marks_its_points():
    mpl.use("agg")
    net = random_net((5, 8, 1), seed=6)
    ax = slice(net, np.random.default_rng(7).normal(size=(3, 5))).plot()
    assert [t.get_text() for t in ax.texts] == ["0", "1", "2"]
