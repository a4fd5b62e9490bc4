"""Whose region it is: how its rows differ from all rows.

For region r and feature j the deviation is `(mean_j over r - mean_j) / sd_j`, with mean and standard deviation over all
rows: in standard deviations of the data, so features of unlike units can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from reluscope._check import FloatArray, integer
from reluscope._tables import Tabular
from reluscope._text import count as counted
from reluscope.local_models._data import read
from reluscope.local_models._grouping import spans

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped


@dataclass(frozen=True, eq=False, repr=False)
class Portrait(Tabular):
    """The features in which a region's rows differ most from all rows, largest deviation first.

    Arrays have shape (features,): `mean` in the region and `overall`, in original units when a scaler is known, and
    `deviation` in standard deviations of the data. Features that do not vary in the data are left out.

    Attributes
    ----------
    region, count : int
    features : tuple of str
    mean, overall, deviation : (features,) arrays
    """

    region: int
    count: int
    features: tuple[str, ...]
    mean: FloatArray
    overall: FloatArray
    deviation: FloatArray

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per feature."""
        return [
            {
                "feature": name,
                "mean": float(self.mean[j]),
                "overall": float(self.overall[j]),
                "deviation": float(self.deviation[j]),
            }
            for j, name in enumerate(self.features)
        ]

    def __str__(self) -> str:
        parts = [f"{name} {d:+.1f} sd" for name, d in zip(self.features, self.deviation.tolist(), strict=True)]
        return ", ".join(parts) or "no feature varies"

    def __repr__(self) -> str:
        return f"region {self.region} ({counted(self.count, 'row')}): {self}"


def portraits(u: Unwrapped, regions: Iterable[int], features: int) -> list[Portrait]:
    """Portraits of some regions. Cost: one pass over their rows."""
    wanted = integer(features, "features", low=1)
    which = np.fromiter(regions, dtype=np.int64)
    place = np.full(len(u), -1, dtype=np.int64)
    place[which] = np.arange(len(which))
    rows = np.flatnonzero(place[u.region] >= 0)
    total, mass = np.zeros((len(which), u.network.n_inputs)), np.zeros(len(which))
    for some in spans(len(rows), 8192):
        mine = rows[some]
        weight = np.ones(len(mine)) if u.weight is None else u.weight[mine]
        spot = place[u.region[mine]]
        total += csr_array((weight, (spot, np.arange(len(mine)))), shape=(len(which), len(mine))) @ (
            read(u.X, mine) - u.centre
        )
        mass += np.bincount(spot, weight, minlength=len(which))
    total, mass = total[place[which]], mass[place[which]]  # a region that was asked for twice
    shift = total / np.where(mass > 0, mass, 1.0)[:, None]
    varied = np.flatnonzero(u.spread > 0)
    overall = u.centre if u.scaling is None else u.scaling.original(u.centre)
    mean = u.centre + shift
    mean = mean if u.scaling is None else u.scaling.original(mean)
    found = []
    for i, r in enumerate(which.tolist()):
        deviation = shift[i, varied] / u.spread[varied]
        top = np.argsort(-np.abs(deviation), kind="stable")[:wanted]
        names = tuple(u.feature_names[j] for j in varied[top])
        found.append(Portrait(r, int(u.count[r]), names, mean[i, varied[top]], overall[varied[top]], deviation[top]))
    return found
