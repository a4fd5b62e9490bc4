"""Hyperplanes that nearly coincide: no geometry loses a sliver, finds it twice or invents one.

`benchmarks/coincidence.py` does the same for 2,000 networks.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from coincident import KINDS, coincident_net, compare
from rational import rational_regions

from reluscope.cells.domain import starting_cell
from reluscope.cells.doubt import Doubts
from reluscope.cells.exact_simplex import POSITIVE, End, Tableau, whole
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.polytope_exact import Cell, exact_bounds, exact_centre, exact_facets, exact_vertex
from reluscope.cells.regions import regions
from reluscope.cells.subdivide import subdivide
from reluscope.errors import InputError
from reluscope.inputs import Uniform
from reluscope.network import Network


def near_copies(inputs: int, units: int, distance: float, seed: int = 0) -> Network:
    """One hidden layer: random units, and each of them once more, a little off."""
    rng = np.random.default_rng(seed)
    W, b = rng.normal(size=(units, inputs)) * np.sqrt(2 / inputs), rng.uniform(-1, 1, units) / np.sqrt(inputs)
    W = np.concatenate([W, W + distance * rng.normal(size=W.shape)])
    b = np.concatenate([b, b + distance * rng.normal(size=b.shape)])
    return Network([(W, b), (np.ones((1, 2 * units)), [0.0])])


@pytest.mark.parametrize("distance", [1e-7, 1e-8, 1e-10, 1e-12])
def test_slivers_in_six_inputs_are_found_once(distance):
    """From 1e-10 on, all slivers were lost; at 1e-8 the search failed; at 1e-12 patterns were invented."""
    net = near_copies(6, 4, distance)
    vertex, polytope = (regions(net, (-1, 1), geometry=g, progress=None) for g in ("vertex", "polytope"))
    assert polytope.complete and len(polytope) == len(vertex) > 150
    assert {tuple(p) for p in polytope.pattern} == {tuple(p) for p in vertex.pattern}


def test_the_slivers_themselves():
    """Inner points, sides and boxes of slivers 1e-9 wide."""
    net = near_copies(6, 3, 1e-9)
    found = regions(net, (-1, 1), geometry="polytope", progress=None)
    assert len(found) > 30 and len({tuple(p) for p in found.pattern}) == len(found)
    assert (net.pattern(found.interior) == found.pattern).all()
    low, high = found.cells.bounds()
    assert (low <= found.interior).all() and (found.interior <= high).all()
    # A unit and its copy part a sliver from the rest: both are facets of it.
    for i in np.flatnonzero((found.pattern[:, :3] != found.pattern[:, 3:]).any(axis=1)):
        k = int(np.argmax(found.pattern[i, :3] != found.pattern[i, 3:]))
        units = {f["unit"] for f in found.facets(int(i)) if "unit" in f}
        assert {k, k + 3} <= units


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [2, 3, 4, 6, 7])
def test_all_geometries_agree_with_rational_arithmetic(kind, inputs):
    verdict = compare(coincident_net(kind, inputs, 7), rational=inputs <= 4)
    assert verdict.regions >= 2
    assert verdict.different == 0


@pytest.mark.parametrize(("kind", "inputs", "seed"), [("slivers", 5, 52), ("near copies", 7, 921)])
def test_a_second_layer_cuts_slivers_that_rounding_has_bent(kind, inputs, seed):
    """All slivers of the first layer were there, but with vertices on wrong facets: the second layer lost a part."""
    assert compare(coincident_net(kind, inputs, seed), rational=False).different == 0


@pytest.mark.parametrize(("inputs", "seed"), [(4, 21), (3, 32), (3, 1)])
def test_slivers_in_the_whole_space(inputs, seed):
    """What is in a box is in the space, too. In the last network directions differ by less than a ray's tolerance."""
    net = coincident_net("slivers", inputs, seed)
    found = regions(net, None, geometry="vertex", progress=None)
    lost = rational_regions(net, -1, 1) - {tuple(p) for p in found.pattern.tolist()}
    assert lost and not found.complete


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_all_geometries_agree_in_the_whole_space(kind, inputs):
    verdict = compare(coincident_net(kind, inputs, 3), space=True)
    assert verdict.regions >= 2
    assert verdict.different == 0


@pytest.mark.parametrize(("inputs", "geometry"), [(1, "interval"), (2, "vertex"), (3, "vertex"), (2, "polytope")])
def test_slopes_that_cancel_but_for_rounding(inputs, geometry):
    """A sum of weights less their rounded sum is 1e-17, not 0: at 1e16 the second layer does switch.

    All but a few of these lists were wrong and called themselves complete.
    """
    wrong = 0
    for seed in range(60 if inputs == 1 else 20):
        rng = np.random.default_rng([seed, inputs])
        W = rng.normal(size=(3, inputs))
        W = np.concatenate([W, W.sum(axis=0, keepdims=True), W[:1] - W[1:2]])
        second = [[1.0, 1.0, 1.0, -1.0, 0.0], [1.0, -1.0, 0.0, 0.0, -1.0]]
        net = Network([(W, rng.uniform(0, 1, 5)), (second, rng.normal(size=2)), ([[1.0, 1.0]], None)])
        found = regions(net, None, geometry=geometry, progress=None)
        listed = {tuple(p) for p in found.pattern.tolist()}
        wrong += not found.complete
        assert found.complete is (listed == rational_regions(net))
    assert wrong >= (1 if inputs == 1 else 10)


def test_slopes_below_the_tolerance_of_values():
    """In the whole space a unit with slopes of 1e-16 and a bias of 1 is not constant."""
    net = Network([(1e-16 * np.array([[1.0, 2.0], [-3.0, 1.0]]), [1.0, -1.0]), ([[1.0, 1.0]], None)])
    found = regions(net, None, geometry="polytope", progress=None)
    assert len(found) < 4 and not found.complete
    assert len(regions(net, None, geometry="vertex", progress=None)) == 4


@pytest.mark.parametrize("distance", [1e-13, 1e-14, 1e-15, 1e-16])
@pytest.mark.parametrize(("inputs", "geometry"), [(1, "interval"), (2, "polygon"), (3, "vertex"), (6, "polytope")])
def test_what_floats_cannot_tell_is_counted(inputs, geometry, distance):
    """Such enumerations called themselves complete: 519 of 655 regions at 1e-14 in six inputs."""
    net = near_copies(inputs, 4 if inputs == 2 else 3, distance, seed=5)
    truth = rational_regions(net, -1, 1)
    start = starting_cell(inputs, box=(np.full(inputs, -1.0), np.full(inputs, 1.0)), geometry=geometry)
    doubts = Doubts(net, (np.full(inputs, -1.0), np.full(inputs, 1.0)))
    listed = {tuple(p) for batch in subdivide(net, start, doubts=doubts) for p in batch.pattern.tolist()}
    assert (doubts.missing, doubts.empty, doubts.undecided) == (len(truth - listed), len(listed - truth), 0)
    found = regions(net, (-1, 1), geometry=geometry, progress=None)
    assert found.complete is (listed == truth)
    if distance <= 1e-15:
        assert not found.complete and f"at least {len(truth - listed)} parts of cells" in found.doubt


@pytest.mark.parametrize("kind", ["whole numbers", "no biases", "copies"])
@pytest.mark.parametrize(
    ("inputs", "geometry", "box"),
    [
        (1, "interval", (-1, 1)),
        (1, "interval", None),
        (2, "polygon", (-1, 1)),
        (2, "vertex", None),
        (3, "vertex", (-1, 1)),
        (3, "vertex", None),
    ],
)
def test_exact_coincidence_is_no_doubt(kind, inputs, geometry, box):
    """In a deep network too: decided modulo primes, without cutting a cell again."""
    net = coincident_net(kind, inputs, 3)
    again = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Doubts, "_cut_again", lambda *given: again.append(given))
        found = regions(net, box, geometry=geometry, progress=None)
    assert found.complete and not again
    assert {tuple(p) for p in found.pattern.tolist()} == rational_regions(net, *(box or (None, None)))


def test_too_much_to_decide_is_said(monkeypatch):
    monkeypatch.setattr("reluscope.cells.doubt._EXACT_WORK", 10)
    found = regions(near_copies(2, 4, 1e-14), (-1, 1), progress=None)
    assert not found.complete and "1 cell in which a part thinner than that may be missing" in found.doubt


def test_half_spaces_of_the_domain_are_exact_too():
    """A unit along a side of the domain, exactly or nearly."""
    A, b = np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([0.3, 0.7])
    for off, complete in ((0.0, True), (1e-16, False)):
        net = Network([([[2.0, 2.0]], [-0.6 + off]), ([[1.0]], None)])
        assert regions(net, (-1, 1), polytope=(A, b), progress=None).complete is complete


def test_a_campaign_can_fail(monkeypatch):
    """A geometry that loses one region is noticed."""
    net = coincident_net("random", 3, 1)

    def lossy(*given, geometry, **more):
        found = regions(*given, geometry=geometry, **more)
        return _Without(found.pattern[1:]) if geometry == "polytope" else found

    monkeypatch.setattr("coincident.regions", lossy)
    assert compare(net).different == 1


class _Without:
    complete = True

    def __init__(self, pattern):
        self.pattern = pattern


# -- the simplex method in whole numbers -----------------------------------------------------------------------------


def test_tableau_solves_by_hand():
    """x + y over x <= 3, y <= 2, x + 2 y <= 5, x, y >= 0 is largest at (3, 1)."""
    slacks = [[0, 1, 0], [0, 0, 1], [3, -1, 0], [2, 0, -1], [5, -1, -2]]
    at = Tableau(2, [*slacks, [0, 1, 1]])
    for v in range(2, 7):
        assert at.demand(v, POSITIVE)
    assert at.search(7, 1, Fraction(7, 2)) is End.BEYOND
    assert at.search(7, 1, None) is End.OPTIMAL
    assert at.coordinates() == [3, 1] and at.exact(7) == 4
    assert at.search(7, -1, None) is End.OPTIMAL and at.exact(7) == 0
    assert not _both([[-1, 1], [0, -1]])
    assert _both([[-1, 1], [1, -1]])


def _both(rows):
    at = Tableau(1, rows)
    return at.demand(1, POSITIVE) and at.demand(2, POSITIVE)


def test_tableau_without_bounds():
    at = Tableau(2, [[1, 1, 0]])
    assert at.search(2, 1, Fraction(10)) is End.UNBOUNDED
    assert at.walk(2) and at.exact(2) == 0 and at.exact(0) == -1


def test_fractions_over_one_denominator():
    assert whole([Fraction(1, 4), Fraction(-3, 2), Fraction(5)]) == ([1, -6, 20], 4)


def test_shapes_in_whole_numbers_agree_with_the_kernels():
    found = regions(near_copies(6, 3, 0.3), (-1, 1), geometry="polytope", progress=None)
    cells = found.cells
    assert isinstance(cells, HPolytopes) and len(cells) > 20
    frame = cells.frame
    kept, points = cells._facets
    low, high = cells.bounds()
    ends = np.cumsum(np.diff(cells.offsets) + 12)
    before = 0
    for i in range(8):
        cell = cells._cell(i)
        np.testing.assert_allclose(np.stack(exact_bounds(cell)) * frame.scale + frame.origin[None], [low[i], high[i]])
        assert exact_vertex(cell) is not None
        centre, radius = exact_centre(cell, frame.scale, np.inf)
        assert radius == pytest.approx(cells.inradius()[i], rel=1e-9)
        mine = np.flatnonzero(kept[ends[i] - len(cell.b) - 12 : ends[i]])
        facets, middle = exact_facets(cell, centre)
        assert facets.tolist() == mine.tolist()
        before += len(mine)
        assert (middle * frame.scale + frame.origin >= low[i] - 1e-12).all()
    assert before == kept[: ends[7]].sum() and len(points) == kept.sum()
    nothing = Cell(np.eye(6)[:1], np.array([-3.0]), np.zeros(1), (), frame.lower, frame.upper)
    assert exact_vertex(nothing) is None


# -- volumes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "units", "distance"), [(6, 4, 0.3), (7, 3, 0.3), (8, 2, 0.3), (6, 3, 1e-9)])
def test_volumes_from_six_inputs_on_fill_the_box(inputs, units, distance):
    """Qhull failed on 6 of 6 such networks."""
    net = near_copies(inputs, units, distance)
    found = regions(net, (-1, 1), geometry="polytope", progress=None)
    assert (found.volume > 0).all()
    assert found.volume.sum() == pytest.approx(2.0**inputs, rel=1e-11)
    if inputs == 6:
        other = regions(net, (-1, 1), geometry="vertex", progress=None)
        place = {tuple(p): v for p, v in zip(other.pattern.tolist(), other.volume, strict=True)}
        expected = [place[tuple(p)] for p in found.pattern.tolist()]
        # The width of a sliver is known to 16 digits of the box: 1e-16 / 1e-9.
        np.testing.assert_allclose(found.volume, expected, rtol=1e-11 if distance > 0.1 else 1e-5)


def test_vertices_of_half_space_cells_are_those_of_the_other_geometry():
    net = near_copies(4, 3, 0.3)
    found, other = (regions(net, (-1, 1), geometry=g, progress=None) for g in ("polytope", "vertex"))
    place = {tuple(p): i for i, p in enumerate(other.pattern.tolist())}
    assert len(found) == len(other) > 20
    for i, p in enumerate(found.pattern.tolist()):
        mine, theirs = found.vertices(i), other.vertices(place[tuple(p)])
        assert len(mine) == len(theirs)
        assert np.abs(mine[:, None] - theirs[None]).max(axis=2).min(axis=1).max() < 1e-12


def test_shares_of_a_box_in_more_dimensions_have_intervals():
    net = near_copies(9, 2, 0.3)
    found = regions(net, (0, 1), progress=None)
    masses = found.masses(Uniform(np.zeros(9), np.ones(9)), rng=0)
    assert masses.guarantee == "confidence" and masses.value.sum() == pytest.approx(1.0)
    assert (masses.lower <= masses.value).all() and (masses.value <= masses.upper).all()
    with pytest.raises(InputError, match="volumes are computed for up to 8 inputs, got 9"):
        found.volume
    few = regions(near_copies(7, 2, 0.3), (0, 1), progress=None)
    counted = few.masses(Uniform(np.zeros(7), np.ones(7)), level=0.9999, rng=0)
    assert ((counted.lower <= few.volume) & (few.volume <= counted.upper)).all()
