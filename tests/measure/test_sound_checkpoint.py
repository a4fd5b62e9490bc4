"""Sound searches in a file: gone on with, never wider, refused when about something else."""

from __future__ import annotations

import itertools
import zipfile

import numpy as np
import pytest

import reluscope as rs
from reluscope.measure import checkpoint
from reluscope.measure.sound import boxes


def network(seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise((3, 12, 12, 1))
    return rs.Network([(rng.normal(size=(m, n)) / np.sqrt(n), 0.3 * rng.normal(size=m)) for n, m in pairs])


NET = network()
LAW = rs.Gaussian(np.zeros(3), np.eye(3))
MIXTURE = rs.Mixture([0.5, 0.5], [LAW, rs.Gaussian(np.full(3, 0.5), np.eye(3))])


def ask(path, budget="12000 regions", net=NET, law=LAW, event="y[0] > 0.3", **more):
    return rs.probability(net, law, event, guarantee="sound", tolerance=1e-7, budget=budget, checkpoint=path, **more)


@pytest.mark.parametrize("law", [LAW, MIXTURE], ids=["normal", "mixture"])
def test_a_search_goes_on_where_it_was(law, tmp_path):
    path = tmp_path / "state.npz"
    exact = rs.probability(NET, law, "y[0] > 0.3", guarantee="exact").value
    alone = ask(None, law=law)
    found = [ask(path, law=law) for _ in range(3)]
    assert found[0].width == alone.width  # keeping changes nothing
    for before, now in itertools.pairwise(found):
        assert before.lower <= now.lower <= exact <= now.upper <= before.upper
        assert now.width < 0.95 * before.width
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


def test_a_little_work_never_widens_what_was_kept(tmp_path):
    path = tmp_path / "state.npz"
    before = ask(path)
    now = ask(path, budget="10 regions")
    assert before.lower <= now.lower <= now.upper <= before.upper


def test_ctrl_c_keeps_the_state(tmp_path, monkeypatch):
    path, real, calls = tmp_path / "state.npz", boxes.halves, itertools.count()

    def interrupted(*arguments):
        if next(calls) == 1500:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(boxes, "halves", interrupted)
    before = ask(path)
    monkeypatch.undo()
    assert "interrupted" in before.note and before.width < 1
    now = ask(path, budget="10 regions")
    assert before.lower <= now.lower <= now.upper <= before.upper


def test_the_state_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_EVERY", 0.0)
    saved = []
    save = checkpoint.Checkpoint.save
    monkeypatch.setattr(checkpoint.Checkpoint, "save", lambda self: (saved.append(len(self.states)), save(self))[1])
    ask(tmp_path / "state.npz")
    assert len(saved) > 4 and saved[0] == 0 and set(saved[1:]) == {1}


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"net": network(1)}, "network"),
        ({"law": rs.Gaussian(np.full(3, 0.1), np.eye(3))}, "law"),
        ({"event": "y[0] > 0.31"}, "event"),
    ],
    ids=["network", "law", "event"],
)
def test_another_question_is_refused(other, word, tmp_path):
    path = tmp_path / "state.npz"
    ask(path, budget="500 regions")
    with pytest.raises(rs.InputError, match=f"is about another {word} than this call"):
        ask(path, **other)


def test_files_that_are_no_checkpoints_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    ask(path, budget="3000 regions")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in members if n.endswith("possible.npy"))
    data = bytearray(members[name])
    data[-1] ^= 1
    with zipfile.ZipFile(path, "w") as archive:
        for other, content in members.items():
            archive.writestr(other, bytes(data) if other == name else content)
    with pytest.raises(rs.InputError, match="is damaged"):
        ask(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(rs.InputError, match="is not a checkpoint"):
        ask(path)
    path.write_bytes(b"nothing")
    with pytest.raises(rs.InputError, match="npz"):
        ask(path)
    with pytest.raises(rs.InputError, match="cannot be written"):
        ask(tmp_path / "nowhere" / "state.npz")
    with pytest.raises(rs.InputError, match="guarantee='sound'"):
        rs.probability(NET, LAW, "y[0] > 0", checkpoint=path)
