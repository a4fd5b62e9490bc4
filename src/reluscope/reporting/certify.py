"""What `reluscope certify` prints and writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._files import make_folder
from reluscope._tables import write_csv
from reluscope._text import percent
from reluscope.answers._certificates import Certificates
from reluscope.answers.certify import certify
from reluscope.answers.replay import record
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.reporting.data import data_rows
from reluscope.schema import Schema


def certify_file(
    net: Network, name: str, data: Path, sigma: Any, *, target: str | None, least: float | None, folder: Path | None,
    **options: Any,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Certify the rows of a file, write table and curve to `folder` if given: the facts and the text to print.

    `least` is the share of rows that has to be certified at every sigma; the fact `enough` says whether it is.
    """
    rows = data_rows(net, data, target)
    if rows.X.shape[1] > net.n_inputs and target is None:
        raise InputError(
            f"{data.name} has {rows.X.shape[1]} columns but the network takes {net.n_inputs} inputs; "
            "name the label column with --target"
        )
    y = rows.y if rows.y is None or net.schema is None or not net.schema.classes else _places(net.schema, rows.y)
    rows = replace(rows, y=y)
    if rows.y is not None and rows.y.dtype.kind != "f":
        raise InputError(f"{data.name} must hold decisions as whole numbers from 0 on in column {target!r}, got text")
    found = certify(net, rows.X, sigma, labels=rows.y, **options)
    shares, change = found.share(found.sigma), found.change
    enough = None if least is None else bool((shares >= least).all())
    facts: dict[str, Any] = {
        "model": name,
        "data": str(data),
        "probability": found.probability,
        "sigma": found.sigma.tolist(),
        "share": shares.tolist(),
        "box": found.box,
        "box_mass": found.box_mass,
        "box_share": None if found.box_largest is None else found.box_share(found.sigma).tolist(),
        "enough": enough,
        "assumption": found.assumption,
        "rows": found.to_dict(),
        **{key: value for key, value in change.to_dict().items() if key not in ("value", "lower", "upper", "seed")},
        "files": [] if folder is None else _write(found, folder, Path(name).stem),
        "target": target,
        "record": record(
            net, None, None, found, X=rows.X, sigma=sigma, labels=rows.y,
            **{key: value for key, value in options.items() if key != "progress"},
        ),
    }  # fmt: skip
    lines = [str(found)]
    if found.box_largest is not None and found.box_mass is not None:
        held = ", ".join(
            f"{percent(share)} at sigma {s:g}" for s, share in zip(found.sigma, facts["box_share"], strict=True)
        )
        lines.append(f"box       plain CROWN on boxes of {found.box:g} sigma: {held}")
        lines.append(f"          ({percent(found.box_mass)} of the noise lies in such a box)")
    lines += [f"advice    {change.status.advice}"] if change.status.advice else []
    if least is not None:
        lines.append(f"share     {'yes' if enough else 'no: not'} {percent(least)} of the rows at every sigma")
    lines.append(f"time      {change.seconds:.3g} s")
    if folder is not None:
        lines.append(f"written to {folder}/: {', '.join(facts['files'])}")
    return facts, "\n".join(lines)


def _places(schema: Schema, y: Any) -> Any:
    """Classes by their labels as numbers of decisions; as they are where a label is no class."""
    place = {label: schema.class_index(label) for label in set(y.tolist())}
    return y if min(place.values()) < 0 else np.array([place[label] for label in y.tolist()], dtype=np.float64)


def _write(found: Certificates, folder: Path, stem: str) -> list[str]:
    from reluscope.plot._axes import save

    make_folder(folder)
    files = [f"{stem}-certificates.csv", f"{stem}-certificates.png"]
    write_csv(found.to_dict(), folder / files[0])
    save(found.plot(), folder / files[1])
    return files
