"""Writing tables: columns of equal length to a CSV file, whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(columns: Mapping[str, Any], path: Path) -> None:
    """Columns by name as CSV. Text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    from reluscope.formats._files import atomic_write

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_safe(name) for name in columns])
    lists = [np.asarray(column).tolist() for column in columns.values()]
    writer.writerows([_safe(value) for value in row] for row in zip(*lists, strict=True))
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
