"""Tables in files: what is written can be read, and bad files are named."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

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
