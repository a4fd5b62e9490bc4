"""Tables in files: what is written can be read, and bad files are named."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

import reluscope as rs
from reluscope._tables import read_csv, write_csv
from reluscope.errors import InputError, InputLimitError
from reluscope.limits import Limits


def file_with(folder, text, name="rows.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_written_tables_are_read_back(tmp_path):
    columns = {"a": np.array([1.5, -2.0, 1e-300]), "b": np.array([0.1, 0.2, 0.3])}
    write_csv(columns, tmp_path / "t.csv")
    rows = read_csv(tmp_path / "t.csv")
    assert rows.names == ("a", "b")
    assert np.array_equal(rows.X, np.column_stack(list(columns.values())))
    assert rows.y is None


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_header_is_told_from_numbers(tmp_path, mark):
    with_header = read_csv(file_with(tmp_path, f"u{mark}v\n1{mark}2\n3{mark}4\n"))
    without = read_csv(file_with(tmp_path, f"1{mark}2\n3{mark}4\n"))
    assert with_header.names == ("u", "v")
    assert without.names == ("x0", "x1")
    assert np.array_equal(with_header.X, without.X)


def test_the_target_may_be_text_or_numbers(tmp_path):
    path = file_with(tmp_path, "a,kind,b\n1,yes,2\n3,no,4\n")
    rows = read_csv(path, target="kind")
    assert rows.names == ("a", "b")
    assert rows.y.tolist() == ["yes", "no"]
    assert read_csv(file_with(tmp_path, "1,0\n2,1\n"), target="1").y.tolist() == [0.0, 1.0]


def test_gzip_byte_order_marks_and_one_row(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress("\ufeffa,b\n1,2\n".encode()))
    rows = read_csv(path)
    assert rows.names == ("a", "b")
    assert rows.X.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n", "no rows of data"),
        ("a,b\n1,2\n3\n", "rows of equal length"),
        ("a,b\n1,2,3\n", "3 fields in line 2, but 2 columns"),
        ("a,a\n1,2\n", "two columns of the same name"),
        ("a,b\n1,two\n", "must hold numbers"),
        ("a,b\n1,\n", "no finite number in row 1, column 'b'"),
        ("a,b\n1,2\nnan,4\n", "no finite number in row 2, column 'a'"),
    ],
)
def test_bad_files_are_named(tmp_path, text, words):
    path = file_with(tmp_path, text)
    with pytest.raises(InputError, match=words):
        read_csv(path)


def test_a_missing_column_lists_what_there_is(tmp_path):
    with pytest.raises(InputError, match="no column 'z'; its columns are a, b"):
        read_csv(file_with(tmp_path, "a,b\n1,2\n"), target="z")


def test_binary_and_large_files_are_refused(tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(b"PK\x03\x04\xff\xfe\x80")
    with pytest.raises(InputError, match="not a text file"):
        read_csv(path)
    with pytest.raises(InputLimitError, match="bytes"):
        read_csv(file_with(tmp_path, "1,2\n" * 100), limits=Limits(file_bytes=50))


def test_formulas_are_defused(tmp_path):
    write_csv({"a": np.array(["=1+1", "plain"])}, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "a\n'=1+1\nplain\n"


def test_features_choose_and_order_columns(tmp_path):
    path = file_with(tmp_path, "id,a,b,y\n7,1,2,0\n8,3,4,1\n")
    chosen = read_csv(path, target="y", features=["b", "a"])
    assert chosen.names == ("b", "a")
    assert chosen.X.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert read_csv(path, target="y", drop=["id"]).names == ("a", "b")


def _frames():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"], index=rng.permutation(40) + 100)
    y = pd.Series((X.a > 0).to_numpy() * 1, index=X.index)
    net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, -0.5]], [-0.3])])
    return net.with_schema(columns=["a", "b"], outputs=["PD"], classes=["0", "1"]), X, y


@pytest.mark.parametrize(
    "what", ["unwrap", "weight", "evaluate", "outcome", "benchmarks", "summary", "score", "report"]
)
def test_labels_and_weights_of_other_rows_are_refused_by_their_index(what):
    net, X, y = _frames()
    u = rs.unwrap(net, X, y)
    other = y.sort_index()  # the same rows in another order: taken by position, every label would be wrong
    calls = {
        "unwrap": lambda y: rs.unwrap(net, X, y),
        "weight": lambda y: rs.unwrap(net, X, u.response.code, sample_weight=y + 1.0),
        "evaluate": lambda y: u.evaluate(X, y),
        "outcome": lambda y: u.outcome(X, y),
        "benchmarks": lambda y: u.benchmarks(X, y),
        "summary": lambda y: u.merge(1).summary(X, y),
        "score": lambda y: u.merge(1).score(X, y),
        "report": lambda y: rs.report(net, X=X, y=y, budget="1s"),
    }
    first = next(i for i in range(40) if X.index[i] != other.index[i])
    says = rf"has another index than X: row {first} is {X.index[first]} in X and {other.index[first]} in"
    with pytest.raises(InputError, match=says):
        calls[what](other)
    with pytest.raises(InputError, match=says if what == "report" else "has another index than X"):
        calls[what](other if what == "report" else pd.Series(y.to_numpy()))
    if what != "report":
        calls[what](other.loc[X.index])
        calls[what](y.to_numpy())


def test_labels_of_other_rows_are_refused_elsewhere_too():
    net, X, y = _frames()
    other, weight = y.sort_index(), pd.Series(1.0, index=y.sort_index().index)
    for name, call in {
        "y": lambda: rs.ReluClassifier((2,), epochs=1).fit(X, other),
        "sample_weight": lambda: rs.ReluClassifier((2,), epochs=1).fit(X, y, sample_weight=weight),
        "labels": lambda: rs.certify(net, X, 0.1, labels=other),
    }.items():
        with pytest.raises(InputError, match=f"{name} has another index than X"):
            call()
    job = net.with_schema(columns=["a", rs.Column("b", "category", levels=[0, 1], codes=[[0.0], [1.0]])])
    table = X.assign(b=(X.b > 0) * 1)
    with pytest.raises(InputError, match="y has another index than law"):
        rs.fairness(job, table, "b", y=other)
    with pytest.raises(InputError, match="y has another index than X"):
        rs.l1_path(X, other, penalties=[0.1])
