"""Damaged and invented files for every reader: each is read, or refused with one of our own errors.

Hypothesis changes good files (bytes, lines, words of the format) and writes texts from the words of each language. The
normal run takes a few seconds; `make fuzz` sets RELUSCOPE_FUZZ_SECONDS and gives each reader that long.
"""

from __future__ import annotations

import os
import time
import warnings
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from seeds import FAILURES, seeds

from readers import READERS, outcome
from reluscope.limits import Limits

SECONDS = float(os.environ.get("RELUSCOPE_FUZZ_SECONDS", "0"))
LIMITS = Limits(seconds=5.0, file_bytes=1 << 24, text_bytes=1 << 22, elements=1 << 20, weights=1 << 20)
LATE = 30.0
"""Seconds after which reading such a small file counts as a hang."""

WORDS = {
    "vnnlib": b'( ) assert and or not <= >= < > = + - * / X_0 Y_0 X_1 1e-3 -2 0 . ; declare-const Real | " true 1e999'
    b" X[0,0] Z[0,1] [ ] , == != equal-to isomorphic-to declare-input real vnnlib-version <2.0>",
    "law": b'{ } [ ] , : "law" "mean" "cov" "gaussian" "mixture" "uniform" "weights" null true 1e999 -1 0 "classes"',
    "csv": b', ; \n \t " a b 1 -2 1e999 nan inf \r \xc2\xb2 _ #',
    "event": b"( ) [ ] { } , and or not in x y J unit norm argmax at mean abs 0 1 2.5 1e-3 + - * / < <= == != ' age on",
    "recording": b'{ } [ ] , : "format" "dtype" "weights" null 1 -1 "float16" "O" 1e999',
    "npy": b"{'descr': '<f8' 'fortran_order': False 'shape': ( ) , 1 0 -1 1099511627776 | O f16 }",
}
WORDS |= {"labelled": WORDS["csv"], "points": WORDS["csv"], "points npy": WORDS["npy"], "frames npy": WORDS["npy"]}
SLOW = {"regions", "merged"}


def damaged(reader: str) -> st.SearchStrategy[bytes]:
    """Good files of a reader with a few changes, or words of its language in any order."""
    _, good = seeds()[reader]
    words = st.sampled_from([*WORDS.get(reader, WORDS["npy"]).split(b" "), b"\n", b" ", b"\x00", b"\xff\xff\xff\x7f"])
    piece = st.one_of(words, st.binary(min_size=1, max_size=8))
    change = st.tuples(st.floats(0, 1), st.integers(0, 3), piece, st.floats(0, 1))

    def apply(data: bytes, changes: list[tuple[float, int, bytes, float]]) -> bytes:
        for place, kind, new, end in changes:
            at = int(place * len(data))
            if kind == 0:
                data = data[:at] + new + data[at + len(new) :]
            elif kind == 1:
                data = data[:at] + new + data[at:]
            elif kind == 2:
                data = data[:at] + data[at + int(end * 32) :]
            else:
                data = data[:at] if end < 0.2 else data[:at] + data[at : at + int(end * 64)] * 2 + data[at:]
        return data

    changed = st.builds(apply, st.sampled_from(good), st.lists(change, min_size=1, max_size=6))
    if reader not in WORDS:
        return changed
    return st.one_of(changed, st.lists(words, max_size=40).map(b" ".join), st.lists(words, max_size=20).map(b"".join))


def read(reader: str, data: bytes, folder: Path) -> None:
    """Read the bytes as a file; anything but a result or one of our own errors fails, and so does a hang."""
    folder.mkdir(exist_ok=True)
    name = "recording" if reader == "recording" else "a"
    path = folder / f"{name}{seeds()[reader][0]}"
    path.write_bytes(data)
    if reader == "event":
        try:
            data.decode()
        except UnicodeDecodeError:
            return  # an event is text already
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome(reader.split()[0], path, LIMITS)
    assert time.perf_counter() - start < LATE


def test_every_reader_is_fuzzed() -> None:
    assert {name.split()[0] for name in seeds()} == set(READERS)


@pytest.mark.parametrize("reader", sorted(seeds()))
def test_good_files_are_read(reader: str, tmp_path: Path) -> None:
    suffix, good = seeds()[reader]
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    for i, data in enumerate(good):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "weights.bin").write_bytes(bytes(8))
        path = folder / f"{'recording' if reader == 'recording' else 'a'}{suffix}"
        path.write_bytes(data)
        said = outcome(reader.split()[0], path, LIMITS)
        assert said == "read" or reader in ("vpt", "event"), said  # an event may speak of what is not there


@pytest.mark.parametrize("number", range(len(FAILURES)), ids=lambda i: FAILURES[i][0])
def test_known_failures(number: int, tmp_path: Path) -> None:
    _, reader, data = FAILURES[number]
    read(reader, data, tmp_path)


@pytest.mark.parametrize("reader", sorted(seeds()))
def test_damaged_files(reader: str, tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    for round_ in count():

        @seed(round_)
        @settings(
            max_examples=100 if SECONDS else 10 if reader in SLOW else 40,
            deadline=None,
            database=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(damaged(reader))
        def attack(data: bytes) -> None:
            read(reader, data, tmp_path)

        attack()
        if time.monotonic() > end:
            break
