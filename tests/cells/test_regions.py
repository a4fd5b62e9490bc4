"""The Regions record: queries, neighbours, merging, domains, budgets, and refusals."""

import math
import subprocess
import sys

import numpy as np
import pytest

import reluscope as rs
from nets import integer_net, random_net
from reluscope.budget import parse_budget
from reluscope.cells import _advance, subdivide
from reluscope.cells.along import along
from reluscope.cells.compare import equivalent
from reluscope.cells.regions import Regions, regions, stream_regions
from reluscope.errors import InputError
from reluscope.network import Network

NET = random_net((2, 14, 14, 2), 0)
FOUND = regions(NET, (-3, 3))


def test_find_names_the_region_of_each_row():
    X = np.random.default_rng(0).uniform(-3.5, 3.5, (5000, 2))
    i = FOUND.find(X)
    outside = (np.abs(X) > 3).any(axis=1)
    assert (i[outside] == -1).all()
    np.testing.assert_array_equal(FOUND.pattern[i[~outside]], NET.pattern(X[~outside]))
    value = np.einsum("noi,ni->no", FOUND.C[i[~outside]], X[~outside]) + FOUND.d[i[~outside]]
    np.testing.assert_allclose(value, NET(X[~outside]), atol=1e-12)


def test_neighbours_share_a_facet():
    for i in range(len(FOUND)):
        A, b = FOUND.half_spaces(i)
        assert (A @ FOUND.interior[i] < b).all()
        np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1)
        # Every vertex of the region is on at least two of its facets, and inside all of them.
        slack = b - FOUND.vertices(i) @ A.T
        assert (slack > -1e-9).all()
        assert ((np.abs(slack) < 1e-9).sum(axis=1) >= 2).all()
        for facet, j in zip(FOUND.facets(i), FOUND.neighbours(i), strict=True):
            if "unit" in facet:
                assert i in FOUND.neighbours(int(j))
                assert (FOUND.pattern[i] != FOUND.pattern[j]).sum() == 1
            else:
                assert j == -1
    pairs = FOUND.adjacency()
    assert (pairs[:, 0] < pairs[:, 1]).all()


def test_euler_count_of_adjacency():
    # Regions, inner edges and inner vertices of lines in general position in a disc-like domain: n + C(n,2) + 1, ...
    rng = np.random.default_rng(0)
    net = Network([(rng.normal(size=(6, 2)), rng.normal(size=6)), (np.ones((1, 6)), [0.0])])
    found = regions(net)
    assert len(found.adjacency()) == 36


def test_equal_maps_that_touch_are_merged():
    # relu(x) - relu(x): one affine function everywhere, cut by two lines in two patterns.
    net = Network([([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, 0.0, 0.0]), ([[1.0, -1.0, 0.0]], [2.0])])
    found = regions(net, (-1, 1))
    assert len(found) == 4
    assert found.merge_equal().count == 1
    assert found.distinct_maps() == 1
    # |x| has the same slope on no two sides.
    net = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    assert regions(net).merge_equal().count == 2
    # relu(x - 1) + relu(-x - 1): equal maps (0) only in the middle; equal maps far apart stay apart.
    net = Network([([[1.0], [1.0], [1.0]], [0.0, -1.0, -2.0]), ([[1.0, -2.0, 1.0]], [0.0])])
    found = regions(net)
    assert (len(found), found.merge_equal().count, found.distinct_maps()) == (4, 4, 3)


def test_domains():
    triangle = regions(NET, polytope=([[1, 1], [-1, 0], [0, -1], [0, 0]], [1, 0, 0, 5]))
    assert triangle.volume.sum() == pytest.approx(0.5, rel=1e-12)
    assert triangle.find([[0.2, 0.2], [0.9, 0.9]]).tolist()[1] == -1
    i = int(triangle.find([[0.01, 0.01]])[0])
    A, b = triangle.half_spaces(i)
    assert (A @ triangle.interior[i] < b).all()
    both = regions(NET, (0, 1), polytope=([[1, 1]], [1]))
    assert both.volume.sum() == pytest.approx(0.5, rel=1e-12)
    assert {tuple(p) for p in both.pattern.tolist()} == {tuple(p) for p in triangle.pattern.tolist()}
    wide = regions(NET, ([-3, -1], [3, 2]))
    assert wide.volume.sum() == pytest.approx(18, rel=1e-12)
    assert "the whole space" in repr(regions(NET))


def test_budgets_keep_what_was_found():
    some = regions(NET, (-3, 3), budget="10 regions")
    assert len(some) == 10
    assert not some.complete
    assert "10 regions" in repr(some)
    assert FOUND.complete
    none_left = regions(NET, (-3, 3), budget="1e-9 s")
    assert not none_left.complete
    assert len(none_left) > 0


def test_interrupt_keeps_what_was_found(monkeypatch):
    import reluscope.cells.regions as module

    real = module.subdivide

    def interrupted(net, cell, **options):
        for i, leaves in enumerate(real(net, cell, batch=8)):
            if i == 3:
                raise KeyboardInterrupt
            yield leaves

    monkeypatch.setattr(module, "subdivide", interrupted)
    some = regions(NET, (-3, 3))
    assert some.stopped == "interrupted"
    assert 0 < len(some) < len(FOUND)


@pytest.mark.parametrize("net", [random_net((2, 12, 10, 1)), integer_net((3, 6, 8, 5, 1), 1)], ids=repr)
def test_adjacency_and_merging_take_a_few_regions_at_a_time(net, monkeypatch):
    found = regions(net, (-3, 3))
    pairs, merged = found.adjacency(), found.merge_equal()
    one = np.repeat(np.arange(len(found)), np.diff(found._facets[1]))
    later = found._across > one
    every = np.unique(np.column_stack([one[later], found._across[later]]), axis=0)
    np.testing.assert_array_equal(pairs, every)
    monkeypatch.setattr("reluscope.cells.facets._NUMBERS_AT_ONCE", 200)
    again = regions(net, (-3, 3))
    np.testing.assert_array_equal(again.adjacency(), pairs)
    assert "_across" not in again.__dict__  # no number for every facet is kept
    few = again.merge_equal()
    assert few.count == merged.count
    np.testing.assert_array_equal(few.group, merged.group)


def test_streaming_gives_all_regions():
    patterns = [tuple(p) for batch in stream_regions(NET, (-3, 3)) for p in batch.pattern.tolist()]
    assert set(patterns) == {tuple(p) for p in FOUND.pattern.tolist()}


@pytest.mark.parametrize("net", [integer_net((2, 9, 12, 10, 1), 3), integer_net((3, 6, 8, 5, 1), 1)], ids=repr)
def test_what_the_children_of_a_cell_share_is_summed_up_once(net, monkeypatch):
    calls = []
    kernel = _advance.through_relus
    monkeypatch.setattr(_advance, "through_relus", lambda *given: calls.append(len(given[3])) or kernel(*given))
    shared = regions(net, (-3, 3))
    assert sum(calls) > len(shared) > 100
    monkeypatch.setattr(subdivide, "_CACHED", 0)
    alone = regions(net, (-3, 3))
    np.testing.assert_array_equal(shared.pattern, alone.pattern)
    np.testing.assert_array_equal(shared.maps, alone.maps)  # whole numbers: both sums are exact


@pytest.mark.parametrize("net", [random_net((2, 12, 10, 1)), integer_net((3, 6, 8, 5, 1), 1)], ids=repr)
def test_neighbours_of_one_region_are_those_of_all(net, monkeypatch):
    found = regions(net, (-3, 3))
    matched = [found.neighbours(i) for i in range(len(found))]
    assert sum((each >= 0).sum() for each in matched) > len(found) > 50
    one, other = found.adjacency().T
    assert all(j in matched[i] and i in matched[j] for i, j in zip(one, other, strict=True))
    monkeypatch.setattr("reluscope.cells.regions._MANY", 0)
    monkeypatch.delitem(found.__dict__, "_across")
    for i, each in enumerate(matched):
        np.testing.assert_array_equal(found.neighbours(i), each)
    assert "_across" not in found.__dict__


_STREAMED = """
import resource, sys
import numpy as np
import reluscope as rs

rng = np.random.default_rng(0)
widths = [10, 14, 14, 1]
net = rs.Network([(rng.normal(size=(b, a)), 0.3 * rng.normal(size=b)) for a, b in zip(widths, widths[1:])])
count, peaks = 0, []
for part in rs.stream_regions(net, (-1, 1)):
    count += len(part)
    if count >= 120_000 * (1 if not peaks else 4):  # the first batches have 40,000
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        if len(peaks) == 2:
            break
print(*peaks)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_the_memory_of_a_stream_does_not_grow_with_its_length():
    told = subprocess.run([sys.executable, "-c", _STREAMED], capture_output=True, text=True, check=True, timeout=300)
    first, later = map(int, told.stdout.split())  # 360,000 regions later: kept, they take 780 MB
    assert later - first < 390_000


def test_progress_is_reported():
    seen = []
    regions(NET, (-3, 3), progress=lambda done, text: seen.append((done, text)))
    assert seen[-1][0] == len(FOUND)


def test_tables():
    frame = FOUND.to_pandas()
    assert len(frame) == len(FOUND)
    assert {"x0", "x1", "C0_0", "C1_1", "d1", "volume", "pattern"} <= set(frame.columns)
    one = FOUND[3]
    np.testing.assert_array_equal(one.C, FOUND.C[3])
    assert sum(1 for _ in FOUND) == len(FOUND)


def test_along_is_the_function():
    net = random_net((6, 30, 30, 3), 0)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40, 6))
    for extend in (False, True):
        paths = along(net, a, b, extend=extend)
        assert len(paths) == 40
        for line in (0, 17, 39):
            t = np.linspace(-3, 3, 301) if extend else np.linspace(0, 1, 301)
            x = a[line] + t[:, None] * (b[line] - a[line])
            np.testing.assert_allclose(paths.at(t, line), net(x), atol=1e-12)
            pieces = slice(*paths.offsets[line : line + 2])
            np.testing.assert_array_equal(paths.start[pieces][1:], paths.stop[pieces][:-1])
            middle = 0.5 * (np.maximum(paths.start[pieces], -1e3) + np.minimum(paths.stop[pieces], 1e3))
            np.testing.assert_array_equal(
                net.pattern(a[line] + middle[:, None] * (b[line] - a[line])), paths.pattern[pieces]
            )
    assert along(net, a[0], b).offsets.shape == (41,)
    assert along(net, a[0], b[0]).values().shape[1] == 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: regions(NET, (1, 1)), "lower < upper"),
        (lambda: regions(NET, (2, 1)), "lower < upper"),
        (lambda: regions(NET, (-np.inf, 1)), "finite"),
        (lambda: regions(NET, ([0, 0, 0], 1)), "3 entries"),
        (lambda: regions(NET, 5), "pair"),
        (lambda: regions(NET, polytope=([[1, 1]], [1, 2])), "needs A of shape"),
        (lambda: regions(NET, polytope=([[1, 0], [-1, 0]], [-1, -1])), "no interior"),
        (lambda: regions(NET, polytope=([[0, 0]], [-1])), "empty"),
        (lambda: regions(NET, (0, 1), geometry="interval"), "is for 1 inputs"),
        (lambda: regions(NET, geometry="polygon"), "no unbounded cells"),
        (lambda: regions(NET, (0, 1), geometry="cube"), "geometry must be one of"),
        (lambda: regions([1, 2]), "net must be a Network"),
        (lambda: regions(NET, (0, 1), budget="soon"), "budget must be"),
        (lambda: regions(NET, (0, 1), budget=-1), "budget must be"),
        (lambda: regions(NET, (0, 1), budget="0 regions"), "budget must be"),
        (lambda: regions(NET, (0, 1), progress=3), "progress must be"),
        (lambda: FOUND[len(FOUND)], "i must be"),
        (lambda: FOUND.find([1.0, 2.0, 3.0]), "point of 2 inputs"),
        (lambda: FOUND.find([[1.0, np.nan]]), "finite"),
        (lambda: along(NET, [0, 0, 0], [1, 1]), "2 coordinates"),
        (lambda: along(NET, [[0, 0]] * 3, [[1, 1]] * 2), "equally many"),
        (lambda: along(NET, [0, 0], [1, 1]).at(2.0), "t must lie in"),
        (lambda: along(NET, [0, 0], [1, 1]).breaks(1), "line must be"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_budgets_in_words():
    assert parse_budget("60s").seconds == 60
    assert parse_budget("1.5 min").seconds == 90
    assert parse_budget("2 h, 1000 regions").regions == 1000
    assert parse_budget(3).seconds == 3
    assert parse_budget(None).spent(10**9) is None


@pytest.mark.parametrize(
    ("widths", "where"),
    [
        ((1, 6, 6, 1), {"box": (-1, 1)}),
        ((2, 6, 6, 1), {}),
        ((2, 6, 6, 2), {"polytope": ([[1, 1]], [1])}),
        ((3, 5, 5, 1), {"box": (-1, 1)}),
        ((7, 3, 2, 1), {"box": (-1, 1)}),
    ],
)
def test_regions_survive_a_file(tmp_path, widths, where):
    found = regions(random_net(widths, 1), **where)
    found.save(tmp_path / "r.npz")
    again = Regions.load(tmp_path / "r.npz")
    np.testing.assert_array_equal(again.pattern, found.pattern)
    np.testing.assert_array_equal(again.maps, found.maps)
    np.testing.assert_array_equal(again.find(found.interior), np.arange(len(found)))
    np.testing.assert_array_equal(again.neighbours(0), found.neighbours(0))
    assert repr(again) == repr(found)


def test_damaged_files_of_regions_are_refused(tmp_path):
    from reluscope.formats.arrays import read_npz, write_npz

    FOUND.save(tmp_path / "good.npz")
    good = read_npz(tmp_path / "good.npz")
    changes = {
        "cells.offsets": good["cells.offsets"][::-1],
        "cells.points": good["cells.points"][:5],
        "pattern": good["pattern"][:3],
        "maps": good["maps"][:, :, :1],
        "geometry": np.frombuffer(b"interval", np.uint8),
    }
    for name, value in changes.items():
        write_npz(good | {name: value}, tmp_path / "bad.npz")
        with pytest.raises(InputError):
            Regions.load(tmp_path / "bad.npz")
    for name in ("cells.labels", "network", "maps"):
        write_npz({k: v for k, v in good.items() if k != name}, tmp_path / "bad.npz")
        with pytest.raises(InputError):
            Regions.load(tmp_path / "bad.npz")
    write_npz(good | {"pattern": 1 - good["pattern"]}, tmp_path / "bad.npz")
    with pytest.raises(InputError, match="do not fit"):
        Regions.load(tmp_path / "bad.npz")
    with pytest.raises(InputError, match=r"\.npz"):
        FOUND.save(tmp_path / "regions.csv")


@pytest.mark.parametrize("widths", [(2, 7, 7, 1), (3, 5, 4, 1)])
def test_all_geometries_give_the_same_regions(widths):
    net = random_net(widths, 4, bias=0.5)
    for where in ({"box": (-2, 2)}, {}, {"box": (-2, 2), "polytope": ([[1.0] * widths[0]], [0.5])}):
        kinds = ["vertex", "polytope"] + (["polygon"] if widths[0] == 2 and where else [])
        found = [{tuple(p) for p in regions(net, geometry=k, **where).pattern.tolist()} for k in kinds]
        assert all(f == found[0] for f in found)
        assert len(found[0]) > 10


def test_a_box_beyond_rounding_is_not_called_complete():
    net = random_net((2, 6, 5, 1), 0)
    whole = len(regions(net, progress=None))
    assert [len(regions(net, (-s, s), progress=None)) for s in (1e4, 1e8)] == [whole, whole]
    for size in (1e13, 1e16, 1e200):
        found = regions(net, (-size, size), progress=None)
        assert not found.complete and "rounding" in found.stopped
        with pytest.raises(InputError, match="rounding is as large"):
            equivalent(net, net, (-size, size))


@pytest.mark.parametrize("widths", [(2, 30, 8, 1), (3, 14, 6, 1), (4, 9, 4, 1)])
@pytest.mark.parametrize("make", [random_net, integer_net])
@pytest.mark.parametrize("kind", ["relu", "relu6"])
def test_units_of_the_first_layer_in_groups(widths, make, kind, monkeypatch):
    net = make(widths, 5, kind)
    whole = regions(net, box=(-1, 1))
    monkeypatch.setattr(subdivide, "MOST_CHILDREN", 20)
    grouped = regions(net, box=(-1, 1))
    assert {p.tobytes() for p in grouped.pattern} == {p.tobytes() for p in whole.pattern}
    assert len(grouped) == len(whole)
    assert grouped.volume.sum() == pytest.approx(whole.volume.sum(), rel=1e-12)
    labels = [sorted(zip(*np.unique(found.cells.facet_labels()[0], return_counts=True))) for found in (grouped, whole)]
    assert labels[0] == labels[1]


def test_a_wide_first_layer_in_space_can_be_stopped():
    # 400 planes cut a cube into some ten million cells: one split of all of them took minutes and gigabytes.
    net = random_net((3, 400, 400, 2), 0)
    found = regions(net, box=(-1, 1), budget="50 regions")
    assert not found.complete
    assert len(found) >= 50
    split = subdivide._group(3, 400, 1, 1, 400)
    assert split < 400
    assert sum(math.comb(split, i) for i in range(4)) <= subdivide.MOST_CHILDREN


def test_two_pairs_that_make_two_boxes_are_refused():
    """[[-1, 1], [0, 2]] was taken for lower and upper sides, and most people mean one pair per input."""
    for box in ([[-1, 1], [0, 2]], np.array([[-1.0, 1.0], [0.0, 2.0]]), [(-1, 1), (0, 2)]):
        with pytest.raises(InputError, match=r"two ways.*box=\(\[-1, 1\], \[0, 2\]\).*box=\(\[-1, 0\], \[1, 2\]\)"):
            regions(NET, box)
    sides = regions(NET, ([-1, 1], [0, 2]), progress=None).domain.box
    assert sides[0].tolist() == [-1, 1] and sides[1].tolist() == [0, 2]
    assert len(regions(NET, [[-1, -1], [1, 1]], progress=None)) == len(regions(NET, (-1, 1), progress=None))
    assert regions(NET, [[0, 1], [1, 2]], progress=None).domain.box[1].tolist() == [1, 2]  # both readings agree


@pytest.mark.parametrize("at", [0, 1])
def test_numbers_whose_squares_are_infinite_are_refused(at):
    sizes = [1.0, 1.0]
    sizes[at] = 1e160
    net = rs.Network([([[sizes[0]], [-2.0 * sizes[0]]], [0.5, 0.0]), ([[sizes[1], 0.0]], [0.0])])
    for call in (
        lambda: rs.regions(net, ([-1.0], [1.0])),
        lambda: rs.along(net, [0.0], [1.0]),
        lambda: rs.linear_models(net, rs.Gaussian([0.0])),
        lambda: rs.probable(net, rs.Gaussian([0.0]), mass=0.9),
        lambda: rs.distance(net, net, ([-1.0], [1.0]), 2),
    ):
        with pytest.raises(InputError, match=rf"values of layer {at} may reach \de\+160|rounding is as large"):
            call()
