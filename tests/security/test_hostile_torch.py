"""State dicts made to crash, hang or exhaust; needs torch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from reluscope.errors import InputError, InputLimitError
from reluscope.formats import load
from reluscope.limits import Limits

torch = pytest.importorskip("torch")


def refused(folder: Path, state: Any, words: str, **limits: Any) -> None:
    torch.save(state, folder / "a.pt")
    start = time.process_time()
    with pytest.raises(InputError, match=words):
        load(folder / "a.pt", limits=Limits(**limits))
    assert time.process_time() - start < 20


def test_tensors_without_data(tmp_path: Path) -> None:
    refused(tmp_path, {"0.weight": torch.empty((3, 2), device="meta")}, "meta device")


@pytest.mark.parametrize("shape", [(4, 4), (8192, 8192), (2**20, 2**20), (2**40, 2)])
def test_tensors_that_claim_more_than_they_store(tmp_path: Path, shape: tuple[int, ...]) -> None:
    refused(tmp_path, {"0.weight": torch.ones(1).expand(shape)}, "stores fewer|elements")


def test_tensors_without_entries_but_with_long_axes(tmp_path: Path) -> None:
    refused(tmp_path, {"0.weight": torch.empty((2**40, 0))}, "along one axis")


@pytest.mark.filterwarnings("ignore")  # torch says that these kinds are new
def test_tensors_of_other_kinds(tmp_path: Path) -> None:
    refused(tmp_path, {"0.weight": torch.ones((2, 2), dtype=torch.complex64)}, "not real numbers")
    refused(tmp_path, {"0.weight": torch.eye(2).to_sparse_csr()}, "cannot be read|stores")
    refused(tmp_path, {"0.weight": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])}, "")


def test_many_tensors_are_counted(tmp_path: Path) -> None:
    state = {f"{i}.weight": torch.ones(1, 1) for i in range(50)}
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(InputLimitError, match="tensors"):
        load(tmp_path / "a.pt", limits=Limits(tensors=20))


def nested_key(depth: int) -> bytes:
    """A pickled dictionary whose key is a pair of pairs of pairs: as short as it is deep, and 2^depth to hash."""
    pairs = b"".join(b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(depth))
    return b"\x80\x02})q\x00" + pairs + b"K\x01s."


def test_keys_that_take_for_ever_to_hash(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", nested_key(100))
        archive.writestr("a/version", "3")
        archive.writestr("a/byteorder", "little")
    start = time.process_time()
    with pytest.raises(InputError):
        load(tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(nested_key(100))
    with pytest.raises(InputError):
        load(tmp_path / "b.pt")
    assert time.process_time() - start < 20
