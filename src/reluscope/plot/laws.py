"""The picture of how well a law fits a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reluscope.inputs import LawCheck
from reluscope.plot._axes import EXACT, GREY, axes, expect, name_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_law_check(check: LawCheck, ax: Axes | None = None) -> Axes:
    """The gap of every column between law and table, and what chance would show.

    Parameters
    ----------
    check : LawCheck
        What `law.check(table)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(check, LawCheck, "check", "law.check(table)")
    n = len(check.names)
    ax = axes(ax, figsize=(6.0, 0.8 + 0.26 * n))
    ax.barh(np.arange(n), check.ks, color=EXACT)
    ax.axvline(check.ks_noise, color=GREY, linestyle="--", linewidth=1.2, label="99 of 100 right laws are below")
    ax.set_yticks(np.arange(n), check.names)
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize="small")
    name_axes(ax, "largest gap between the cdf of law and table", "", f"AUC of a classifier {check.auc:.2f}")
    return ax
