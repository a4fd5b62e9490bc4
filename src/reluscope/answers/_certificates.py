"""The record of a certified data set: one row each, and the share of rows that hold against noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, real_array
from reluscope._doors import door
from reluscope._tables import Tabular
from reluscope._text import count, percent, table
from reluscope.answer import Answers
from reluscope.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 20
"""Rows in a printed table, at the most."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificates(Tabular):
    """What `certify` returns: for each row of data, how likely noise changes its decision at the most.

    Attributes
    ----------
    probability : float
        The probability p of a change that counts as certified.
    sigma : (k,) array
        The standard deviations that were asked for, increasing.
    decision : (n,) int array
        What the network decides at each row: the index of the largest (or smallest) output, or for one output 1 where
        it is above its cut-off.
    correct : (n,) bool array or None
        Whether that is the row's label; None without labels. A row that is not correct is never certified.
    change : Answers
        Shape (n, k): sound brackets of the probability that the decision changes, row by row and sigma by sigma. Only
        the upper ends are worked for.
    largest : (n,) array
        The largest sigma that was proved: with it *and every smaller one* the probability is at most p. 0: none.
    box : float or None
        Half-width, in standard deviations, of the boxes that plain linear bounds were tried on beside.
    box_largest : (n,) array or None
        The largest sigma at which such a box was proved to keep the decision; None when not all rows were tried.
    box_mass : float or None
        The share of the noise that lies in the box, however strong it is: the most that such a proof can speak of.
    assumption : str
        A sentence where nobody has said which of several outputs decides, else "".

    Examples
    --------
    >>> from reluscope import Network, certify
    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[1.0, 0.0], [0.0, 1.0]], None)])
    >>> found = certify(net, [[3.0, 1.0], [1.0, 1.1]], 0.1)
    >>> found.certified[:, 0].tolist(), found.share(0.1)
    ([True, False], 0.5)
    """

    probability: float
    sigma: FloatArray
    decision: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_] | None
    change: Answers
    largest: FloatArray
    box: float | None = None
    box_largest: FloatArray | None = None
    box_mass: float | None = None
    assumption: str = ""

    def __len__(self) -> int:
        return len(self.decision)

    @property
    def certified(self) -> npt.NDArray[np.bool_]:
        """Shape (n, k): where a change is proved to have probability p at most and the row is not known to be wrong."""
        return np.asarray((self.change.upper <= self.probability) & self._right[:, None])

    @property
    def _right(self) -> npt.NDArray[np.bool_]:
        return np.ones(len(self), bool) if self.correct is None else self.correct

    def share(self, sigma: Any) -> Any:
        """The share of rows certified at each sigma.

        A row counts where sigma is at most its `largest`, and at the sigmas that were asked for also where its bracket
        says so.

        Parameters
        ----------
        sigma : float or array_like

        Returns
        -------
        float or array
            A number for a number, an array for an array.
        """
        at = _sigmas(sigma)
        held = self._right[:, None] & (self.largest[:, None] >= at.ravel())
        for k, s in enumerate(self.sigma):
            held[:, at.ravel() == s] |= self.certified[:, k : k + 1]
        shares = held.mean(axis=0).reshape(at.shape)
        return shares if at.ndim else float(shares)

    def box_share(self, sigma: Any) -> Any:
        """The share of rows that plain linear bounds (CROWN) prove on boxes of `box` standard deviations.

        This promises less than `share`: nothing is said of the noise outside the box.

        Parameters
        ----------
        sigma : float or array_like

        Returns
        -------
        float or array
            A number for a number, an array for an array.
        """
        at = _sigmas(sigma)
        if self.box_largest is None:
            raise InputError("box_share needs the boxes; call certify with box=4.5")
        shares = (self._right[:, None] & (self.box_largest[:, None] >= at.ravel())).mean(axis=0).reshape(at.shape)
        return shares if at.ndim else float(shares)

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns of the table by name; `change at SIGMA` is a probability, and its upper bound."""
        columns: dict[str, list[Any]] = {"row": list(range(len(self))), "decision": self.decision.tolist()}
        if self.correct is not None:
            columns["correct"] = self.correct.tolist()
        for k, s in enumerate(self.sigma):
            columns[f"change at {s:g} (upper bound)"] = self.change.upper[:, k].tolist()
        columns["largest"] = self.largest.tolist()
        if self.box_largest is not None:
            columns["box_largest"] = self.box_largest.tolist()
        return columns

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """The share of rows certified against sigma, plain linear bounds on boxes beside it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **style
            Goes to `ax.plot`, for the curve.

        Returns
        -------
        matplotlib Axes
        """
        return door("Certificates.plot")(self, ax, **style)

    def __str__(self) -> str:
        columns = self.to_dict()
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        lines = [table(rows[:_SHOWN])] + [f"... {len(rows) - _SHOWN:,} more"] * (len(rows) > _SHOWN)
        return "\n".join([*lines, self._sentence(), *([self.assumption] if self.assumption else [])])

    def __repr__(self) -> str:
        return f"Certificates({'; '.join(filter(None, [self._sentence(), self.assumption.removesuffix('.')]))})"

    def _sentence(self) -> str:
        shares = ", ".join(f"{percent(float(self.share(s)))} at sigma {s:g}" for s in self.sigma)
        end = "" if self.change.complete else f"; {self.change.status}: {self.change.note}"
        return f"{count(len(self), 'row')}, P(change) <= {self.probability:g} proved for {shares}{end}"


def _sigmas(sigma: Any) -> FloatArray:
    at = real_array(sigma, "sigma")
    if (at < 0).any():
        raise InputError(f"sigma must not be negative, got {at.min():g}")
    return at
