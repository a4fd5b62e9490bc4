"""What users do with regions: odd arguments, single points, memory and time limits, files of another kind."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope._lazy import CLOCK
from reluscope.cells import regions as regions_module
from reluscope.cells.regions import Regions
from reluscope.errors import InputError

NET = random_net((2, 24, 24, 1), 0)
G2 = rs.Gaussian([0.0, 0.0], 1.0)


@pytest.fixture(scope="module")
def found():
    return rs.regions(NET, (-1, 1), progress=None)


def test_memory_is_limited_and_what_was_found_is_kept(monkeypatch):
    monkeypatch.setattr("reluscope.cells.subdivide.BATCH_NUMBERS", 1 << 9)  # small batches
    whole = rs.regions(NET, (-1, 1), progress=None)
    size = regions_module._bytes(whole)
    some = rs.regions(NET, (-1, 1), progress=None, limits=rs.Limits(region_bytes=size // 4))
    assert not some.complete
    assert "memory limit" in some.stopped and "stream_regions" in some.stopped
    assert size // 4 < regions_module._bytes(some) < size // 2
    assert (whole.find(some.interior) >= 0).all()
    assert rs.regions(NET, (-1, 1), progress=None, limits=rs.Limits(region_bytes=size)).complete
    with pytest.raises(InputError, match="limits"):
        rs.regions(NET, (-1, 1), limits=1000)


def test_a_budget_does_not_pay_for_compilation(monkeypatch):
    warmed = []
    real = regions_module._warm

    def slow(*arguments):
        warmed.append(arguments)
        real(*arguments)
        monkeypatch.setattr(CLOCK, "_total", CLOCK._total - 1000.0)  # stands for compilation that takes 1000 s

    monkeypatch.setattr(regions_module, "_warm", slow)
    assert rs.regions(random_net((2, 3, 1), 0), (-1, 1), budget="500s", progress=None).complete
    assert len(warmed) == 1
    rs.regions(random_net((2, 3, 1), 0), (-1, 1), budget="100 regions", progress=None)
    assert len(warmed) == 1


@pytest.mark.parametrize("inputs", [1, 2, 3, 6])
@pytest.mark.parametrize("box", [(-1, 1), None])
def test_warming_works_for_every_geometry(inputs, box):
    assert rs.regions(random_net((inputs, 3, 1), 0), box, budget="60s", progress=None).complete


def test_find_takes_one_point_or_many(found):
    point = found.interior[3]
    assert found.find(point) == 3
    assert isinstance(found.find(list(point)), int)
    np.testing.assert_array_equal(found.find(found.interior[:5]), np.arange(5))
    assert found.find([7.0, 0.0]) == -1
    with pytest.raises(InputError, match="point of 2 inputs"):
        found.find([1.0])


def test_domains_show_their_numbers(found):
    assert "in [-1, 1]^2" in repr(found)
    assert "in [-1, 1] x [-2, 3]" in repr(rs.regions(random_net((2, 1, 1), 0), ([-1, -2], [1, 3]), progress=None))
    net = random_net((7, 1, 1), 0)
    wide = rs.regions(net, (-np.arange(1.0, 8.0), np.ones(7)), progress=None)
    assert "a box of 7 inputs within [-7, 1]" in repr(wide)
    one = rs.regions(NET, polytope=NET.polytope(found.pattern[0]), progress=None)
    assert repr(one).startswith("Regions(1 region of")


def test_a_polytope_of_a_pattern_is_its_region(found):
    i = int(np.argmax(found.volume))
    cell = NET.polytope(found.pattern[i])
    inside = rs.regions(NET, (-1, 1), polytope=cell, progress=None)
    assert len(inside) == 1
    np.testing.assert_array_equal(inside.pattern[0], found.pattern[i])
    assert inside.volume[0] == pytest.approx(found.volume[i], rel=1e-9)
    assert rs.mass(cell, G2).value == rs.mass(cell.A, cell.b, G2).value
    assert rs.mass(cell, law=G2, b=None).value == rs.mass(cell, G2).value


def test_bounds_of_a_mass_may_be_one_number_or_infinite():
    A = np.eye(2)
    assert rs.mass(A, 0.0, G2).value == pytest.approx(0.25, rel=1e-14)
    assert rs.mass(A, [0.0, np.inf], G2).value == 0.5
    assert rs.mass(A, [0.0, -np.inf], G2).value == 0.0
    assert rs.mass(A, np.inf, G2).value == 1.0


def test_files_of_another_kind_are_named(found, tmp_path):
    NET.save(tmp_path / "net.npz")
    found.save(tmp_path / "regions.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    with pytest.raises(InputError, match="holds regions, not a network"):
        rs.load(tmp_path / "regions.npz")
    with pytest.raises(InputError, match=r"holds a network: reluscope\.load"):
        Regions.load(tmp_path / "net.npz")
    with pytest.raises(InputError, match=r"holds other arrays \(a\)"):
        Regions.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda f: rs.regions(NET, [(-1, 1), (-2, 2)]), r"box=\(\[-1, -2\], \[1, 2\]\)"),
        (lambda f: rs.regions(random_net((3, 2, 1), 0), [(-1, 1)] * 3), r"box=\(\[-1, -1, -1\]"),
        (lambda f: rs.regions(NET, G2), "law=law"),
        (lambda f: f[2:4], r"regions\.pattern\[2:4\]"),
        (lambda f: rs.mass([[1.0, 0.0]], [np.nan], G2), "nan"),
        (lambda f: rs.regions(NET, polytope=([[1.0, 0.0]], [-np.inf])), "empty"),
    ],
)
def test_hints(call, words, found):
    with pytest.raises(InputError, match=words):
        call(found)
