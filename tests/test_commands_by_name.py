"""The commands that take rows read them by the names of the model's schema."""

from __future__ import annotations

import json

import numpy as np
import pytest

import reluscope as rs
from reluscope.cli import main


@pytest.fixture
def files(tmp_path):
    """A model with a category and a column in euros, and its table with columns in another order."""
    rng = np.random.default_rng(0)
    schema = rs.Schema(
        [rs.Column("SEX", "category", levels=["f", "m"]), rs.Column("amount", unit="EUR", scale=0.01)],
        [rs.Output("PD", link="sigmoid")],
        ["pays", "defaults"],
        cutoff=0.2,
    )
    table = {"amount": rng.exponential(100.0, 60), "SEX": rng.choice(["f", "m"], 60)}
    hidden, last = (rng.normal(size=(6, 3)), rng.normal(size=6)), rng.normal(size=(1, 6))
    middle = np.median(rs.Network([hidden, (last, None)], schema=schema)(table))
    net = rs.Network([hidden, (last, [schema.threshold() - middle])], schema=schema)
    decided = [schema.classes[k] for k in schema.decide(net(table))]
    assert len(set(decided)) == 2
    net.save(tmp_path / "net.npz")
    lines = ["amount,paid,note,SEX"]
    for a, d, s in zip(table["amount"], decided, table["SEX"], strict=True):
        lines.append(f"{float(a)!r},{d},hello,{s}")
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    return tmp_path, net, table, decided


def test_unwrap_by_name(files, capsys):
    folder, net, table, decided = files
    command = ["unwrap", str(folder / "net.npz"), str(folder / "rows.csv"), "--target", "paid", "--json"]
    assert main([*command, "--test", str(folder / "rows.csv")]) == 0
    told = json.loads(capsys.readouterr().out)
    u = rs.unwrap(net, table, decided)
    assert told["regions"] == len(u) and set(told["importance"]) == {"SEX", "amount"}
    assert told["test"]["rows"] == 60 and told["test"]["unseen_share"] == 0


def test_certify_by_name_and_class(files, capsys):
    folder, net, table, decided = files
    data = ["--data", str(folder / "rows.csv"), "--target", "paid"]
    command = ["certify", str(folder / "net.npz"), *data, "--sigma", "0.001"]
    assert main([*command, "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    codes = np.array([net.schema.class_index(d) for d in decided])
    found = rs.certify(net, net.schema.encode(table), 0.001, labels=codes)
    assert told["share"] == found.share(found.sigma).tolist() and told["share"][0] > 0.5
