"""What `reluscope unwrap` prints and writes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from reluscope._files import make_folder
from reluscope._tables import Rows
from reluscope.errors import InputError
from reluscope.local_models.unwrap import Unwrapped, unwrap
from reluscope.network import Network
from reluscope.reporting.data import data_rows

_COVERAGE_BUDGET = "5s"
"""Time for listing the regions of the data's box."""


def unwrap_file(
    net: Network,
    name: str,
    data: Path,
    *,
    target_name: str | None = None,
    test: Path | None = None,
    features: list[str] | None = None,
    drop: list[str] | None = None,
    task: str = "auto",
    cutoff: float | None = None,
    merge: int | None = None,
    folder: Path | None = None,
    rng: int = 0,
    progress: Any = None,
) -> tuple[dict[str, Any], str]:
    """Unwrap a network on the rows of a CSV file; `merge=0` chooses the number of merged models, None merges nothing.

    Returns the facts and the text to print; writes the table (CSV and JSON) and pictures to `folder` if given.
    """
    rows = data_rows(net, data, target_name, features, drop)
    _check_width(rows, net.n_inputs, data.name)
    X, y = rows.X, rows.y
    known = net.schema is not None and rows.names == net.schema.inputs
    u = unwrap(net, X, y, feature_names=None if known else rows.names, task=task, cutoff=cutoff, progress=progress)
    facts: dict[str, Any] = {"model": name, "network": repr(u.network), "data": str(data)} | u.describe()
    top = u.importance()
    facts["importance"] = {row["feature"]: row["variance"] for row in top.rows()}
    whose = u.portraits(5)
    facts["portraits"] = [{"region": p.region, "count": p.count, "features": p.rows()} for p in whose]
    lines = [f"{name}: {u!r}", str(u.certificate), _counts(u), "", repr(u.table.head(10)), ""]
    lines += ["rows of the largest regions against all rows:", *map(repr, whose), "", "importance:", repr(top)]
    covered = u.coverage(budget=_COVERAGE_BUDGET, draws=5000, rng=rng)
    facts["coverage"] = {
        "regions_in_box": covered.n_regions,
        "unseen_volume": covered.unseen_volume.to_dict(),
    }
    lines.insert(3, str(covered))
    new = None if test is None else data_rows(net, test, target_name, None if known else u.feature_names)
    if new is not None:
        lines += ["", _tested(u, new, facts)]
    if u.task == "binary":
        lines += ["", _outcome(u, new, facts)]
    models = None
    if merge is not None:
        models = u.merge(merge or None, rng=rng, progress=progress)
        facts["merged"] = {"models": len(models), u.metric: models.score(X, y), "penalty": models.penalty}
        facts["merged"] |= {"seed": models.seed, "within_one_error": models.within_one_error()}
        facts["merged"]["single_class_levels"] = models.single_class_levels()
        lines += ["", repr(models)]
        if new is not None and new.y is not None:
            score = models.score(new.X, new.y)
            facts["merged"][f"test_{u.metric}"] = score
            lines.append(
                f"test: {u.metric} {score:.4f} of the merged models, {facts['test'][u.metric]:.4f} of the network"
            )
        facts["merged"]["table"] = models.table_rows()
        if u.task != "none":
            given = (None, None) if new is None or new.y is None else (new.X, new.y)
            committee = models.summary(*given)
            facts["merged"]["clusters"] = committee.rows()
            lines += ["", repr(committee)]
    if folder is not None:
        facts["files"] = _write(u, models, folder, Path(name).stem, facts)
        lines += ["", f"written to {folder}: {', '.join(facts['files'])}"]
    return _finite(facts), "\n".join(lines)


def _check_width(rows: Rows, n: int, what: str) -> None:
    if len(rows.names) != n:
        raise InputError(
            f"the network takes {n} inputs but {what} has {len(rows.names)} feature columns "
            f"({', '.join(rows.names[:30])}); name the features, or the columns to leave out"
        )


def _counts(u: Unwrapped) -> str:
    single = int((u.count == 1).sum())
    return f"{len(u):,} regions hold data; {single:,} of them a single row; the largest holds {int(u.count[0]):,}"


def _tested(u: Unwrapped, rows: Rows, facts: dict[str, Any]) -> str:
    y = rows.y
    found = u.evaluate(rows.X, y)
    facts["test"] = {"rows": len(found.region), "unseen_share": found.unseen_share}
    if y is not None:
        facts["test"] |= {u.metric: found.score, f"{u.metric}_unseen": found.score_unseen}
    return f"test: {found!r}"


def _outcome(u: Unwrapped, new: Rows | None, facts: dict[str, Any]) -> str:
    """Ranking and calibration of two classes, training rows beside test rows; how far the test rows have drifted."""
    tested = new is not None and new.y is not None
    found = u.outcome(new.X, new.y, regions=10) if tested and new is not None else u.outcome(regions=10)
    facts["outcome"] = {"cutoff": found.cutoff, "groups": found.rows()}
    lines = [f"outcome (cut-off {found.cutoff:g} on the probability):", repr(found)]
    if new is not None:
        moved = u.drift(new.X)
        facts["drift"] = {"output": moved.output, "regions": moved.regions, "features": moved.features}
        facts["drift"]["limits"] = {row["what"]: row["limit"] for row in moved.rows()}
        lines.append(f"drift: {repr(moved).splitlines()[0]}")
    return "\n".join(lines)


def _write(u: Unwrapped, models: Any, folder: Path, stem: str, facts: dict[str, Any]) -> list[str]:
    from reluscope._files import atomic_write
    from reluscope.plot._axes import save

    make_folder(folder)
    u.table.to_csv(folder / f"{stem}-regions.csv")
    with atomic_write(folder / f"{stem}-unwrap.json") as file:
        rows = u.table.head(1000).rows()
        file.write(json.dumps(_finite(facts | {"table": rows}), allow_nan=False, indent=1).encode())
    written = [f"{stem}-regions.csv", f"{stem}-unwrap.json"]
    kinds = ["importance", "parallel", "violin", "profile", "partial"]
    kinds += ["pair"] if u.network.n_inputs > 1 else []
    kinds += ["regions"] if u.network.n_inputs == 2 else []
    kinds += ["performance", "bubble"] if u.task != "none" and u.network.n_outputs == 1 else []
    pictures = {kind: u.plot(kind) for kind in kinds}
    if models is not None:
        models.save(folder / f"{stem}-merged.npz")
        written.append(f"{stem}-merged.npz")
        with suppress(InputError):  # too many regions for a query
            query = models.to_sql().encode()
            with atomic_write(folder / f"{stem}-merged.sql") as file:
                file.write(query)
            written.append(f"{stem}-merged.sql")
        if len(u) > 1:
            pictures["dendrogram"] = models.plot("dendrogram")
        if models.validation:
            pictures["validation"] = models.plot("validation")
    for kind, ax in pictures.items():
        save(ax, folder / f"{stem}-{kind}.png")
        written.append(f"{stem}-{kind}.png")
    return written


def _finite(value: Any) -> Any:
    """The same with nan and infinities as None, for JSON."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
