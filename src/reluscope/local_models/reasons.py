"""Reason codes: the features that move a row most towards the adverse decision, from one stated reference.

They are the path contributions of `contributions`, the largest first, of those that raise the logit of the adverse
class. A feature that speaks for the applicant is never a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, describe, indices, integer
from reluscope._columns import columns_of, few
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models._data import read
from reluscope.local_models.contributions import Contributions, contributions, groups_of, values_of
from reluscope.schema import Column, Schema

if TYPE_CHECKING:
    from reluscope.answers.counterfactual import Counterfactuals
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Reasons(Tabular):
    """The k features or groups that move each row most towards the adverse class, largest first.

    Attributes
    ----------
    names : tuple of str
        Features or groups.
    feature : (n, k) array of int
        Their numbers among `names`; -1 where fewer than k move the row that way.
    push : (n, k) array
        By how much each raises the logit of the adverse class, against the reference; 0 where there is none.
    values, reference : dict of str to array, and dict
        The values of the rows and of the reference in their own units, for features that have one value.
    adverse : object
        The adverse class.
    contributions : Contributions
        All contributions, and what the reference is.
    units : dict of str to str
        Units of the features that have one.
    """

    names: tuple[str, ...]
    feature: Index
    push: FloatArray
    values: dict[str, npt.NDArray[Any]]
    reference: dict[str, Any]
    adverse: Any
    contributions: Contributions
    units: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.feature)

    def words(self, row: int) -> list[str]:
        """The reasons of one row in words.

        Parameters
        ----------
        row : int

        Returns
        -------
        list of str
        """
        i = integer(row, "row", low=-len(self), high=len(self) - 1) % len(self)
        return [
            f"{name}{self._compared(name, i)}: raises the logit of class {self.adverse} by {push:.4g}"
            for name, push in self._of(i)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row and reason."""
        return [
            {
                "row": i,
                "rank": rank,
                "feature": name,
                "value": _plain(self.values[name][i]) if name in self.values else None,
                "reference": self.reference.get(name),
                "push": push,
            }
            for i in range(len(self))
            for rank, (name, push) in enumerate(self._of(i), start=1)
        ]

    def _of(self, i: int) -> list[tuple[str, float]]:
        pairs = zip(self.feature[i].tolist(), self.push[i].tolist(), strict=True)
        return [(self.names[j], push) for j, push in pairs if j >= 0]

    def _compared(self, name: str, i: int) -> str:
        if name not in self.values:
            return ""
        unit = f" {self.units[name]}" if self.units.get(name) else ""
        return f" is {_figure(self.values[name][i])}{unit} (reference {_figure(self.reference[name])}{unit})"

    def __repr__(self) -> str:
        count = np.bincount(self.feature[self.feature >= 0], minlength=len(self.names))
        first = np.bincount(self.feature[:, 0][self.feature[:, 0] >= 0], minlength=len(self.names))
        order = np.argsort(-count, kind="stable")[:20]
        shown = [
            {"feature": self.names[j], "among the reasons": int(count[j]), "first reason": int(first[j])}
            for j in order.tolist()
            if count[j]
        ]
        return (
            f"reasons of {len(self):,} rows towards class {self.adverse}, against {self.contributions.reference_name}\n"
            f"{text_table(shown)}"
        )


def reasons(u: Unwrapped, X: Any, k: int, adverse: Any, reference: Any, groups: Any) -> Reasons:
    """The reasons of rows of `X` (None: the data)."""
    k = integer(k, "k", low=1)
    classes = u.response.classes
    if not classes or len(classes) != max(2, u.network.n_outputs):
        raise InputError("reasons speak of a decision between classes; pass y with labels to unwrap")
    label = classes[-1] if adverse is None else adverse
    if not isinstance(label, (str, bool, int, float, np.generic)) or label not in classes:
        raise InputError(f"adverse must be one of the classes {few(classes)}, got {describe(adverse)}")
    found = contributions(u, X, reference, groups, "path")
    at = classes.index(label)
    # One output is the logit of class 1: what lowers it speaks for class 0.
    parts = found.parts[:, 0] * (1.0 if at == 1 else -1.0) if u.network.n_outputs == 1 else found.parts[:, at]
    k = min(k, len(found.names))
    top = np.argsort(-parts, axis=1, kind="stable")[:, :k]
    push = np.take_along_axis(parts, top, axis=1)
    good = push > 0
    rows = read(u.X if X is None else u._rows(X), slice(None))
    together = groups_of(u, groups)
    values, start = values_of(u, rows, together), values_of(u, found.reference[None], together)
    return Reasons(
        found.names,
        np.where(good, top, -1).astype(np.int64),
        np.where(good, push, 0.0),
        values,
        {name: _plain(column[0]) for name, column in start.items()},
        label,
        found,
        {} if u.network.schema is None else {c.name: c.unit for c in u.network.schema.columns if c.unit},
    )


def counterfactuals_of(u: Unwrapped, X: Any, options: dict[str, Any]) -> Counterfactuals:
    """The nearest changes of rows of `X`, or of rows of the data by index."""
    from reluscope.answers.counterfactual import counterfactuals

    classes, net = u.response.classes, u.network
    if not classes or len(classes) != max(2, net.n_outputs):
        raise InputError("counterfactuals speak of a decision between classes; pass y with labels to unwrap")
    schema = net.schema or Schema()
    changes: dict[str, Any] = {}
    if not schema.columns:
        changes["columns"] = tuple(Column(name) for name in u.feature_names)
    if not schema.outputs:
        changes["outputs"] = tuple(f"y{k}" for k in range(net.n_outputs))
    if not schema.classes:
        changes["classes"] = classes
    net = net.with_schema(schema.with_names(**changes) if changes else schema)
    given = any_array(X, "X", "rows, or indices of rows") if columns_of(X) is None else None
    if given is not None and given.dtype.kind in "iu" and given.ndim <= 1 and given.shape != (net.n_inputs,):
        which = indices(np.atleast_1d(given), "X", len(u.region))
        rows = read(u.X, which)
    else:
        rows = read(u._rows(X if given is None or given.ndim != 1 else given[None]), slice(None))
    if "data" not in options:
        options = options | {"data": read(u.X, slice(None))}
    return counterfactuals(net, rows, **options)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
