"""Which features matter, from the local models.

`variance`: the variance over the rows of the contribution `w_j (x_j - mean_j)`, scaled to sum to 1; it does not depend
on units, and takes into account how much a feature varies. `squares`: FI_j ∝ Σ_regions count · w_j², scaled to sum to
1: the convention people know. It depends on the units of the features, and is of use for standardised inputs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.local_models._data import read
from reluscope.local_models._grouping import spans
from reluscope.local_models.contributions import groups_of
from reluscope.network import Network

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

_CHUNK = 1 << 21


@dataclass(frozen=True, eq=False, repr=False)
class Importance(Tabular):
    """Shares of each feature or group that sum to 1 (or are all 0).

    Attributes
    ----------
    feature_names : tuple of str
    squares, variance : (features,) arrays
    standardised : bool
        Whether all inputs vary alike (standard deviations within a factor of 2); only then `squares` means anything,
        and is shown.
    """

    feature_names: tuple[str, ...]
    squares: FloatArray
    variance: FloatArray
    standardised: bool

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per feature, most important first (by variance); `squares` for standardised inputs only."""
        order = np.argsort(-self.variance, kind="stable")
        return [
            {"feature": self.feature_names[j], "variance": float(self.variance[j])}
            | ({"squares": float(self.squares[j])} if self.standardised else {})
            for j in order.tolist()
        ]

    def __repr__(self) -> str:
        more = len(self.feature_names) - 20
        note = f"\n{more} more features (to_pandas())" if more > 0 else ""
        return f"{text_table(self.rows()[:20])}{note}"


@dataclass(frozen=True, eq=False)
class Profile:
    """One feature in every row: its `value`, local `coefficient` and centred `contribution`, each of shape (n,).

    Attributes
    ----------
    feature : str
    value, coefficient, contribution : (n,) arrays
    region : (n,) array of int
    """

    feature: str
    value: FloatArray
    coefficient: FloatArray
    contribution: FloatArray
    region: npt.NDArray[np.int64]

    def binned(self, bins: int = 20) -> dict[str, FloatArray]:
        """Means and standard deviations of coefficient and contribution in bins with equal numbers of rows.

        Parameters
        ----------
        bins : int

        Returns
        -------
        dict of (bins,) arrays
        """
        bins = integer(bins, "bins", low=1)
        edges = np.unique(np.quantile(self.value, np.linspace(0, 1, bins + 1)))
        place = np.clip(np.searchsorted(edges, self.value, side="right") - 1, 0, max(len(edges) - 2, 0))
        count = np.bincount(place, minlength=max(len(edges) - 1, 1)).astype(np.float64)
        out = {"count": count}
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = (("value", self.value), ("coefficient", self.coefficient), ("contribution", self.contribution))
            for name, column in columns:
                mean = np.bincount(place, column, minlength=len(count)) / count
                out[name] = mean
                out[f"{name}_std"] = np.sqrt(
                    np.bincount(place, (column - mean[place]) ** 2, minlength=len(count)) / count
                )
        return out

    def partial(self, fraction: float = 0.3, points: int = 60) -> tuple[FloatArray, FloatArray]:
        """A smooth curve of the contribution: local straight lines with tricube weights on `fraction` of the rows.

        Returns (values, means) at quantiles of the feature.

        Parameters
        ----------
        fraction : float
        points : int

        Returns
        -------
        values, means : (points,) arrays
        """
        from reluscope.local_models._smooth import local_line

        return local_line(self.value, self.contribution, fraction, points)


@dataclass(frozen=True, eq=False)
class PairProfile:
    """Mean joint centred contribution of two features in cells of a grid of their quantiles; nan in empty cells.

    Attributes
    ----------
    features : (str, str)
    edges : pair of arrays
    mean, count : arrays, one row per bin of the first feature
    """

    features: tuple[str, str]
    edges: tuple[FloatArray, FloatArray]
    mean: FloatArray
    count: npt.NDArray[np.int64]


def importance(u: Unwrapped, output: int | None, groups: Any = "columns") -> Importance:
    """Both conventions; with several outputs and none chosen, sums over the outputs."""
    together, m = groups_of(u, groups), u.network.n_outputs
    d = len(together.names)
    squares, total, square = np.zeros(u.network.n_inputs), np.zeros((m, d)), np.zeros((m, d))
    weight = np.ones(len(u.region)) if u.weight is None else u.weight
    mass = np.bincount(u.region, weight, minlength=len(u))
    which = slice(None) if output is None else slice(output, output + 1)
    for rows, C in _row_models(u):
        centred = C * (read(u.X, rows) - u.centre)[:, None, :]
        centred = together.total(centred)
        total += np.einsum("n,nod->od", weight[rows], centred)
        square += np.einsum("n,nod->od", weight[rows], centred**2)
    for part, C, _ in u._map_chunks():
        squares += np.einsum("r,rod->d", mass[part], C[:, which] ** 2)
    spread = (square / weight.sum() - (total / weight.sum()) ** 2)[which].sum(axis=0)
    varied = u.spread[u.spread > 0]
    alike = bool(varied.max(initial=1.0) <= 2.0 * varied.min(initial=np.inf)) if len(varied) else True
    return Importance(together.names, _shares(together.total(squares)), _shares(np.maximum(spread, 0.0)), alike)


def profile(u: Unwrapped, feature: Any, output: int) -> Profile:
    """One feature's local coefficient and contribution in every row."""
    j, o = u._feature(feature), integer(output, "output", low=0, high=u.network.n_outputs - 1)
    value = np.concatenate([read(u.X, rows)[:, j] for rows in spans(len(u.region), 8192)])
    coefficient = _column(u, o, j)[u.region]
    shown = value if u.scaling is None else (value - u.scaling.shift[j]) / u.scaling.scale[j]
    shown_coefficient = coefficient if u.scaling is None else coefficient * u.scaling.scale[j]
    return Profile(u.feature_names[j], shown, shown_coefficient, coefficient * (value - u.centre[j]), u.region)


def pair(u: Unwrapped, first: Any, second: Any, output: int, bins: int) -> PairProfile:
    """Mean of the sum of two features' contributions on a grid of quantiles."""
    bins = integer(bins, "bins", low=1)
    one, two = profile(u, u._feature(first, "first"), output), profile(u, u._feature(second, "second"), output)
    edges, place = [], []
    for p in (one, two):
        cuts = np.unique(np.quantile(p.value, np.linspace(0, 1, bins + 1)))
        cuts = cuts if len(cuts) > 1 else np.array([cuts[0] - 0.5, cuts[0] + 0.5])
        edges.append(cuts)
        place.append(np.clip(np.searchsorted(cuts, p.value, side="right") - 1, 0, len(cuts) - 2))
    shape = (len(edges[0]) - 1, len(edges[1]) - 1)
    cell = place[0] * shape[1] + place[1]
    count = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(cell, one.contribution + two.contribution, minlength=len(count)) / count
    return PairProfile((one.feature, two.feature), (edges[0], edges[1]), mean.reshape(shape), count.reshape(shape))


def _row_models(u: Unwrapped) -> Any:
    """Chunks of rows (indices) with the coefficients of each row's model, region by region."""
    net: Network = u.network
    per = net.n_outputs * net.n_inputs
    order = np.argsort(u.region, kind="stable")
    ends = np.concatenate([[0], np.cumsum(u.count)])
    for part, C, _ in u._map_chunks():
        rows = order[ends[part.start] : ends[part.stop]]
        for some in spans(len(rows), max(1, _CHUNK // per)):
            yield rows[some], C[u.region[rows[some]] - part.start]


def _column(u: Unwrapped, output: int, feature: int) -> FloatArray:
    """One coefficient of every region."""
    return np.concatenate([C[:, output, feature] for _, C, _ in u._map_chunks()])


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)
