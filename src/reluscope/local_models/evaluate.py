"""New data in the regions of old data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer
from reluscope.local_models import table
from reluscope.local_models._data import Response, check_beside, weights_of
from reluscope.local_models.table import RegionTable, Rows

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """New rows beside the regions of an `Unwrapped`.

    `region` is the region of each row, -1 and `unseen` where no row of the data it was made from lies: there the
    network extrapolates with a local model that no data informed.

    Attributes
    ----------
    unwrapped : Unwrapped
    rows : Rows
        The new rows, their regions, responses and outputs.
    """

    unwrapped: Unwrapped
    rows: Rows

    @property
    def region(self) -> npt.NDArray[np.int64]:
        """Region of each row, -1 for none that is known."""
        return self.rows.region

    @property
    def unseen(self) -> npt.NDArray[np.bool_]:
        """Whether there were no data in the row's region."""
        return self.rows.region < 0

    @property
    def prediction(self) -> npt.NDArray[np.float64]:
        """The network's outputs, shape (n, outputs)."""
        return self.rows.prediction

    @cached_property
    def unseen_share(self) -> float:
        """Share of the rows (by weight) in regions without data."""
        return float(np.average(self.unseen, weights=self.rows.weight))

    @cached_property
    def score(self) -> float:
        """The network's score on all rows; nan without a response."""
        return table.overall(self.rows, None)

    @cached_property
    def score_seen(self) -> float:
        """The score on rows in regions with data."""
        return table.overall(self.rows.part(np.flatnonzero(~self.unseen)), None)

    @cached_property
    def score_unseen(self) -> float:
        """The score on rows in regions without data."""
        return table.overall(self.rows.part(np.flatnonzero(self.unseen)), None)

    @cached_property
    def table(self) -> RegionTable:
        """The region table of the new rows, in the order of the old regions."""
        return self.summary()

    def summary(self, *, output: int | None = None, global_regions: int = 100) -> RegionTable:
        """The region table of one output; arguments as for `Unwrapped.summary`.

        Parameters
        ----------
        output, global_regions
            As there.

        Returns
        -------
        RegionTable
        """
        most = integer(global_regions, "global_regions", low=0)
        return table.build(self.unwrapped, self.rows, self.unwrapped._output(output), most)

    def to_pandas(self) -> Any:
        """The region table as a pandas DataFrame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        task = self.rows.response.task
        score = "" if task == "none" else f", {table.metric_of(task, None)} {self.score:.4f}"
        return f"Evaluation({len(self.rows):,} rows{score}, {100 * self.unseen_share:.1f} % in regions without data)"


def evaluate(u: Unwrapped, X: Any, y: Any, sample_weight: Any) -> Evaluation:
    """New rows, assigned and scored."""
    rows = u._rows(X)
    check_beside(X, y, sample_weight)
    response = Response("none") if y is None else u.response.encode(y, len(rows))
    region, outputs = u._assign(rows)
    return Evaluation(u, Rows(rows, region, response, outputs, weights_of(sample_weight, len(rows))))
