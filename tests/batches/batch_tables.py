"""A small batch on disk: two networks, two properties, a law, data, and the table of a competition."""

from __future__ import annotations

import json
from pathlib import Path

import reluscope as rs
from nets import random_net


def prop(rows: str, n: int = 2, outputs: int = 1) -> str:
    """A VNN-LIB property on the box [-1, 1]^n."""
    out = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(n))
    return out + "".join(f"(declare-const Y_{i} Real)" for i in range(outputs)) + rows


def make_folder(tmp_path: Path) -> Path:
    """Two networks, two properties (one sat, one unsat for both), a law and data."""
    (tmp_path / "onnx").mkdir()
    (tmp_path / "vnnlib").mkdir()
    for k in range(2):
        random_net([2, 5, 1], seed=k).save(tmp_path / "onnx" / f"net{k}.npz")
    (tmp_path / "vnnlib" / "often.vnnlib").write_text(prop("(assert (>= Y_0 -100))"))
    (tmp_path / "vnnlib" / "never.vnnlib").write_text(prop("(assert (>= Y_0 100))"))
    (tmp_path / "law.json").write_text(json.dumps(rs.Gaussian([0.0, 0.0]).to_dict()))
    (tmp_path / "data.csv").write_text("a,b\n0,1\n1,0\n2,2\n0.5,-1\n")
    return tmp_path


def competition(folder: Path, seconds: str = ",10") -> Path:
    table = folder / "instances.csv"
    pairs = [(n, p) for n in ("net0", "net1") for p in ("often", "never")]
    table.write_text("".join(f"onnx/{n}.npz,vnnlib/{p}.vnnlib{seconds}\n" for n, p in pairs))
    return table
