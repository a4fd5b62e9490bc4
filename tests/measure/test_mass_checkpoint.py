"""Masses in a file: gone on with, the same numbers as in one go, refused when about something else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import reluscope as rs
from reluscope.answer import Status
from reluscope.measure import checkpoint
from reluscope.measure.regions import masses


def network(*widths: int, seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return rs.Network([(rng.normal(size=(m, n)) / np.sqrt(n), 0.3 * rng.normal(size=m)) for n, m in pairs])


def normal(d: int, mean: float = 0.0) -> rs.Gaussian:
    return rs.Gaussian(np.full(d, mean), np.eye(d))


MIXTURE = rs.Mixture([0.5, 0.5], [normal(4), normal(4, 0.5)])
CELLS = rs.regions(network(4, 5, 4, 1), law=MIXTURE)


def same(a: rs.Answers, b: rs.Answers) -> bool:
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("value", "lower", "upper")) and a.seed == b.seed


@pytest.mark.parametrize("relative", [None, 0.05])
def test_masses_that_are_stopped_again_and_again_are_those_of_one_go(relative, tmp_path):
    whole = CELLS.masses(MIXTURE, rng=3, relative=relative)
    path = tmp_path / "masses.npz"
    for turn in itertools.count():
        # Counts of cells, Ctrl-C, one worker and two, the seed said or taken from the file.
        jobs, rng = 1 + turn % 2, 3 if turn % 3 == 0 else None
        found = CELLS.masses(MIXTURE, rng=rng, relative=relative, jobs=jobs, budget="20 regions", checkpoint=path)
        if found.complete:
            break
        assert (found.upper >= whole.value - 1e-12).all() or relative is None
    assert turn > 5 and same(found, whole)
    assert same(CELLS.masses(MIXTURE, rng=3, relative=relative, checkpoint=path), whole)  # nothing is left to do
    assert [p.name for p in tmp_path.iterdir()] == ["masses.npz"]


def test_ctrl_c_keeps_exact_masses_too(tmp_path, monkeypatch):
    law, calls = normal(3), itertools.count()
    cells = rs.regions(network(3, 12, 10, 1), law=law)
    whole = cells.masses(law)
    monkeypatch.setattr(masses, "_AT_ONCE", 32)
    monkeypatch.setattr(checkpoint, "_EVERY", 0.0)
    save = checkpoint.Checkpoint.save
    done: list[float] = []

    def interrupted(self):
        save(self)
        done.extend(float(state["done"][0]) for state in self.states.values())
        if next(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Checkpoint, "save", interrupted)
    assert cells.masses(law, checkpoint=tmp_path / "m.npz").status is Status.INTERRUPTED
    assert same(cells.masses(law, checkpoint=tmp_path / "m.npz"), whole)
    assert done == sorted(done) and 0 < done[0] < len(cells)


EXACT = {
    "three dimensions": (network(3, 12, 10, 1), normal(3)),
    "volumes": (network(3, 12, 10, 1), rs.Uniform(-np.ones(3), np.ones(3))),
    "a box": (network(3, 12, 10, 1), rs.Truncated(normal(3), -np.ones(3), 2 * np.ones(3))),
    "a mixture": (
        network(3, 12, 10, 1),
        rs.GaussianMixture([0.25, 0.75], [rs.Gaussian(np.ones(3), 0.5), normal(3)]),
    ),
}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", EXACT)
def test_ctrl_c_keeps_exact_masses_without_a_file(name, jobs, monkeypatch):
    net, law = EXACT[name]
    cells = rs.regions(net, law=law)
    whole = cells.masses(law)
    assert whole.guarantee == "exact" and len(cells) > 200
    monkeypatch.setattr(masses, "_AT_ONCE", 32)
    monkeypatch.setattr(masses, "_AT_ONCE_FLAT", 32)

    def interrupt(done, text):
        if done >= 64:
            raise KeyboardInterrupt

    found = cells.masses(law, progress=interrupt, jobs=jobs)
    assert found.status is Status.INTERRUPTED and "interrupted: 64 of" in found.note
    assert found.guarantee == "sound"
    assert (found.lower <= whole.value).all() and (whole.value <= found.upper).all()
    assert (found.value[64:] == 0).all()
    if name in ("three dimensions", "volumes"):
        assert np.array_equal(found.value[:64], whole.value[:64]) and found.upper.max() < 1.0


def test_a_file_about_something_else_is_refused(tmp_path):
    path = tmp_path / "m.npz"
    CELLS.masses(MIXTURE, rng=3, budget="20 regions", checkpoint=path)
    others = {
        "another rng": (CELLS, MIXTURE, {"rng": 4}),
        "another tolerance, relative or level": (CELLS, MIXTURE, {"rng": 3, "tolerance": 0.2}),
        "another law": (CELLS, normal(4), {"rng": 3}),
        "another network": (rs.regions(network(4, 5, 4, 1, seed=1), law=MIXTURE), MIXTURE, {"rng": 3}),
        "another set of regions": (rs.regions(CELLS.network, (-9, 9)), MIXTURE, {"rng": 3}),
        "rng must be None or a whole number": (CELLS, MIXTURE, {"rng": np.random.default_rng(0)}),
    }
    for words, (cells, law, more) in others.items():
        with pytest.raises(rs.InputError, match=words):
            cells.masses(law, checkpoint=path, **more)
    with pytest.raises(rs.InputError, match="not a checkpoint of masses"):
        CELLS.network.save(tmp_path / "net.npz")
        CELLS.masses(MIXTURE, rng=3, checkpoint=tmp_path / "net.npz")
    with pytest.raises(rs.InputError, match="cannot be written"):
        CELLS.masses(MIXTURE, rng=3, checkpoint=tmp_path / "nowhere" / "m.npz")


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "m.npz"
    CELLS.masses(MIXTURE, rng=3, budget="20 regions", checkpoint=path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(rs.InputError, match="damaged"):
        CELLS.masses(MIXTURE, rng=3, checkpoint=path)
