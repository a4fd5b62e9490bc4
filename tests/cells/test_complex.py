"""The polyhedral complex: counts, labels, lattice, bent hyperplanes, level sets; and intersections of hyperplanes."""

import itertools
import json
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nets import integer_net, random_net
from reluscope import activations as ac
from reluscope.cells import complex as complex_module
from reluscope.cells.along import along
from reluscope.cells.complex import build_complex, polyhedral_complex
from reluscope.cells.hyperplanes import hyperplane_intersection
from reluscope.cells.regions import regions
from reluscope.errors import InputError
from reluscope.network import Network

ACTIVATIONS = [ac.relu(), ac.leaky_relu(-0.5), ac.hardtanh(), ac.absolute(), ac.piecewise([-1, 0, 2], [0, 1, 0.5, 2])]


def planes_net(rows, offsets):
    """One hidden layer with the given hyperplanes."""
    return Network([(rows, offsets), (np.ones((1, len(rows))), [0.0])])


# -- an oracle in exact arithmetic ---------------------------------------------------------------------------------
#
# A relatively open polyhedron is a list of equations `a . x = b` and strict inequalities `a . x < b`, all rational. It
# is decided by elimination (of Gauss for the equations, of Fourier and Motzkin for the inequalities) if it is empty.


def reduced(equations, n):
    """Row echelon form `(pivot, row)`, or None when the equations contradict each other. Rows are (*a, b)."""
    rows = []
    for row in equations:
        row = list(row)
        for pivot, known in rows:
            if row[pivot]:
                factor = row[pivot]
                row = [x - factor * y for x, y in zip(row, known, strict=True)]
        pivot = next((q for q in range(n) if row[q]), None)
        if pivot is None:
            if row[n]:
                return None
            continue
        lead = row[pivot]
        row = [x / lead for x in row]
        rows = [(p, [x - k[pivot] * y for x, y in zip(k, row, strict=True)]) for p, k in rows]
        rows.append((pivot, row))
    return rows


def nonempty(equations, inequalities, n):
    rows = reduced(equations, n)
    if rows is None:
        return False
    left = []
    for row in inequalities:
        row = list(row)
        for pivot, known in rows:
            if row[pivot]:
                factor = row[pivot]
                row = [x - factor * y for x, y in zip(row, known, strict=True)]
        left.append(row)
    for q in range(n):
        kept, low, high = set(), [], []
        for row in left:
            size = next((abs(x) for x in row if x), None)
            if size is None:
                return False  # 0 < 0
            row = tuple(x / size for x in row)
            if row[q] > 0:
                high.append(row)
            elif row[q] < 0:
                low.append(row)
            else:
                kept.add(row)
        for a in low:
            for b in high:
                kept.add(tuple(x * b[q] - y * a[q] for x, y in zip(a, b, strict=True)))
        left = list(kept)
    return all(row[n] > 0 for row in left)


def pulled_back(row, maps):
    """The equation or inequality `a . z (=, <) b` for `z = maps x`, where maps are rows (*slope, offset)."""
    *a, b = row
    slope = [sum((c * m[q] for c, m in zip(a, maps, strict=True)), Fraction(0)) for q in range(len(maps[0]) - 1)]
    return (*slope, b - sum((c * m[-1] for c, m in zip(a, maps, strict=True)), Fraction(0)))


def layer_rows(layer):
    """Rows (*w, b) of a layer and the activations of its units, in rationals."""
    rows = [
        [*(Fraction(float(w)) for w in ws), Fraction(float(b))] for ws, b in zip(layer.dense(), layer.bias, strict=True)
    ]
    return rows, [layer.units.kinds[k] for k in layer.units.kind]


def unit_faces(row, kind):
    """All positions of a unit: ternary label, equations, strict inequalities, and its activation as an affine map."""
    *w, b = row
    breaks = [Fraction(t) for t in kind.breaks]

    def activation(piece):
        s, t = Fraction(kind.slopes[piece]), Fraction(kind.intercepts[piece])
        return [*(s * x for x in w), s * b + t]

    def below(t):
        return (*w, t - b)

    def above(t):
        return (*(-x for x in w), b - t)

    for piece in range(len(breaks) + 1):
        label = tuple(1 if k < piece else -1 for k in range(len(breaks)))
        inside = [above(t) for t in breaks[:piece][-1:]] + [below(t) for t in breaks[piece : piece + 1]]
        yield label, [], inside, activation(piece)
    for on, t in enumerate(breaks):
        label = tuple((0 if k == on else 1 if k < on else -1) for k in range(len(breaks)))
        yield label, [below(t)], [], activation(on)


def arrangement(layer, equations=(), inequalities=(), maps=None):
    """Faces of a layer's arrangement inside a polyhedron: label, equations, inequalities, activations (affine maps)."""
    rows, kinds = layer_rows(layer)
    n = layer.n_inputs if maps is None else len(maps[0]) - 1
    found = [((), list(equations), list(inequalities), [])]
    for row, kind in zip(rows, kinds, strict=True):
        if maps is not None:  # the unit as a function of x, where z = maps x
            *w, b = row
            row = [sum((c * m[q] for c, m in zip(w, maps, strict=True)), Fraction(0)) for q in range(n + 1)]
            row[-1] += b
        more = []
        for label, eq, ineq, out in found:
            for sign, eq2, ineq2, act in unit_faces(row, kind):
                if nonempty(eq + eq2, ineq + ineq2, n):
                    more.append((label + sign, eq + eq2, ineq + ineq2, [*out, act]))
        found = more
    return found


def box_faces(n, bound):
    """The open faces of the box of half-width `bound`: sides, equations, inequalities. One face, the space, without."""
    faces = [((), [], [])]
    if bound is None:
        return [((0,) * n, [], [])]
    for q in range(n):
        axis = [Fraction(int(i == q)) for i in range(n)]
        up, down = (*axis, Fraction(bound)), (*(-a for a in axis), Fraction(bound))
        faces = [
            ((*sides, s), eq + e, ineq + i)
            for sides, eq, ineq in faces
            for s, e, i in ((-1, [down], []), (0, [], [up, down]), (1, [up], []))
        ]
    return faces


def forward_faces(net, bound):
    """Dimension of each face by (label, sides), built from the first layer to the last."""
    n = net.n_inputs
    found = {}
    for sides, eq, ineq in box_faces(n, bound):
        work = [((), eq, ineq, None)]
        for layer in net.hidden:
            work = [
                (label + more, eq2, ineq2, maps2)
                for label, eq1, ineq1, maps in work
                for more, eq2, ineq2, maps2 in arrangement(layer, eq1, ineq1, maps)
            ]
        for label, eq1, _, _ in work:
            found[label, sides] = n - len(reduced(eq1, n))
    return found


def backward_faces(net, bound):
    """The same from the last layer to the first: intersect each layer's faces with preimages of what comes after it."""
    later = None
    for depth in range(len(net.hidden) - 1, -1, -1):
        here = arrangement(net.hidden[depth])
        n = net.hidden[depth].n_inputs
        if later is None:
            later = [(label, eq, ineq) for label, eq, ineq, _ in here]
            continue
        pulled = []
        for label, eq, ineq, maps in here:
            for after, eq2, ineq2 in later:
                both = eq + [pulled_back(r, maps) for r in eq2], ineq + [pulled_back(r, maps) for r in ineq2]
                if nonempty(*both, n):
                    pulled.append((label + after, *both))
        later = pulled
    n = net.n_inputs
    return {
        (label, sides): n - len(reduced(eq + eq0, n))
        for sides, eq0, ineq0 in box_faces(n, bound)
        for label, eq, ineq in later
        if nonempty(eq + eq0, ineq + ineq0, n)
    }


def labelled_faces(found):
    """Dimension of each face of a complex by (label, sides); no two faces may share these."""
    faces = {}
    for k in range(found.dimension + 1):
        for label, sides in zip(found.labels(k).tolist(), found.sides(k).tolist(), strict=True):
            assert (tuple(label), tuple(sides)) not in faces
            faces[tuple(label), tuple(sides)] = k
    return faces


# -- counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n, d", [(1, 1), (6, 1), (1, 2), (2, 2), (5, 2), (9, 2), (1, 3), (3, 3), (7, 3), (6, 4), (6, 5)]
)
def test_hyperplanes_in_general_position(n, d):
    rng = np.random.default_rng(n)
    found = polyhedral_complex(planes_net(rng.normal(size=(n, d)), rng.normal(size=n)))
    # A k-face lies on a flat of dimension k, which is an intersection of d - k hyperplanes cut by the other n - d + k.
    counts = [comb(n, d - k) * sum(comb(n - d + k, i) for i in range(k + 1)) if n >= d - k else 0 for k in range(d + 1)]
    assert found.f_vector == tuple(counts) == found.inner_f_vector
    assert found.euler == (-1) ** d
    assert found.face_to_face
    assert int(found.bounded(d).sum()) == (comb(n - 1, d) if n else 0)


def test_lines_in_general_position_in_words():
    rng = np.random.default_rng(1)
    n = 12
    found = polyhedral_complex(planes_net(rng.normal(size=(n, 2)), rng.normal(size=n)))
    assert found.f_vector == (comb(n, 2), n * n, 1 + n + comb(n, 2))
    assert int((found.edges < 0).sum()) == 2 * n  # each line has two unbounded edges


def test_central_lines_and_planes():
    rng = np.random.default_rng(2)
    assert polyhedral_complex(planes_net(rng.normal(size=(7, 2)), np.zeros(7))).f_vector == (1, 14, 14)
    # n planes through 0 in general position: every pair meets in a line, the sphere has 2 C(n, 2) vertices.
    n = 5
    on_sphere = 2 * comb(n, 2), 4 * comb(n, 2), 2 * comb(n, 2) + 2
    assert polyhedral_complex(planes_net(rng.normal(size=(n, 3)), np.zeros(n))).f_vector == (1, *on_sphere)


DEGENERATE = {
    "duplicate": ([[1, 0], [1, 0], [0, 1]], [0, 0, 0], (9, 12, 4), (1, 4, 4)),
    "scaled duplicate": ([[1, 2], [3, 6], [-2, 1]], [0.1, 0.3, 0], (9, 12, 4), (1, 4, 4)),
    "opposite": ([[1, 0], [-1, 0]], [0.5, -0.5], (6, 7, 2), (0, 1, 2)),
    "parallel": ([[1, 0], [1, 0], [1, 0]], [0, 1, -1], (10, 13, 4), (0, 3, 4)),
    "dead unit": ([[0, 0], [1, 2]], [-1, 0], (6, 7, 2), (0, 1, 2)),
    "on its break everywhere": ([[0, 0], [1, 2]], [0, 0], (6, 7, 2), (0, 1, 2)),
    "always on": ([[0, 0], [1, 1]], [1, 0], (4, 5, 2), (0, 1, 2)),
    "on the box face": ([[1, 0], [0, 1]], [3, -3], (4, 4, 1), (0, 0, 1)),
    "through a corner": ([[1, 1], [1, -1]], [6, 6], (4, 4, 1), (0, 0, 1)),
    "three through a point": ([[1, 0], [0, 1], [1, 1]], [0, 0, 0], (9, 14, 6), (1, 6, 6)),
    "meeting on the box": ([[1, 1], [1, -1]], [3, 3], (7, 9, 3), (0, 2, 3)),
    "outside the box": ([[1, 0]], [10], (4, 4, 1), (0, 0, 1)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_lines(name):
    rows, offsets, counts, inner = DEGENERATE[name]
    net = planes_net(rows, offsets)
    found = polyhedral_complex(net, (-3, 3))
    assert found.f_vector == counts
    assert found.inner_f_vector == inner
    assert found.euler == 1
    assert found.face_to_face
    check_labels(found)


def test_sawtooth_and_an_affine_network():
    tent, later = ([[1.0], [1.0]], [0.0, -0.5]), ([[2.0, -4.0], [2.0, -4.0]], [0.0, -0.5])
    found = polyhedral_complex(Network([tent, *[later] * 4, ([[2.0, -4.0]], [0.0])]), (0, 1))
    assert found.f_vector == (33, 32)
    np.testing.assert_array_equal(np.sort(found.vertices[:, 0]), np.arange(33) / 32)
    affine = Network([([[1.0, 2.0, 3.0]], [0.5])])
    assert polyhedral_complex(affine, (-1, 1)).f_vector == (8, 12, 6, 1)
    assert polyhedral_complex(affine).f_vector == (0, 0, 0, 1)
    assert polyhedral_complex(affine).labels(3).shape == (1, 0)


@settings(max_examples=18)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 4, 3, 1), (2, 3, 3, 1), (2, 2, 2, 2, 1), (3, 2, 2, 1)]),
    st.sampled_from(ACTIVATIONS),
    st.sampled_from([2, None]),
)
def test_faces_agree_with_exact_rational_arithmetic(seed, widths, act, bound):
    if len(act.breaks) > 1 and widths[0] == 3:
        act = ac.relu()  # keep the elimination small
    net = integer_net(widths, seed, act, top=2)
    found = polyhedral_complex(net, None if bound is None else (-bound, bound))
    assert found.face_to_face
    assert labelled_faces(found) == forward_faces(net, bound)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("widths", [(2, 3, 2, 1), (2, 2, 2, 2, 1), (1, 3, 3, 1)])
def test_the_backward_construction_gives_the_same_complex(widths, seed):
    net = integer_net(widths, seed, top=3)
    for bound in (2, None):
        found = polyhedral_complex(net, None if bound is None else (-bound, bound))
        assert labelled_faces(found) == backward_faces(net, bound) == forward_faces(net, bound)


# -- the lattice and the labels ------------------------------------------------------------------------------------


def check_labels(found):
    """In a box: labels are the signs of `h - t` at a point inside each face, and 0 where it is."""
    net = found.network
    breaks = np.concatenate([layer.units.breaks[np.isfinite(layer.units.breaks)] for layer in net.hidden])
    unit = net.offsets[found.columns[:, 0]] + found.columns[:, 1]
    for k in range(found.dimension + 1):
        offsets, ids = found.face_vertices(k)
        inside = np.add.reduceat(found.vertices[ids], offsets[:-1]) / np.diff(offsets)[:, None]
        height = np.concatenate(net.preactivations(inside)[:-1], axis=1)[:, unit] - breaks
        blur = 1e-10 * (1 + np.abs(height).max())
        labels = found.labels(k)
        assert (np.abs(height[labels == 0]) < blur).all()
        assert (height[labels != 0] * labels[labels != 0] > 0).all()


def check_lattice(found):
    """Between a face and a face of it two dimensions lower there are exactly two: the property of polytopes."""
    for k in range(2, found.dimension + 1):
        between = found.incidence(k) @ found.incidence(k - 1)
        if found.box is not None:
            assert (between.data == 2).all()
    if found.box is not None:
        assert (np.diff(found.incidence(1).indptr) == 2).all()
    # An inner facet has a region on each side, one on the boundary a single one.
    regions_at = np.asarray(found.incidence(found.dimension).sum(axis=0))
    np.testing.assert_array_equal(regions_at, np.where(found.on_boundary(found.dimension - 1), 1, 2))
    # Going down, signs stay or become 0.
    for k in range(1, found.dimension + 1):
        pairs = found.incidence(k).tocoo()
        upper, lower = found.labels(k)[pairs.row], found.labels(k - 1)[pairs.col]
        assert ((lower == upper) | (lower == 0)).all()


@settings(max_examples=20)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 6, 6, 1), (2, 8, 8, 1), (2, 5, 5, 5, 1), (3, 4, 4, 1), (4, 4, 3, 1)]),
    st.sampled_from(ACTIVATIONS),
    st.sampled_from([0.0, 0.5]),
)
def test_random_networks(seed, widths, act, bias):
    net = random_net(widths, seed, act, bias)
    found = polyhedral_complex(net, (-2, 2.5))
    assert found.face_to_face
    d = found.dimension
    assert sum((-1) ** k * f for k, f in enumerate(found.inner_f_vector)) == (-1) ** d
    assert found.gap < 1e-9
    labelled_faces(found)
    check_lattice(found)
    check_labels(found)
    volume = found.regions.volume.sum()
    np.testing.assert_allclose(volume, 4.5**d, rtol=1e-9)


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 6, 6, 1), (2, 8, 8, 1), (3, 5, 4, 1), (4, 4, 3, 1)]),
    st.sampled_from([ac.relu(), ac.leaky_relu(-0.5), ac.absolute()]),
    st.sampled_from([0.0, 0.5]),
)
def test_random_networks_in_the_whole_space(seed, widths, act, bias):
    whole = polyhedral_complex(random_net(widths, seed, act, bias))
    assert whole.euler == (-1) ** whole.dimension
    assert whole.face_to_face
    check_lattice(whole)
    labelled_faces(whole)


def test_faces_inside_the_box_are_those_of_the_space():
    # In a box that holds all vertices, inner faces are the faces of the whole space.
    net = random_net((3, 6, 6, 1), 3, bias=0.5)
    whole = polyhedral_complex(net)
    size = 2 * np.abs(whole.vertices).max()
    boxed = polyhedral_complex(net, (-size, size))
    assert boxed.inner_f_vector == whole.f_vector
    for k in range(4):
        inner = boxed.labels(k)[~boxed.on_boundary(k)]
        assert {tuple(row) for row in inner.tolist()} == {tuple(row) for row in whole.labels(k).tolist()}


def test_unbounded_faces_follow_their_rays():
    whole = polyhedral_complex(random_net((3, 6, 4, 1), 1, bias=0.5))
    net, columns = whole.network, whole.columns
    # Cut by a sphere beyond all vertices, the complex is a division of the sphere with these vertices, edges and faces.
    rays, sides, cones = (int((~whole.bounded(k)).sum()) for k in range(1, 4))
    assert rays - sides + cones == 2
    assert (rays, sides, cones) == (76, 152, 78)
    for k in range(1, 4):
        for i in np.flatnonzero(~whole.bounded(k)):
            face = whole.face(k, int(i))
            assert len(face.vertices) and len(face.rays)
            far = face.vertices.mean(axis=0) + 1e3 * face.rays.sum(axis=0)
            height = np.concatenate(net.preactivations(far)[:-1])[net.offsets[columns[:, 0]] + columns[:, 1]]
            np.testing.assert_array_equal(np.where(np.abs(height) < 1e-8, 0, np.sign(height)), face.label)


def test_regions_keep_their_numbers_and_orientation():
    net = random_net((2, 10, 10, 1), 0)
    found = polyhedral_complex(net, (-3, 3))
    offsets, ids = found.face_vertices(2)
    np.testing.assert_array_equal(found.labels(2) > 0, found.regions.pattern > 0)
    for i in range(len(found.regions)):
        corners = found.vertices[ids[offsets[i] : offsets[i + 1]]]
        np.testing.assert_allclose(corners, found.regions.vertices(i), atol=1e-12)
        x, y = corners.T
        area = 0.5 * np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
        assert area == pytest.approx(found.regions.volume[i], rel=1e-9)
    ends = found.vertices[found.edges]
    assert (np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1) > 0).all()


def test_thin_slivers_keep_their_faces():
    for angle in (1e-6, 1e-9, 1e-12):
        found = polyhedral_complex(planes_net([[1.0, 0.0], [1.0, angle]], [0.0, 0.0]), (-1, 1))
        assert found.f_vector == (9, 12, 4)
        assert found.face_to_face


def test_many_edges_and_many_columns():
    # 80 tangents of a circle: one cell with 80 edges, more than a word has bits; 80 columns as well.
    angle = 2 * np.pi * np.arange(80) / 80
    net = planes_net(np.column_stack([np.cos(angle), np.sin(angle)]), np.full(80, -1.0))
    found = polyhedral_complex(net, (-1.2, 1.2))
    assert np.diff(found.face_vertices(2)[0]).max() == 80
    assert found.face_to_face
    labelled_faces(found)
    check_lattice(found)


def test_cells_that_disagree_about_a_sign_put_their_vertex_on_the_break_point():
    from reluscope.cells.complex_faces import _star

    # Two cells, one vertex each, glued together; three columns: -, + (a change of sign), and + on both.
    nothing, positive = np.zeros((2, 1), np.uint64), np.array([[0b100], [0b110]], np.uint64)
    zero, sides = np.zeros((1, 1), np.uint64), np.zeros(1, np.uint64)
    _star(np.zeros(2, np.int64), np.arange(2), nothing, positive, np.array([1, 8], np.uint64), zero, sides)
    assert (int(zero[0, 0]), int(sides[0])) == (0b010, 9)


def test_a_budget_gives_the_part_that_was_found():
    found = polyhedral_complex(random_net((2, 12, 12, 1), 0), (-2, 2), budget="20 regions")
    assert not found.complete
    assert not found.face_to_face
    assert found.unmatched > 0
    assert found.f_vector[2] == 20
    assert "incomplete" in repr(found)


# -- bent hyperplanes ----------------------------------------------------------------------------------------------


def test_bent_hyperplanes_hold_their_units_and_cover_all_inner_facets():
    net = random_net((3, 5, 5, 1), 2, ac.hardtanh(), 0.5)
    found = polyhedral_complex(net, (-2, 2))
    covered = set()
    for layer, unit, step in found.columns.tolist():
        bent = found.bent_hyperplane(layer, unit, step)
        height = net.preactivations(bent.vertices)[layer][:, unit] - net.hidden[layer].units.breaks[unit, step]
        assert (np.abs(height) < 1e-12).all()
        covered |= set(bent.facets.tolist())
        # Every face of a face that is in it is in it, too.
        for k in range(1, 3):
            below = found.incidence(k)[bent.faces[k]].indices
            assert set(below.tolist()) <= set(bent.faces[k - 1].tolist())
    assert covered == set(np.flatnonzero(~found.on_boundary(2)).tolist())


def test_first_layer_hyperplanes_are_flat_and_later_ones_bend():
    # relu(x) + relu(-x) - 1/2 = |x| - 1/2 vanishes on two lines; with y added it is one line with a kink.
    net = Network([([[1, 0], [-1, 0]], [0, 0]), ([[1, 1]], [-0.5]), ([[1]], [0])])
    found = polyhedral_complex(net, (-1, 1))
    flat = found.bent_hyperplane(0, 0)
    np.testing.assert_array_equal(flat.vertices[:, 0], 0.0)
    assert flat.f_vector == (2, 1, 0)
    two = found.bent_hyperplane(1, 0)
    assert two.components() == 2
    assert two.f_vector == (4, 2, 0)
    assert two.euler == 2
    np.testing.assert_allclose(np.abs(two.segments()[:, :, 0]), 0.5)
    # The same unit, with y carried past the first layer.
    units = [ac.relu(), ac.relu(), ac.identity()]
    kinked = Network([([[1, 0], [-1, 0], [0, 1]], [0, 0, 0], units), ([[1, 1, 1]], [-0.5]), ([[1]], [0])])
    bent = polyhedral_complex(kinked, (-1, 1)).bent_hyperplane(1, 0)
    assert (bent.f_vector, bent.components()) == ((3, 2, 0), 1)
    corner = bent.vertices[np.argmin(np.abs(bent.vertices[:, 0]))]
    np.testing.assert_allclose(corner, [0.0, 0.5], atol=1e-15)
    with pytest.raises(InputError, match="affine"):
        polyhedral_complex(kinked, (-1, 1)).bent_hyperplane(0, 2)


def test_a_unit_that_is_zero_on_a_region():
    # relu(x) is 0 on the left half: a second layer without bias is on its break point all over it.
    net = Network([([[1.0, 0.0]], [0.0]), ([[2.0]], [0.0]), ([[1.0]], [0.0])])
    found = polyhedral_complex(net, (-1, 1))
    bent = found.bent_hyperplane(1, 0)
    assert bent.f_vector == (4, 4, 1)
    assert found.regions.interior[bent.regions[0], 0] < 0
    assert sorted(found.labels(2).tolist()) == [[-1, 0], [1, 1]]


def test_unbounded_segments():
    found = polyhedral_complex(planes_net([[1.0, 1.0]], [-2.0]))
    (segment,) = found.bent_hyperplane(0, 0).segments(reach=5.0)
    np.testing.assert_allclose(segment.sum(axis=1), 2.0, atol=1e-14)
    assert np.linalg.norm(segment[0] - segment[1]) == pytest.approx(10.0)


# -- level sets ----------------------------------------------------------------------------------------------------


def cross_polytope(d):
    """`|x_1| + ... + |x_d|`."""
    return Network([(np.eye(d), np.zeros(d), "abs"), (np.ones((1, d)), [0.0])])


@pytest.mark.parametrize(
    "d, counts",
    [(1, (2, 0)), (2, (4, 4, 0)), (3, (6, 12, 8, 0)), (4, (8, 24, 32, 16, 0)), (5, (10, 40, 80, 80, 32, 0))],
)
@pytest.mark.parametrize("box", [(-2, 2), None])
def test_the_cross_polytope_is_a_level_set(d, counts, box):
    found = polyhedral_complex(cross_polytope(d), box)
    level = found.level_set(0, value=1.0)
    assert level.f_vector == counts
    assert level.euler == 1 - (-1) ** d  # a sphere of dimension d - 1
    assert level.components() == (2 if d == 1 else 1)
    assert len(level) == 2**d
    np.testing.assert_allclose(np.abs(level.vertices).sum(axis=1), 1.0, rtol=1e-14)
    assert all(len(level.piece(i)) == d for i in range(len(level)))
    # At the value 0 only the origin is left, and below it nothing.
    assert found.level_set(0).f_vector == (1, *[0] * d)
    assert found.level_set(0).components() == 1
    assert found.level_set(0, value=-1.0).f_vector == (0,) * (d + 1)


def test_level_sets_along_bent_hyperplanes_and_whole_regions():
    net = Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])])
    found = polyhedral_complex(net, (-1, 1))
    level = found.level_set(0, other=1)  # relu(x) = relu(y): the third quadrant and a diagonal
    assert len(level.regions) == 1
    assert len(level) == 1
    np.testing.assert_allclose(np.sort(level.segments()[0], axis=0), [[0, 0], [1, 1]])
    assert level.f_vector == (5, 5, 1)
    assert level.components() == 1
    # An output that vanishes on a facet between two regions: |x| = 0.
    wall = polyhedral_complex(Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], "abs"), ([[1.0, 0.0]], [0.0])]), (-1, 1))
    level = wall.level_set(0)
    assert len(level) == 2
    np.testing.assert_array_equal(level.segments()[:, :, 0], 0.0)
    assert level.f_vector == (3, 2, 0)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([(-3, 3), None]))
def test_decision_boundaries_cross_lines_where_the_outputs_do(seed, box):
    net = random_net((2, 8, 8, 3), seed, bias=0.5)
    found = polyhedral_complex(net, box)
    level = found.level_set(0, other=2)
    values = net(level.vertices)
    np.testing.assert_allclose(values[:, 0], values[:, 2], atol=1e-11 * (1 + np.abs(level.vertices).max(initial=0)))
    segments = level.segments(reach=1e4)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        a, b = rng.uniform(-3, 3, (2, 2))
        path = along(net, a, b)
        gap = path.values()[:, 0] - path.values()[:, 2]
        crossings = int((gap[1:] * gap[:-1] < 0).sum())
        normal = np.array([b[1] - a[1], a[0] - b[0]])
        height = (segments - a) @ normal
        cut = height[:, 0] * height[:, 1] < 0
        share = height[cut, 0] / (height[cut, 0] - height[cut, 1])
        points = segments[cut, 0] + share[:, None] * (segments[cut, 1] - segments[cut, 0])
        position = (points - a) @ (b - a) / ((b - a) @ (b - a))
        assert int(((position > 0) & (position < 1)).sum()) == crossings


def test_pieces_of_a_level_set_in_space_lie_in_their_regions():
    net = random_net((3, 6, 6, 2), 4, bias=0.5)
    found = polyhedral_complex(net, (-2, 2))
    level = found.level_set(0, other=1)
    assert len(level) > 10
    for i in range(len(level)):
        corners = level.piece(i)
        assert len(corners) >= 3
        gap = net(corners) @ [1.0, -1.0]
        assert (np.abs(gap) < 1e-12).all()
        A, b = found.regions.half_spaces(int(level.region[i]))
        assert (corners @ A.T <= b + 1e-12).all()
        assert np.linalg.matrix_rank(corners - corners[0], tol=1e-9) == 2


# -- records -------------------------------------------------------------------------------------------------------


def test_repr_and_dictionary():
    found = polyhedral_complex(planes_net([[1.0, 0.0]], [0.0]), (-1, 1))
    assert repr(found).startswith("Complex(6 vertices, 7 edges, 2 regions of Network(2-1-1")
    out = json.loads(json.dumps(found.to_dict()))
    assert out["f_vector"] == [6, 7, 2]
    assert out["inner_f_vector"] == [0, 1, 2]
    assert out["euler"] == 1
    assert len(out["faces"][1]["vertices"]) == 7
    assert sorted(out["faces"][2]["labels"]) == ["+", "-"]
    assert out["faces"][1]["labels"].count("0") == 1
    assert json.dumps(polyhedral_complex(planes_net([[1.0, 0.0]], [0.0])).to_dict())
    assert "0 pieces" not in repr(found.level_set(0, value=0.5))
    assert "f-vector" in repr(found.bent_hyperplane(0, 0))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: polyhedral_complex(random_net((7, 3, 1))), "up to 6 inputs"),
        (lambda: polyhedral_complex("net"), "net must be a Network"),
        (lambda: polyhedral_complex(random_net((2, 3, 1)), (1, 0)), "lower < upper"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).labels(3), "k must be between 0 and 2"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).incidence(0), "k must be between 1 and 2"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).bent_hyperplane(1, 0), "layer must be between"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).bent_hyperplane(0, 3), "unit must be between"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).bent_hyperplane(0, 0, 1), "step must be between"),
        (lambda: polyhedral_complex(random_net((2, 1))).bent_hyperplane(0, 0), "no hidden units"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).level_set(1), "output must be between"),
        (lambda: polyhedral_complex(random_net((2, 3, 2))).level_set(1, other=1), "another output"),
        (lambda: polyhedral_complex(random_net((2, 3, 1))).level_set(0, value=np.nan), "value must be"),
        (lambda: polyhedral_complex(random_net((3, 3, 1))).level_set(0).segments(), "2 inputs"),
        (lambda: build_complex(regions(random_net((3, 3, 1)), (-1, 1), geometry="polytope")), "carry vertices"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(InputError, match=text):
        call()


# -- intersections of hyperplanes ----------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 7), st.integers(0, 2))
def test_hyperplanes_that_meet(seed, n, rows, copies):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(rows, n)) * 10.0 ** rng.integers(-3, 4, (rows, 1))
    A = np.concatenate([A, A[: min(copies, rows)] * 3.0])
    target = rng.normal(size=n)
    found = hyperplane_intersection(A, A @ target)
    assert found.consistent
    assert found.rank == min(n, rows)
    assert found.dimension == n - found.rank
    np.testing.assert_allclose(found.basis @ found.basis.T, np.eye(found.dimension), atol=1e-13)
    np.testing.assert_allclose(found.basis @ found.point, 0.0, atol=1e-10)
    # The target is in the space, and the point is its nearest to the origin.
    nearest = target - found.basis.T @ (found.basis @ target)
    np.testing.assert_allclose(found.point, nearest, atol=1e-6)


def test_hyperplanes_that_do_not_meet():
    parallel = hyperplane_intersection([[1.0, 0.0], [2.0, 0.0]], [0.0, 2.0])
    assert (parallel.consistent, parallel.dimension, parallel.rank) == (False, -1, 1)
    np.testing.assert_allclose(parallel.point, [0.5, 0.0], atol=1e-15)
    assert parallel.residual == pytest.approx(0.5)
    assert not hyperplane_intersection([[1, 0], [0, 1], [1, 1]], [0, 1, 1 + 1e-9]).consistent
    assert hyperplane_intersection([[1, 0], [0, 1], [1, 1]], [0, 1, 1 + 1e-9], rounding=1e-6).consistent
    assert hyperplane_intersection([[1, 0], [1, 1e-9]], [0, 0]).rank == 2
    assert hyperplane_intersection([[1, 0], [1, 1e-9]], [0, 0], rounding=1e-6).rank == 1
    assert not hyperplane_intersection([[0.0, 0.0], [1.0, 0.0]], [1.0, 0.0]).consistent
    assert hyperplane_intersection([[0.0, 0.0], [1.0, 0.0]], [0.0, 0.0]).dimension == 1
    assert hyperplane_intersection(np.zeros((0, 3)), []).dimension == 3
    tiny = hyperplane_intersection([[1e-300, 0.0], [0.0, 1e300]], [1e-300, 2e300])
    np.testing.assert_allclose(tiny.point, [1.0, 2.0])
    assert "empty" in repr(parallel)
    assert json.dumps(parallel.to_dict())
    for A, b, text in [([[1.0, 0.0]], [0.0, 1.0], "one row per"), ([[1e-300]], [1e300], "too far")]:
        with pytest.raises(InputError, match=text):
            hyperplane_intersection(A, b)


@pytest.mark.parametrize("seed, bias", [(2, 0.0), (2, 0.5), (4, 0.5)])
def test_saturating_units_in_the_plane(seed, bias):
    """Vertices at infinity are ill-determined here: symbolic ones gave 519 regions for the first, instead of 515."""
    net = random_net((2, 6, 6, 6, 1), seed, ac.hardtanh(), bias)
    c = polyhedral_complex(net, progress=None)
    assert c.face_to_face
    assert c.box is None
    assert c.f_vector[2] == len(regions(net, progress=None))
    np.testing.assert_array_equal(net.pattern(c.regions.interior), c.regions.pattern)
    assert 0 < c.bounded(2).sum() < c.f_vector[2]


@pytest.mark.parametrize("seed", range(3))
def test_a_large_square_is_the_plane(seed):
    net = random_net((2, 5, 4, 1), seed)
    symbolic = polyhedral_complex(net, progress=None)
    square = complex_module._plane_complex(net, symbolic, None)
    assert square is not symbolic
    assert square.f_vector == symbolic.f_vector
    for k in range(3):
        sets = [
            {(row.tobytes(), bool(b)) for row, b in zip(c.labels(k), c.bounded(k), strict=True)}
            for c in (square, symbolic)
        ]
        assert sets[0] == sets[1]
    nearest = np.abs(square.vertices[:, None] - symbolic.vertices[None]).max(axis=2).min(axis=1)
    # The square is up to 1.2e7 wide, and its corners are rounded to that: 1e-9 of the vertices, times their condition.
    assert nearest.max() < 5e-9 * (1 + np.abs(symbolic.vertices).max())
    rays = [np.concatenate([c.face(1, i).rays for i in range(c.f_vector[1])]) for c in (square, symbolic)]
    np.testing.assert_allclose(*(np.unique(np.round(r, 9), axis=0) for r in rays), atol=1e-8)
    for value in (0.0, 0.3):
        a, b = square.level_set(value=value), symbolic.level_set(value=value)
        assert a.f_vector == b.f_vector
        assert a.components() == b.components()


# -- polytopes -----------------------------------------------------------------------------------------------------


def test_one_cell_with_more_facets_than_the_first_buffer_holds():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(52, 3))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    found = polyhedral_complex(Network([(np.ones((1, 3)), [10.0]), ([[1.0]], None)]), polytope=(A, np.ones(52)))
    # 52 planes that touch the unit sphere: a simple polytope, so 3 V = 2 E, and Euler's formula gives the rest.
    assert found.f_vector == (100, 150, 52, 1)
    assert found.inner_f_vector == (0, 0, 0, 1)
    assert found.face_to_face
    on = found.half_spaces(2)
    np.testing.assert_array_equal(on.sum(axis=0), 1)
    np.testing.assert_array_equal(on.sum(axis=1), 1)


@pytest.mark.parametrize("widths", [(1, 5, 1), (2, 6, 4, 1), (3, 5, 1), (4, 4, 1)])
def test_a_box_by_its_half_spaces_has_the_faces_of_the_box(widths):
    net, d = random_net(widths, 3, bias=0.5), widths[0]
    box = polyhedral_complex(net, (-1.5, 1.25))
    rows = np.concatenate([np.eye(d), -np.eye(d)]), np.repeat([1.25, 1.5], d)
    found = polyhedral_complex(net, polytope=rows)
    assert found.f_vector == box.f_vector
    assert found.inner_f_vector == box.inner_f_vector
    assert found.face_to_face
    assert found.level_set(0, value=0.1).f_vector == box.level_set(0, value=0.1).f_vector
    for k in range(d + 1):
        on = found.half_spaces(k)
        sides = on[:, :d].astype(int) - on[:, d:]
        there = {(*a, *b) for a, b in zip(found.labels(k).tolist(), sides.tolist(), strict=True)}
        assert there == {(*a, *b) for a, b in zip(box.labels(k).tolist(), box.sides(k).tolist(), strict=True)}
    for first, second in itertools.pairwise(found.boundaries):
        assert not (first @ second).count_nonzero()


def test_a_triangle_in_a_box():
    net = Network([(np.eye(2), None), ([[1.0, 1.0]], None)])
    triangle = ([[1, 1], [-1, 1], [0, -1]], [1, 1, 0.5])
    assert polyhedral_complex(net, polytope=triangle).f_vector == (7, 10, 4)
    cut = polyhedral_complex(net, (-1, 1), polytope=triangle)  # two corners less, two on the line y = 0 more
    assert cut.f_vector == (7, 10, 4)
    assert cut.sides(1).any(axis=1).sum() == 2
    assert cut.on_boundary(1).sum() == 6


def test_polytopes_that_a_complex_refuses():
    net = random_net((2, 3, 1), 0)
    with pytest.raises(InputError, match="bounded"):
        polyhedral_complex(net, polytope=([[1.0, 1.0]], [1.0]))
    angle = np.linspace(0, 2 * np.pi, 61, endpoint=False)
    with pytest.raises(InputError, match="at most 60 rows"):
        polyhedral_complex(net, polytope=(np.stack([np.cos(angle), np.sin(angle)], axis=1), np.ones(61)))
