"""Regions in a folder: the same regions as in memory, gone on with after any end, and readable meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs
from reluscope.cells import folder, subdivide
from reluscope.cli import main


def network(*widths: int, seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return rs.Network([(rng.normal(size=(m, n)) / np.sqrt(n), 0.3 * rng.normal(size=m)) for n, m in pairs])


def same(a: rs.Regions, b: rs.Regions) -> bool:
    return (
        np.array_equal(a.pattern, b.pattern)
        and np.array_equal(a.maps, b.maps)
        and np.array_equal(a.interior, b.interior)
        and type(a.cells) is type(b.cells)
        and (a.stopped, a.doubt) == (b.stopped, b.doubt)
    )


def interrupted_after(batches: int):
    calls = itertools.count(1)

    def report(done: int, text: str) -> None:
        if next(calls) > batches:
            raise KeyboardInterrupt

    return report


WIDE = network(2, 90, 12, 1)
CASES = {
    "intervals": (network(1, 20, 20, 1), (-3, 3)),
    "polygons": (network(2, 40, 40, 1), (-3, 3)),
    "a wide layer": (WIDE, (-3, 3)),
    "the whole plane": (network(2, 10, 8, 1), None),
    "cells with vertices": (network(4, 9, 8, 2), (-2, 2)),
    "half-spaces": (network(7, 8, 6, 1), (-2, 2)),
}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_search_that_is_stopped_again_and_again_finds_the_same_regions(name, jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(subdivide, "BATCH_NUMBERS", 1 << 15)
    net, box = CASES[name]
    whole = rs.regions(net, box)
    path = tmp_path / "regions"
    for turn in itertools.count(1):
        found = rs.regions(net, box, out=path, progress=interrupted_after(5), jobs=jobs)
        read = rs.Regions.load(path)
        assert len(read) == len(found)  # whatever is there can be read
        if found.complete:
            break
        assert "interrupted" in found.stopped and not read.complete
        assert np.array_equal(found.pattern, whole.pattern[: len(found)])
    assert turn > 1 or len(whole) < 3000
    assert same(found, whole) and same(read, whole)
    assert same(rs.regions(net, box, out=path), whole)  # nothing is left to do
    assert {p.suffix for p in path.iterdir()} == {".bin", ".json", ".npz"}


def test_queries_of_mapped_regions_are_those_of_regions_in_memory(tmp_path):
    net, law = CASES["polygons"][0], rs.Gaussian([0.0, 0.0])
    whole, mapped = rs.regions(net, law=law), rs.regions(net, law=law, out=tmp_path / "r")
    X = np.random.default_rng(1).normal(size=(200, 2))
    assert np.array_equal(whole.find(X), mapped.find(X))
    assert np.array_equal(whole.masses(law).value, mapped.masses(law).value)
    assert np.array_equal(whole.adjacency(), mapped.adjacency())
    assert np.array_equal(whole.vertices(7), mapped.vertices(7)) and whole.facets(7) == mapped.facets(7)
    assert whole.distinct_maps() == mapped.distinct_maps()
    mapped.save(tmp_path / "copy.npz")
    assert same(rs.Regions.load(tmp_path / "copy.npz"), whole)


def test_a_checkpoint_gives_regions_in_memory(tmp_path):
    net, box = CASES["polygons"]
    some = rs.regions(net, box, checkpoint=tmp_path / "c", budget="700 regions")
    assert len(some) == 700 and "700 regions" in some.stopped
    assert same(some, rs.regions(net, box, budget="700 regions"))
    whole = rs.regions(net, box, checkpoint=tmp_path / "c")
    assert same(whole, rs.regions(net, box))
    for file in (tmp_path / "c").iterdir():
        file.unlink()
    assert whole.find([0.1, 0.2]) >= 0  # the files are not needed


def test_seconds_of_a_budget_begin_anew_and_a_count_is_of_all(tmp_path):
    net, box = network(2, 60, 60, 1), (-3, 3)
    first = rs.regions(net, box, out=tmp_path, budget="1000 regions")
    again = rs.regions(net, box, out=tmp_path, budget="1000 regions")
    assert len(first) == len(again) == 1000 and first.stopped == again.stopped
    found = [len(rs.regions(net, box, out=tmp_path, budget="0.02s")) for _ in range(3)]
    assert found == sorted(found)
    assert same(rs.regions(net, box, out=tmp_path, budget="600s"), rs.regions(net, box))


def test_doubts_are_kept(tmp_path):
    rng = np.random.default_rng(3)
    W = rng.normal(size=(30, 2))
    W[1] = W[0] * (1 + 1e-15)
    net = rs.Network([(W, np.full(30, 0.1)), (rng.normal(size=(6, 30)), np.zeros(6)), (np.ones((1, 6)), None)])
    whole = rs.regions(net, (-1, 1))
    while (found := rs.regions(net, (-1, 1), out=tmp_path, progress=interrupted_after(1))).stopped is not None:
        pass
    assert found.doubt == whole.doubt and len(found) == len(whole)


DRIVER = """
import sys
import test_region_folder as here
from reluscope.cells import folder
from reluscope.cli import main
import reluscope as rs
folder.EVERY = 0.0
print("ready", flush=True)
rs.regions(here.WIDE, (-6, 6), out=sys.argv[1], jobs=int(sys.argv[2]))
"""


def killed(path, after: float, jobs: int) -> None:
    where = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    start = [sys.executable, "-c", DRIVER, str(path), str(jobs)]
    with subprocess.Popen(start, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": where}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after)
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_at_any_moment_loses_nothing_that_counts(kills, tmp_path):
    rng = np.random.default_rng(kills)
    path, counts = tmp_path / "r", [0]
    for k in range(kills):
        killed(path, float(rng.uniform(0.0, 0.4)), 1 + k % 2)
        if (path / "regions.json").exists():
            counts.append(json.loads((path / "regions.json").read_text())["regions"])
            if counts[-1]:
                assert len(rs.Regions.load(path)) == counts[-1]
    assert counts == sorted(counts)
    assert same(rs.regions(WIDE, (-6, 6), out=path), rs.regions(WIDE, (-6, 6)))


@contextmanager
def files_of_at_most(size: int):
    """The system refuses to let any file grow beyond this, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_and_what_was_found_stays(tmp_path):
    net, box = CASES["a wide layer"]
    path = tmp_path / "r"
    with files_of_at_most(200_000), pytest.raises(rs.InputError, match=r"cannot be written: .*regions before are kept"):
        rs.regions(net, box, out=path)
    kept = rs.Regions.load(path)
    assert len(kept) > 0 and not kept.complete and "not ended" in kept.reason
    assert same(rs.regions(net, box, out=path), rs.regions(net, box))


def test_a_folder_of_something_else_is_refused(tmp_path):
    net, box = CASES["intervals"]
    rs.regions(net, box, out=tmp_path / "r")
    with pytest.raises(rs.InputError, match="another network"):
        rs.regions(network(1, 20, 20, 1, seed=1), box, out=tmp_path / "r")
    with pytest.raises(rs.InputError, match="another box, polytope or law"):
        rs.regions(net, (-3, 2), out=tmp_path / "r")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(rs.InputError, match="holds other files"):
        rs.regions(net, box, out=tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(rs.InputError, match="either out or checkpoint"):
        rs.regions(net, box, out=tmp_path / "a", checkpoint=tmp_path / "b")
    with pytest.raises(rs.InputError, match="there is no file"):
        rs.Regions.load(tmp_path / "mine")


def test_two_searches_do_not_write_to_one_folder(tmp_path):
    net, box = CASES["intervals"]
    domain = rs.regions(net, box).domain
    with folder.open_folder(tmp_path / "r", net, domain, "auto"), pytest.raises(rs.InputError, match="another search"):
        rs.regions(net, box, out=tmp_path / "r")


def change_header(path, **facts):
    header = path / "regions.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | facts))


@pytest.mark.parametrize(
    "damage",
    [
        {"regions": 10**6},
        {"regions": -1},
        {"regions": "many"},
        {"arrays": {}},
        {"arrays": {"../../etc/passwd": ["|u1", [], 3]}},
        {"geometry": "polygon"},
        {"trail": [1.5, 2]},
        {"format": 9},
    ],
    ids=str,
)
def test_a_damaged_folder_is_refused(damage, tmp_path):
    net, box = CASES["half-spaces"]
    rs.regions(net, box, out=tmp_path, progress=interrupted_after(1))
    change_header(tmp_path, **damage)
    with pytest.raises(rs.InputError):
        rs.Regions.load(tmp_path)


@pytest.mark.parametrize("trail", [[0, 0, 999, 0], [0, 0], [0, 10**6]], ids=str)
def test_a_trail_that_leads_elsewhere_is_refused(trail, tmp_path):
    net, box = CASES["half-spaces"]
    rs.regions(net, box, out=tmp_path, progress=interrupted_after(3))
    change_header(tmp_path, trail=trail)
    with pytest.raises(rs.InputError, match="cannot go on"):
        rs.regions(net, box, out=tmp_path)


def test_damaged_arrays_are_refused(tmp_path):
    net, box = CASES["polygons"]
    rs.regions(net, box, out=tmp_path)
    offsets = tmp_path / "cells.offsets-1.bin"
    good = offsets.read_bytes()
    numbers = np.frombuffer(good, np.int64).copy()
    numbers[5] = 10**9
    offsets.write_bytes(numbers.tobytes())
    with pytest.raises(rs.InputError, match="damaged"):
        rs.Regions.load(tmp_path)
    offsets.write_bytes(good[:-8])
    with pytest.raises(rs.InputError, match="cut short"):
        rs.Regions.load(tmp_path)


def test_the_command_goes_on_from_its_folder(tmp_path, capsys):
    net, law = network(4, 5, 4, 1), rs.Gaussian(np.zeros(4), np.eye(4))
    net.save(tmp_path / "net.npz")
    (tmp_path / "law.json").write_text(json.dumps(law.to_dict()))
    words = ["regions", str(tmp_path / "net.npz"), "--law", str(tmp_path / "law.json"), "--json"]
    words += ["--checkpoint", str(tmp_path / "r")]
    assert main([*words, "--budget", "30 regions"]) == 1
    first = json.loads(capsys.readouterr().out)
    assert main([*words, "--jobs", "2"]) == 0 and (tmp_path / "r" / "masses.npz").exists()
    whole = json.loads(capsys.readouterr().out)
    assert main(words) == 0  # nothing is left to do
    again = json.loads(capsys.readouterr().out)
    assert first["regions"] == 30 and whole["regions"] == again["regions"] == len(rs.regions(net, law=law))
    assert whole["mass"] == again["mass"] == pytest.approx(1.0, abs=0.02)
    network(4, 5, 4, 1, seed=1).save(tmp_path / "net.npz")
    assert main(words) == 2 and "another network" in capsys.readouterr().err
