"""Betti numbers and persistence on shapes whose holes are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nets import random_net
from reluscope.algebra import compose, stack
from reluscope.cells.complex import polyhedral_complex
from reluscope.cells.topology import betti_numbers, persistence, topology
from reluscope.errors import InputError
from reluscope.network import Network

BOX = (-3.3, 3.7)


def ball(d: int) -> Network:
    """`|x|_1`."""
    return Network([(np.eye(d), None, "abs"), (np.ones((1, d)), None)])


def ring(d: int, around=(0, 1), centre=0.0) -> Network:
    """`| |x_a| + |x_b| - 2 | + |x_c| + ...` about a centre on the first axis: a circle, thickened."""
    rest = [q for q in range(d) if q not in around]
    W = np.zeros((d - 1, d))
    W[0, list(around)] = 1.0
    W[1 + np.arange(len(rest)), rest] = 1.0
    move = np.zeros(d)
    move[0] = -centre
    bias = np.zeros(d - 1)
    bias[0] = -2.0
    return Network([(np.eye(d), move, "abs"), (W, bias, "abs"), (np.ones((1, d - 1)), None)])


def least(*nets: Network) -> Network:
    """The smaller of two networks: `a - relu(a - b)`."""
    smaller = Network([([[1.0, 0.0], [1.0, -1.0]], None, ["identity", "relu"]), ([[1.0, -1.0]], None)])
    return compose(smaller, stack(list(nets)))


def two(of: str, net: Network, value: float):
    found = topology(net, BOX, of=of, value=value)
    assert found.part.complex.face_to_face
    assert found.betti == found.betti_mod2
    assert found.betti[0] == found.part.components()
    assert found.euler == sum((-1) ** k * b for k, b in enumerate(found.betti))
    return found.betti


@pytest.mark.parametrize("d", [2, 3, 4])
def test_spheres(d):
    assert two("level", ball(d), 1.0) == (1, *[0] * (d - 2), 1)
    assert two("sublevel", ball(d), 1.0) == (1, *[0] * d)
    assert two("superlevel", ball(d), 1.0) == (1, *[0] * (d - 2), 1, 0)


@pytest.mark.parametrize(("d", "surface", "outside"), [(2, (2, 2), (2, 1, 0)), (3, (1, 2, 1), (1, 1, 1, 0))])
def test_annulus_and_torus(d, surface, outside):
    assert two("level", ring(d), 0.5) == surface
    assert two("sublevel", ring(d), 0.5) == (1, 1, *[0] * (d - 1))
    assert two("superlevel", ring(d), 0.5) == outside


def test_a_circle_times_a_sphere_in_four_dimensions():
    assert two("level", ring(4), 0.5) == (1, 1, 1, 1)


def test_nested_shells():
    shells = Network([(np.eye(3), None, "abs"), (np.ones((1, 3)), [-1.5], "abs"), ([[1.0]], None)])
    assert two("level", shells, 0.5) == (2, 0, 2)
    assert two("sublevel", shells, 0.5) == (1, 0, 1, 0)


def test_linked_rings():
    """Two tori, one through the other: as many holes as unlinked ones, in the complement too."""
    linked = least(ring(3, (0, 1), -0.9), ring(3, (0, 2), 1.1))
    assert two("level", linked, 0.3) == (2, 4, 2)
    assert two("sublevel", linked, 0.3) == (2, 2, 0, 0)
    assert two("superlevel", linked, 0.3) == (1, 2, 2, 0)


def test_the_product_of_boundary_matrices_is_nothing():
    made = polyhedral_complex(ring(4), BOX, progress=None)
    matrices = made.boundaries
    assert [m.shape for m in matrices] == list(itertools.pairwise(made.f_vector))
    for a, b in itertools.pairwise(matrices):
        assert abs(a @ b).sum() == 0 and abs(a).sum() > 0
    with pytest.raises(InputError, match="a complex in a box"):
        polyhedral_complex(ball(2), progress=None).boundaries


def test_torsion_is_seen_modulo_two():
    """A projective plane of six vertices: no hole over the rationals, one modulo 2."""
    triangles = [
        (0, 1, 2),
        (0, 2, 3),
        (0, 3, 4),
        (0, 4, 5),
        (0, 5, 1),
        (1, 2, 4),
        (2, 3, 5),
        (3, 4, 1),
        (4, 5, 2),
        (5, 1, 3),
    ]

    class Plane:
        f_vector = (6, 15, 10)
        faces = (np.arange(6), np.arange(15), np.arange(10))

        class complex:
            boundaries = _simplices(triangles)

    assert betti_numbers(Plane) == (1, 0, 0)
    assert betti_numbers(Plane, 2) == (1, 1, 1)


def _simplices(triangles):
    from scipy.sparse import csr_array

    edges = sorted({tuple(sorted((t[i], t[j]))) for t in triangles for i, j in ((0, 1), (0, 2), (1, 2))})
    first, second = np.zeros((6, len(edges)), int), np.zeros((len(edges), len(triangles)), int)
    for k, (a, b) in enumerate(edges):
        first[a, k], first[b, k] = -1, 1
    for k, t in enumerate(triangles):
        a, b, c = sorted(t)
        second[edges.index((b, c)), k] = second[edges.index((a, b)), k] = 1
        second[edges.index((a, c)), k] = -1
    return csr_array(first), csr_array(second)


@pytest.mark.parametrize("seed", range(6))
def test_loops_of_a_decision_boundary_enclose_parts_of_classes(seed):
    """In the plane, as many loops as there are parts of classes that do not reach the side of the box."""
    net = random_net((2, 12, 8, 4), seed=seed)
    found = topology(net, (-2, 2), of="decision boundary")
    assert found.part.complex.face_to_face
    cells = found.part.complex.regions
    decided = net(cells.interior).argmax(axis=1)
    pairs = cells.adjacency()
    pairs = pairs[decided[pairs[:, 0]] == decided[pairs[:, 1]]]
    n, part = connected_components(coo_array((np.ones(len(pairs)), pairs.T), shape=(len(cells),) * 2), directed=False)
    outer = {part[i] for i in range(len(cells)) if any("input" in side for side in cells.facets(i))}
    assert found.betti[1:] == (n - len(outer),)
    ties = np.sort(net(found.part.vertices), axis=1)
    assert len(ties) > 5 and np.abs(ties[:, -1] - ties[:, -2]).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_persistence_agrees_with_sublevel_sets(seed):
    net = random_net((2, 10, 6, 2), seed=10 + seed)
    found = persistence(net, (-2, 2), other=1)
    births = found.pairs[:, 1]
    assert np.isinf(found.pairs[:, 2]).sum() == 1 and found.pairs[0, 0] == 0
    for value in np.quantile(np.concatenate([births, births + 0.1]), [0.1, 0.4, 0.6, 0.9]):
        expected = topology(net, (-2, 2), of="sublevel", other=1, value=float(value)).betti
        mine = found.betti(float(value))
        assert (*mine, *[0] * (len(expected) - len(mine))) == (*expected, *[0] * (len(mine) - len(expected)))


def test_nothing_and_everything():
    assert topology(ball(2), (-1, 1), of="level", value=5.0).betti == (0,)
    assert topology(ball(2), (-1, 1), of="sublevel", value=5.0).betti == (1, 0, 0)
    with pytest.raises(InputError, match="needs a box"):
        topology(ball(2), None)
    with pytest.raises(InputError, match="outputs of a decision"):
        topology(ball(2), (-1, 1), of="decision boundary")


@pytest.mark.parametrize("question", [topology, persistence])
def test_a_part_of_the_regions_is_refused(question):
    with pytest.raises(InputError, match=r"not all regions were found.*larger budget"):
        question(random_net((2, 12, 12, 1), 0), (-3, 3), budget="5 regions")
